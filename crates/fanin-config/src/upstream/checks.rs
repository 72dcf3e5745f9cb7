//! Checks across the keys of an upstream.

use std::time::Duration;

use crate::reader::Table;
use crate::upstream::hedge::Hedge;
use crate::upstream::keys::Upstream;
use crate::upstream::limit::Limit;
use crate::values::duration::format_duration;

/// A second attempt that starts after the deadline of every request is a mistake.
pub(crate) fn check_deadline(table: &Table<'_, '_>, upstream: &Upstream, longest_route: Option<Duration>) {
    let Some(longest) = longest_route else { return };
    let hedge = match upstream.hedge {
        Some(Hedge::Time(after)) => Some(after),
        _ => None,
    };
    for (key, time) in [("attempt_timeout", upstream.attempt_timeout), ("hedge", hedge)] {
        if time.is_some_and(|time| time >= longest) {
            table.error(
                key,
                format_args!(
                    "must be shorter than the longest route timeout, {}; otherwise there is no time for a second attempt",
                    format_duration(longest)
                ),
            );
        }
    }
}

/// If answers would have to be faster than this for the queue to drain in time, the queue is too long.
const PLAUSIBLE_ANSWER: Duration = Duration::from_millis(1);

/// Compares `max_waiting` with `limit` and `timeout`.
pub(crate) fn check_waiting(table: &Table<'_, '_>, upstream: &Upstream) {
    let Limit::Fixed(limit) = upstream.limit else { return };
    // `limit` calls leave the queue at a time, and the last call needs an answer of its own.
    let rounds = upstream.max_waiting.div_ceil(limit).saturating_add(1);
    let each = upstream.timeout / u32::try_from(rounds).unwrap_or(u32::MAX);
    if each < PLAUSIBLE_ANSWER && table.has("max_waiting") {
        table.error(
            "max_waiting",
            format_args!(
                "{} is too many for limit {limit}: the last waiting call reaches its timeout of {} unless each answer \
                 takes less than {}; lower `max_waiting` or raise `limit`",
                upstream.max_waiting,
                format_duration(upstream.timeout),
                format_duration(each.max(Duration::from_micros(1))),
            ),
        );
    }
}
