//! Notices routes that do not keep their objectives.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use fanin_config::Objective;

use super::{Label, Metrics};
use crate::Incident;

/// Between two readings.
const EVERY: Duration = Duration::from_secs(1);
/// Readings of a minute.
const READINGS: usize = 60;
/// So many bad requests at least: one of few requests is no outage.
const LEAST_BAD: u64 = 10;

/// Reads the counts of all routes with an objective once a second.
#[derive(Debug, Default)]
pub(crate) struct ObjectiveWatch {
    due: Option<Instant>,
    routes: HashMap<Label, Watched>,
}

/// What a route has counted in the last minute.
#[derive(Debug, Default)]
struct Watched {
    /// Requests that counted, and the good ones, the oldest first.
    readings: VecDeque<(u64, u64)>,
    missed: bool,
}

impl ObjectiveWatch {
    /// Reads the counts if that is due. Gives the routes that have begun to miss their objective.
    pub(crate) fn tick(&mut self, now: Instant, metrics: &Metrics) -> Vec<Incident> {
        if self.due.is_some_and(|due| now < due) {
            return Vec::new();
        }
        self.due = Some(now + EVERY);
        let all = metrics.objectives();
        self.routes.retain(|label, _| all.iter().any(|(known, ..)| known == label));
        let mut found = Vec::new();
        for (label, objective, counted, good) in all {
            let route = format!("{} {}", label.method, label.path);
            if let Some((burn_rate, bad, counted)) =
                self.routes.entry(label).or_default().read(&objective, counted, good)
            {
                found.push(Incident::Objective { route, objective, burn_rate, bad, counted });
            }
        }
        found
    }
}

impl Watched {
    /// Takes a reading. If the objective begins to be missed: the burn rate, and the bad ones of how many requests.
    fn read(&mut self, objective: &Objective, counted: u64, good: u64) -> Option<(f64, u64, u64)> {
        let (first, first_good) = self.readings.front().copied().unwrap_or((counted, good));
        self.readings.push_back((counted, good));
        if self.readings.len() > READINGS {
            self.readings.pop_front();
        }
        let (counted, good) = (counted.saturating_sub(first), good.saturating_sub(first_good));
        let bad = counted.saturating_sub(good);
        let burn_rate = bad as f64 / counted.max(1) as f64 / (1.0 - objective.ratio());
        let before = std::mem::replace(&mut self.missed, burn_rate > 1.0 && bad >= LEAST_BAD);
        (self.missed && !before).then_some((burn_rate, bad, counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_objective_is_told_once() {
        let config = "[[routes]]\npath = '/'\nflow = 'a.star:f'\nobjective = '90 % < 1s'";
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.star"), "").unwrap();
        let config = fanin_config::Config::parse(config, "fanin.toml", dir.path(), &|_| None).unwrap();
        let objective = config.routes[0].objective.unwrap();
        let mut watched = Watched::default();
        assert_eq!(watched.read(&objective, 1000, 500), None, "what was before does not count");
        assert_eq!(watched.read(&objective, 1009, 500), None, "they are few");
        let (burn_rate, bad, counted) = watched.read(&objective, 1010, 500).expect("all ten were bad");
        assert_eq!((bad, counted), (10, 10));
        assert!((burn_rate - 10.0).abs() < 1e-9, "{burn_rate}");
        assert_eq!(watched.read(&objective, 1020, 500), None, "it is known");
        // A minute later these are forgotten, and a new failure is news.
        for _ in 0..READINGS {
            assert_eq!(watched.read(&objective, 1020, 500), None);
        }
        assert_eq!(watched.read(&objective, 1220, 690), None, "one of twenty is allowed");
        assert!(watched.read(&objective, 1320, 700).is_some());
    }
}
