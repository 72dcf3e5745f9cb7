//! The calls of one request as bars under each other: what ran beside what, what was waited for.

use std::time::Duration;

use crate::call::CallTrace;

/// Characters of the time axis.
const WIDTH: usize = 36;
/// Characters of a call's text.
const WHAT: usize = 36;

/// Draws calls on an axis from 0 to `whole`, those that were made first above. `░` is a call that waits for its arguments,
/// `█` one on its way. The last column names what had just ended when a call was sent: what was waited for.
pub fn draw(calls: &[CallTrace], whole: Duration) -> String {
    let whole = calls.iter().filter_map(|call| call.ended).fold(whole, Duration::max).max(Duration::from_micros(1));
    let width = |of: fn(&CallTrace) -> &str| calls.iter().map(|call| of(call).chars().count()).max().unwrap_or(0);
    let (names, outcomes, lines) =
        (width(|call| &call.upstream), width(|call| &call.outcome), width(|call| &call.line));
    let mut text = String::new();
    for call in calls {
        let made = column(call.made, whole);
        let sent = call.sent.map_or(WIDTH, |sent| column(sent, whole));
        // A call that was never sent has no bar; any other has at least one block.
        let ended = call.ended.map_or(WIDTH, |ended| column(ended, whole).max(sent + 1));
        let bar: String = (0..WIDTH)
            .map(|at| match at {
                at if call.sent.is_some() && (sent..ended).contains(&at) => '█',
                at if call.sent.is_some() && (made..sent).contains(&at) => '░',
                _ => '·',
            })
            .collect();
        let shared = call.shared();
        let what = match (call.target.is_empty(), call.sent) {
            (false, _) => call.target.as_str(),
            (true, Some(_)) if shared.is_empty() => "(path not recorded)",
            (true, Some(_)) => &shared,
            (true, None) => "(never sent)",
        };
        let times = match (call.sent, call.ended) {
            (Some(sent), Some(ended)) => format!("{:5.1} … {:5.1} ms", millis(sent), millis(ended)),
            (Some(sent), None) => format!("{:5.1} …  cut off", millis(sent)),
            (None, _) => " ".repeat(16),
        };
        text.push_str(&format!(
            "     {:names$}  {:WHAT$}  {bar}  {times}  {:outcomes$}  {:lines$}",
            call.upstream,
            shorten(what, WHAT),
            call.outcome,
            call.line,
        ));
        if !shared.is_empty() && *what != *shared {
            text.push_str(&format!("  {shared}"));
        }
        let before = awaited(call, calls);
        if !before.is_empty() {
            text.push_str(&format!("  after {}", before.join(", ")));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Upstreams whose calls had just ended when a call was sent. Several when they ended within half a millisecond: the times do
/// not tell which of them it was.
fn awaited<'c>(call: &CallTrace, calls: &'c [CallTrace]) -> Vec<&'c str> {
    let Some(sent) = call.sent else { return Vec::new() };
    let ended = |other: &CallTrace| other.ended.filter(|ended| other.sent.is_some() && *ended <= sent);
    let Some(last) = calls.iter().filter_map(ended).max() else { return Vec::new() };
    let since = last.saturating_sub(Duration::from_micros(500));
    let just = calls.iter().filter(|other| ended(other).is_some_and(|ended| ended >= since));
    let mut names: Vec<&str> = just.map(|other| &*other.upstream).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn column(at: Duration, whole: Duration) -> usize {
    let share = at.as_secs_f64() / whole.as_secs_f64();
    ((share * WIDTH as f64).round() as usize).min(WIDTH - 1)
}

/// Milliseconds with their fraction.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A text on one line, cut with an ellipsis to a number of characters.
pub fn shorten(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(upstream: &str, made: u64, sent: Option<u64>, ended: Option<u64>) -> CallTrace {
        CallTrace {
            target: if sent.is_some() { format!("GET /{upstream}") } else { String::new() },
            sent: sent.map(Duration::from_millis),
            ended: ended.map(Duration::from_millis),
            ..crate::testing::call(upstream, made, 0, 0)
        }
    }

    fn blocks(line: &str) -> String {
        line.chars().filter(|c| matches!(c, '█' | '░' | '·')).collect()
    }

    #[test]
    fn bars_show_what_ran_beside_what() {
        let calls =
            [call("a", 0, Some(0), Some(10)), call("b", 0, Some(0), Some(20)), call("cc", 2, Some(11), Some(36))];
        let text = draw(&calls, Duration::from_millis(36));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(blocks(lines[0]), format!("{}{}", "█".repeat(10), "·".repeat(26)));
        assert_eq!(blocks(lines[1]), format!("{}{}", "█".repeat(20), "·".repeat(16)));
        assert_eq!(blocks(lines[2]), format!("··{}{}·", "░".repeat(9), "█".repeat(24)));
        assert!(!lines[0].contains("after") && !lines[1].contains("after"));
        assert!(lines[2].contains("11.0 …  36.0 ms  200  f.star:1  after a"), "{}", lines[2]);
    }

    #[test]
    fn calls_without_an_end_and_never_sent_ones_are_told() {
        let calls = [call("a", 0, Some(5), None), call("b", 3, None, Some(4))];
        let text = draw(&calls, Duration::from_millis(10));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("cut off") && blocks(lines[0]).ends_with('█'), "{text}");
        assert!(lines[1].contains("(never sent)") && !blocks(lines[1]).contains(['█', '░']), "{text}");
    }

    #[test]
    fn calls_that_ended_together_are_all_named() {
        let calls =
            [call("b", 0, Some(0), Some(10)), call("a", 0, Some(0), Some(10)), call("c", 10, Some(10), Some(12))];
        assert_eq!(awaited(&calls[2], &calls), ["a", "b"]);
        assert_eq!(awaited(&calls[0], &calls), Vec::<&str>::new());
    }

    #[test]
    fn odd_times_do_not_break_it() {
        assert_eq!(draw(&[], Duration::ZERO), "");
        for (made, sent, ended) in [(0, 0, 0), (5, 5, 50), (50, 60, 70)] {
            let text = draw(&[call("a", made, Some(sent), Some(ended))], Duration::from_millis(10));
            assert!(text.contains('█'), "{text}");
        }
    }

    #[test]
    fn texts_are_cut_to_their_width() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
        assert_eq!(shorten("żółw\n!", 5), "żółw…");
        assert_eq!(shorten("a\nb", 5), "a b");
    }
}
