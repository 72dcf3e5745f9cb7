//! An explained request for a terminal.

use std::fmt::Write;
use std::time::Duration;

use crate::call::CallTrace;
use crate::request::RequestTrace;
use crate::waterfall::{draw, millis, shorten};

/// Most characters of a target.
const TARGET: usize = 2000;
/// A wait that is worth a line.
const NOTABLE: Duration = Duration::from_millis(1);

/// The request in one line, its calls as bars, and for each call its slack and its gain.
pub fn describe(trace: &RequestTrace) -> String {
    let mut text = String::new();
    let computed: Duration = trace.slices.iter().map(|slice| slice.to.saturating_sub(slice.from)).sum();
    let _ = writeln!(
        text,
        "{} {}   {}   {:.1} ms{}",
        shorten(&trace.method, TARGET),
        shorten(&trace.target, TARGET),
        trace.status,
        millis(trace.duration),
        if trace.partial { "   partial" } else { "" }
    );
    let _ = write!(
        text,
        "route {}, request {}, {:.1} ms before its flow began",
        trace.route,
        trace.id,
        millis(trace.queued)
    );
    if !trace.slices.is_empty() {
        let _ = write!(text, ", {:.2} ms computing", millis(computed));
    }
    if let Some(replayed) = trace.replayed {
        let _ = write!(text, ", {:.1} ms without computing and queueing", millis(replayed));
    }
    text.push_str("\n\n");
    if trace.calls.is_empty() {
        text.push_str("It made no calls.\n");
        return text;
    }
    text.push_str("░ waits for its arguments or its batch   █ in flight   times in ms since the request arrived\n\n");
    text.push_str(&draw(&trace.calls, trace.duration));
    attempts(&mut text, &trace.calls);
    text.push('\n');
    match trace.step {
        Some(step) => effects(&mut text, trace, step),
        None => text.push_str("What a shorter call would gain is known only of requests that were recorded in full.\n"),
    }
    if let Some(why) = &trace.unexplained {
        let _ = writeln!(text, "Not everything could be worked out: {why}.");
    }
    text
}

/// Attempts of calls that needed several, waited before the first, or whose answer waited for the worker.
fn attempts(text: &mut String, calls: &[CallTrace]) {
    let is_worth_it = |call: &&CallTrace| {
        call.attempts.len() > 1
            || call.attempts.iter().any(|attempt| attempt.waited.max(attempt.unread.unwrap_or_default()) >= NOTABLE)
    };
    for call in calls.iter().filter(is_worth_it) {
        let _ = writeln!(text, "\nattempts of {} ({}):", call.name(), call.line);
        for attempt in &call.attempts {
            let unread = match attempt.unread {
                Some(unread) => format!(", answer {:.2} ms in the kernel before it was read", millis(unread)),
                None => String::new(),
            };
            let ended = attempt.ended.map_or("not ended".to_owned(), |ended| format!("{:.1} ms", millis(ended)));
            let _ = writeln!(
                text,
                "  {:6} {:.1} … {ended}  {}  {}  waited {:.1} ms for permits and an endpoint{unread}",
                attempt.kind,
                millis(attempt.begun),
                attempt.outcome,
                attempt.endpoint,
                millis(attempt.waited),
            );
        }
    }
}

fn effects(text: &mut String, trace: &RequestTrace, step: Duration) {
    let step = millis(step);
    let explained: Vec<&CallTrace> = trace.calls.iter().filter(|call| call.effect.is_some() || call.critical).collect();
    let width = explained.iter().map(|call| call.name().chars().count()).max().unwrap_or(0).max(4);
    let lines = explained.iter().map(|call| call.line.chars().count()).max().unwrap_or(0).max(4);
    if explained.is_empty() {
        return;
    }
    let reads = explained.iter().filter_map(|call| call.read_at.as_ref()).map(|line| line.chars().count()).max();
    let reads = reads.unwrap_or(0).max("needed at".len());
    let _ = writeln!(
        text,
        "  {:width$}  {:lines$}  {:reads$}  {:28}  {step} ms shorter",
        "call", "line", "needed at", "slack"
    );
    for call in explained {
        let mark = if call.critical { '▶' } else { ' ' };
        let (slack, gain) = match &call.effect {
            None => ("timed out: not known".to_owned(), "not known".to_owned()),
            Some(effect) => {
                let slack = match effect.slack {
                    _ if call.critical => "none: the response waited".to_owned(),
                    None => "any length".to_owned(),
                    Some(slack) => format!("{:.1} ms", millis(slack)),
                };
                let gain = match effect.gain {
                    gain if gain.is_zero() => "no gain".to_owned(),
                    gain => format!("response {:.1} ms sooner", millis(gain)),
                };
                (slack, gain)
            }
        };
        let read = call.read_at.as_deref().unwrap_or("");
        let _ =
            writeln!(text, "{mark} {:width$}  {:lines$}  {read:reads$}  {slack:28}  {gain}", call.name(), call.line);
    }
    text.push_str(
        "\n▶ critical path. Slack: how much longer a call may take before the response is later or different.\n  \
         Needed at: the first line that waited for it, if one did.\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Effect;
    use crate::testing::{call, request};

    #[test]
    fn slack_and_gain_are_told() {
        let effect = |slack: Option<u64>, gain| {
            Some(Effect { slack: slack.map(Duration::from_millis), gain: Duration::from_millis(gain) })
        };
        let mut calls =
            vec![call("prices", 0, 0, 30), call("reviews", 0, 0, 10), call("ads", 0, 0, 5), call("slow", 0, 0, 9)];
        calls[0].effect = effect(Some(0), 7);
        calls[0].critical = true;
        calls[1].effect = effect(Some(20), 0);
        calls[2].effect = effect(None, 0);
        let trace = RequestTrace { step: Some(Duration::from_millis(10)), calls, ..request(30) };
        let text = describe(&trace);
        let line = |name: &str| text.lines().rfind(|line| line.contains(name)).unwrap_or("").to_owned();
        assert!(line("prices").starts_with("▶ prices") && line("prices").contains("7.0 ms sooner"), "{text}");
        assert!(line("reviews").contains("20.0 ms") && line("reviews").contains("no gain"), "{text}");
        assert!(line("ads").contains("any length"), "{text}");
    }

    #[test]
    fn requests_without_calls_are_told() {
        assert!(describe(&request(3)).contains("no calls"));
    }
}
