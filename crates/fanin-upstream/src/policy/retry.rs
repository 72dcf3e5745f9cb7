//! Which failures get a further attempt, and when.
//!
//! Only what is harmless twice is sent twice: calls that change nothing, and calls that certainly were not processed.
//! No retry for answers with `Retry-After`, for refusals of the limit or the breaker, and for timeouts of the call
//! itself, which leave no time. The retry budget bounds the sum of retries.

use std::time::Duration;

use fanin_config::Retry;
use http::header::RETRY_AFTER;

use super::random::Random;
use crate::error::{ErrorKind, Failure, is_passing_failure};
use crate::transport::attempt::Received;

/// Longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// The pause before retry number `next`, counted from 1. Random, so that calls that failed together do not return
/// together.
pub(crate) fn pause(policy: &Retry, next: u32, random: &Random) -> Duration {
    let longest = policy.backoff.saturating_mul(1 << (next - 1).min(10)).min(LONGEST);
    longest.mul_f64(random.fraction())
}

/// Whether a further attempt may change the outcome and is harmless.
pub(crate) fn is_worth_it(result: &Result<Received, Failure>, safe: bool) -> bool {
    match result {
        Ok(received) => safe && is_passing_failure(received.status) && !received.headers.contains_key(RETRY_AFTER),
        Err(failure) => match failure.kind {
            ErrorKind::Refused | ErrorKind::Connect => true,
            ErrorKind::Protocol => failure.retry_may_help() && (safe || failure.unsent),
            ErrorKind::Timeout => safe || failure.unsent,
            ErrorKind::Limit
            | ErrorKind::Breaker
            | ErrorKind::Status
            | ErrorKind::Decode
            | ErrorKind::TooLarge
            | ErrorKind::Cancelled => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};
    use tokio::time::Instant;

    use super::*;

    fn answer(status: u16, retry_after: bool) -> Result<Received, Failure> {
        let mut headers = HeaderMap::new();
        if retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Received { status, headers: headers.into(), body: Bytes::new(), at: Instant::now() })
    }

    #[test]
    fn only_useful_and_harmless_retries_are_made() {
        for (result, safe, unsafe_) in [
            (answer(200, false), false, false),
            (answer(404, false), false, false),
            (answer(500, false), false, false),
            (answer(503, false), true, false),
            (answer(503, true), false, false),
            (Err(Failure::new(ErrorKind::Refused, "")), true, true),
            (Err(Failure::new(ErrorKind::Connect, "")), true, true),
            (Err(Failure::new(ErrorKind::Protocol, "")), true, false),
            (Err(Failure::new(ErrorKind::Protocol, "").unsent()), true, true),
            (Err(Failure::ours("")), false, false),
            (Err(Failure::new(ErrorKind::Timeout, "")), true, false),
            (Err(Failure::new(ErrorKind::Limit, "")), false, false),
            (Err(Failure::new(ErrorKind::Breaker, "")), false, false),
            (Err(Failure::new(ErrorKind::TooLarge, "")), false, false),
        ] {
            assert_eq!((is_worth_it(&result, true), is_worth_it(&result, false)), (safe, unsafe_), "{result:?}");
        }
    }

    #[test]
    fn pauses_are_drawn_below_a_growing_bound() {
        let policy = Retry { backoff: Duration::from_millis(10), ..Retry::default() };
        let random = Random::new(1);
        for (next, bound) in [(1, 10), (2, 20), (3, 40), (30, 1000)] {
            let pauses: Vec<_> = (0..100).map(|_| pause(&policy, next, &random)).collect();
            let bound = Duration::from_millis(bound);
            assert!(pauses.iter().all(|pause| *pause <= bound));
            assert!(pauses.iter().any(|pause| *pause > bound / 2), "{next}");
        }
    }
}
