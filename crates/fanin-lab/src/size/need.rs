//! What a tier needs when it has grown and its backends are slow.

use super::mgc::Windows;
use super::options::Options;
use super::record::Record;
use super::report::{Coroutines, Need, Simulated, Size, Theory, Why};
use super::simulate::{self, Load};
use super::sweep::most;

/// For bursts, growth and slow backends in the rule of thumb.
const RULE: f64 = 4.0 * 2.0 * 2.0;

/// `peak` and `peak_by_stamp`: request-seconds in the busiest second. `bounds`: of the most in progress on a server, if stamps
/// are in whole seconds. Takes records in order of their starts.
pub(crate) fn need(
    records: &[Record],
    options: &Options,
    peak: f64,
    peak_by_stamp: f64,
    bounds: Option<(u64, u64)>,
) -> Need {
    let Options { growth, slow, servers, .. } = *options;
    let load = Load { records, growth, slow, servers };
    let per_server = |threads: f64| (threads / f64::from(servers)).ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
    let at_once =
        (0..servers).map(|server| most(load.of_server(server).map(|(start, length)| (start, start + length)))).max();
    // Bounded by `max_requests`; a pool of four billion threads is no answer anyway.
    let at_once = u32::try_from(at_once.unwrap_or(0)).unwrap_or(u32::MAX).max(1);
    let recommended = simulate::least(load, at_once, options.may_wait);

    let mut sizes: Vec<(u32, Vec<Why>)> = Vec::new();
    let mut add = |threads: u32, why: Why| match sizes.iter_mut().find(|(other, _)| *other == threads) {
        Some((_, whys)) => whys.push(why),
        None => sizes.push((threads, vec![why])),
    };
    add(per_server(peak * options.factor()), Why::Least);
    add(recommended, Why::Recommended);
    add(at_once, Why::Peak);
    add(per_server(peak_by_stamp * RULE), Why::Rule);
    if let Some(size) = options.size {
        add(size, Why::Chosen);
    }
    sizes.sort_unstable_by_key(|(threads, _)| *threads);

    // A few requests may wait, so the recommended size can lie below the certain peak.
    let (at_least, at_most) = match bounds {
        None => (recommended, recommended),
        Some((least, most)) => {
            let [least, most] = [least, most].map(|bound| u32::try_from(bound).unwrap_or(u32::MAX).max(1));
            (recommended.min(least), recommended.max(most))
        }
    };
    let windows = Windows::new(records);
    let sizes = sizes.into_iter().map(|(threads, why)| {
        let stack_bytes = u64::from(threads).saturating_mul(options.stack);
        let theory = theory(&windows, threads, options);
        // With as many threads as requests in progress nobody waits; no need to run it.
        let simulated = if threads >= at_once { NOBODY } else { simulated(load, threads, options.waiting) };
        Size { threads, why, stack_bytes, simulated, theory }
    });
    Need {
        growth,
        slow,
        servers,
        may_wait: options.may_wait,
        threads: recommended,
        threads_at_least: at_least,
        threads_at_most: at_most,
        waiting: options.waiting,
        peak: at_once,
        sizes: sizes.collect(),
        coroutines: Coroutines {
            at_once: u64::from(at_once),
            bytes_each: options.flow_memory,
            bytes: u64::from(at_once).saturating_mul(options.flow_memory),
        },
    }
}

const NOBODY: Simulated = Simulated { waited: 0.0, refused: 0.0, mean_ms: 0.0, p99_ms: 0.0, max_ms: 0.0, queue: 0 };

fn simulated(load: Load<'_>, threads: u32, waiting: Option<u32>) -> Simulated {
    let outcome = simulate::run(load, threads, waiting);
    let share = |count: u64| count as f64 / outcome.requests as f64;
    Simulated {
        waited: share(outcome.waited),
        refused: share(outcome.refused),
        mean_ms: outcome.mean() * 1e3,
        p99_ms: outcome.quantile(0.99) * 1e3,
        max_ms: outcome.longest() * 1e3,
        queue: outcome.queue,
    }
}

fn theory(windows: &Windows, threads: u32, options: &Options) -> Theory {
    let mix = windows.mix(threads, options.growth, options.slow, options.servers);
    Theory {
        waited: mix.chance(),
        overloaded: mix.overloaded(),
        mean_ms: mix.mean().map(|seconds| seconds * 1e3),
        p99_ms: mix.quantile(0.99).map(|seconds| seconds * 1e3),
    }
}
