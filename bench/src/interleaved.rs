//! Measuring several servers in turns: the way in which every cost here is compared.

use std::time::Duration;

use serde::Serialize;

use crate::Failure;
use crate::load::{Figures, Plan, Session};
use crate::process::{Server, Usage};

/// Long enough that its edges do not count, short enough that a noisy neighbour hits the servers alike.
const WINDOW: Duration = Duration::from_millis(500);
/// Load before a window counts.
pub const SETTLE: Duration = Duration::from_millis(50);

/// What one server needed.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// CPU microseconds a request.
    pub cpu: f64,
    /// What the load saw.
    #[serde(flatten)]
    pub figures: Figures,
    /// Highest resident memory since the server started, bytes.
    pub peak: u64,
    /// Threads.
    pub threads: u64,
}

/// Short windows of all servers in turns, forth and back, `rounds` times, so that the machine's faster and slower
/// seconds fall on all of them alike, and so does a drift. `reverse` lets the last begin.
/// `delay` is what the backend takes for a request: windows are long against it. Costs come in the order given.
pub fn run_interleaved(
    servers: &[(&Server, Plan)],
    rounds: usize,
    reverse: bool,
    delay: Duration,
) -> Result<Vec<Cost>, Failure> {
    // Requests that began together come back together: a window has to hold some of these waves, whole or not.
    let (settle, window) = (SETTLE.max(delay * 2), WINDOW.max(delay * 4));
    let mut sessions = Vec::with_capacity(servers.len());
    for (_, plan) in servers {
        sessions.push((Session::connect(plan.clone())?, Duration::ZERO));
    }
    let mut order: Vec<usize> = (0..servers.len()).collect();
    if reverse {
        order.reverse();
    }
    for _ in 0..rounds * 2 {
        for &index in &order {
            let (session, cpu) = &mut sessions[index];
            let mut edges: Vec<std::io::Result<Usage>> = Vec::with_capacity(2);
            session.window(settle, window, || edges.push(servers[index].0.usage()))?;
            let mut edges = edges.into_iter();
            let (Some(before), Some(after)) = (edges.next(), edges.next()) else {
                return Err(Failure::Wrong("the window did not open".into()));
            };
            *cpu += after?.cpu.saturating_sub(before?.cpu);
        }
        order.reverse();
    }
    let finish = |((server, _), (session, cpu)): (&(&Server, Plan), (Session, Duration))| {
        let figures = session.figures();
        let usage = server.usage()?;
        let cpu = cpu.as_secs_f64() * 1e6 / figures.requests as f64;
        Ok(Cost { cpu, figures, peak: usage.peak, threads: usage.threads })
    };
    servers.iter().zip(sessions).map(finish).collect()
}
