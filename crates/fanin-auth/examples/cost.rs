//! What the guard of a route costs a request: prints microseconds of one thread. Build it with `--release`.
//!
//! `cargo run --release -p fanin-auth --example cost -- KEYS TOKEN`: a file with a JWK Set, and a file with a token of one of its keys.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fanin_auth::{Decision, Guards, Subject};
use fanin_config::{Algorithm, Auth, AuthKind, Config, FlowRef, RateLimit, Route};
use http::{HeaderMap, Method};

const RUNS: u32 = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (keys, token) = (arguments.next().ok_or("KEYS?")?, arguments.next().ok_or("TOKEN?")?);
    let token = std::fs::read_to_string(token)?;
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {}", token.trim()).parse()?);
    for (what, max_cached) in [("a token, verified", 0), ("a token, cached", 1000)] {
        let mut auth = Auth::new(AuthKind::Jwt);
        auth.keys = vec![PathBuf::from(&keys)];
        auth.algorithms = vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
        auth.max_cached = max_cached;
        let mut config = config();
        config.auth.insert("a".into(), auth);
        config.routes[0].access.auth = vec!["a".into()];
        measure(what, &config, &headers)?;
    }
    for (what, headers_too) in [("a rate limit", false), ("a rate limit with its headers", true)] {
        let mut limit = RateLimit::new(1_000_000_000, Duration::from_secs(1));
        limit.headers = headers_too;
        let mut config = config();
        config.rate_limits.insert("l".into(), limit);
        config.routes[0].access.rate_limit = vec!["l".into()];
        measure(what, &config, &headers)?;
    }
    Ok(())
}

fn config() -> Config {
    Config { routes: vec![Route::new(Method::GET, "/", FlowRef::new("a.star", "a"))], ..Config::default() }
}

/// The fastest of five rounds: disturbances only add.
fn measure(what: &str, config: &Config, headers: &HeaderMap) -> Result<(), String> {
    let guards = Guards::load(config, None).map_err(|wrong| wrong.join("; "))?;
    let guard = guards.get(0).ok_or("the route has no guard")?;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        for at in 0..RUNS {
            let client = std::net::Ipv4Addr::from_bits(at).into();
            let now = tokio::time::Instant::now();
            let decision = guard.check(&Subject { client, certificate: None, headers, query: None, now });
            if !matches!(black_box(decision), Decision::Admit(_)) {
                return Err(format!("{what}: the request is refused"));
            }
        }
        best = best.min(begin.elapsed().as_secs_f64() * 1e6 / f64::from(RUNS));
    }
    println!("{what}: {best:.2} us");
    Ok(())
}
