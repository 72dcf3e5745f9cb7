//! Changes of plans as Markdown, for a comment on a pull request.

use std::fmt::{self, Write};

use fanin_config::Polynomial;

use crate::plan_changes::{ChangeKind, ChangedCall, PlanChanges, RouteChange, WorstCase};

/// Most lines about the calls of one route.
const MOST_LINES: usize = 20;

impl fmt::Display for PlanChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### Worst case of each route\n")?;
        let different: Vec<&RouteChange> = self.routes.iter().filter(|route| route.kind != ChangeKind::Same).collect();
        let same = self.count(ChangeKind::Same);
        if different.is_empty() {
            writeln!(f, "No route does more or fewer calls than before.\n")?;
        } else {
            let mut table = String::from("| | route | rounds | calls | effects |\n|---|---|---|---|---|\n");
            different.iter().try_for_each(|route| row(&mut table, route))?;
            writeln!(f, "{table}")?;
            match same {
                0 => {}
                1 => writeln!(f, "1 route is as before.\n")?,
                _ => writeln!(f, "{same} routes are as before.\n")?,
            }
            if different.iter().any(|route| has_n(route)) {
                writeln!(f, "`n` is the number of items of a loop, `n^2` of a loop within a loop.\n")?;
            }
        }
        for route in different {
            let lines = lines(route);
            if lines.is_empty() {
                continue;
            }
            writeln!(f, "**{}** {}\n", capital(route.kind.as_str()), code(&route.route))?;
            lines.iter().take(MOST_LINES).try_for_each(|line| writeln!(f, "- {line}"))?;
            if let left @ 1.. = lines.len().saturating_sub(MOST_LINES) {
                writeln!(f, "- and {left} more")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{}", code(&self.summary()))
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Text of others as code, whatever is in it: the fence is longer than any run of backticks inside.
fn code(text: &str) -> String {
    let text: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    if longest > 0 { format!("{fence} {text} {fence}") } else { format!("{fence}{text}{fence}") }
}

/// The same within a table, where a bar ends a cell even in code.
fn cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

fn row(table: &mut String, route: &RouteChange) -> fmt::Result {
    let (before, after) = (&route.before, &route.after);
    let of = |part: fn(&WorstCase) -> &Polynomial| match (before, after) {
        (Some(then), Some(now)) if (part(then), then.complete) != (part(now), now.complete) => {
            format!("{} → **{}**", shown(then, part(then)), shown(now, part(now)))
        }
        (_, Some(one)) | (Some(one), None) => shown(one, part(one)),
        (None, None) => String::new(),
    };
    let kind = match route.kind {
        ChangeKind::Worse => "**worse**",
        other => other.as_str(),
    };
    let (rounds, calls, effects) = (of(|one| &one.rounds), of(|one| &one.calls), of(|one| &one.effects));
    writeln!(table, "| {kind} | {} | {rounds} | {calls} | {effects} |", cell(&route.route))
}

fn shown(of: &WorstCase, part: &Polynomial) -> String {
    if of.complete { part.to_string() } else { format!("at least {part}") }
}

fn has_n(route: &RouteChange) -> bool {
    let all = route.before.iter().chain(&route.after);
    all.flat_map(|one| [&one.rounds, &one.calls, &one.effects]).any(|one| one.degree() > 0)
}

/// What has changed in a route, a line each.
fn lines(route: &RouteChange) -> Vec<String> {
    let added = route.added.iter().map(|call| format!("added: {}", one_call(call)));
    let later = route.later.iter().map(|call| {
        let mut line =
            format!("later: {} in {}, round {} → {}", code(&call.call), code(&call.at), call.before, call.after);
        for (why, calls) in [("needs the answer of", &call.needs), ("after a decision on", &call.decided_on)] {
            let all: Vec<String> =
                calls.iter().map(|one| format!("{} in {}", code(&one.name), code(&one.at))).collect();
            if !all.is_empty() {
                let _ = write!(line, ", {why} {}", all.join(" and "));
            }
        }
        line
    });
    let unknown = route.unknown.iter().map(|what| format!("no longer counted: {}", code(what)));
    let removed = route.removed.iter().map(|call| format!("removed: {}", one_call(call)));
    added.chain(later).chain(unknown).chain(removed).collect()
}

fn one_call(call: &ChangedCall) -> String {
    let mut line = format!("{} in {}", code(&call.call), code(&call.at));
    for one in &call.loops {
        let _ = write!(line, ", for each item of {} ({})", code(&one.name), code(&one.at));
    }
    if let Some(by) = &call.called_by {
        let _ = write!(line, ", called by {} in {}", code(&by.name), code(&by.at));
    }
    if call.writes {
        line.push_str(", an effect");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_stays_code() {
        assert_eq!(code("a.get \"/1\""), "`a.get \"/1\"`");
        assert_eq!(code("split(\"``\")"), "``` split(\"``\") ```");
        assert_eq!(code("two\nlines"), "`two lines`");
        assert_eq!(cell("GET /a|b"), "`GET /a\\|b`");
    }

    #[test]
    fn nothing_changed_is_one_sentence() {
        let text = PlanChanges { routes: Vec::new() }.to_string();
        assert!(text.contains("No route does more or fewer calls") && text.ends_with("same=0`\n"), "{text}");
    }
}
