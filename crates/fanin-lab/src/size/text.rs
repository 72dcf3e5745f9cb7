//! The report for people.

use std::fmt::{self, Display, Formatter};

use super::report::{FileReport, Level, Need, Report, Resolution, Size, Why};
use super::stamps::Stamps;

/// The report as text, some 30 lines of at most 120 columns.
pub fn text(report: &Report) -> impl Display + '_ {
    fmt::from_fn(move |to| {
        for file in &report.files {
            log(file, to)?;
        }
        for warning in &report.warnings {
            writeln!(to, "warning: {warning}")?;
        }
        load(report, to)?;
        need(&report.need, report, to)
    })
}

fn log(file: &FileReport, to: &mut Formatter<'_>) -> fmt::Result {
    let (Some(format), Some(stamps)) = (file.format, file.stamps) else {
        return writeln!(to, "{}: empty", file.file);
    };
    let fine = match file.resolution {
        Resolution::Fraction => "with fractions of a second",
        Resolution::WholeSeconds => "in whole seconds",
        Resolution::Mixed => "some in whole seconds",
    };
    let marks = match stamps {
        Stamps::Start => "start",
        Stamps::End => "end",
    };
    writeln!(to, "{}: {}; stamps {fine}, taken as the request's {marks}", file.file, format.name())?;
    write!(to, "  {} lines, {} requests", count(file.lines), count(file.requests))?;
    for (number, what) in [(file.outside, "outside of --from and --to"), (file.broken, "broken")] {
        if number > 0 {
            write!(to, ", {} {what}", count(number))?;
        }
    }
    if file.out_of_order > 0 {
        write!(to, ", {} out of order by up to {:.3} s (sorted)", count(file.out_of_order), file.furthest_behind)?;
    }
    writeln!(to)?;
    for broken in &file.first_broken {
        writeln!(to, "    line {}: {}: {}", broken.line, broken.reason, broken.text)?;
    }
    if file.broken > file.first_broken.len() as u64 {
        writeln!(to, "    and {} more", count(file.broken - file.first_broken.len() as u64))?;
    }
    Ok(())
}

fn load(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    let Report { length, per_second, in_progress, .. } = report;
    writeln!(to)?;
    writeln!(
        to,
        "{} requests in {:.1} s, {} to {}",
        count(report.requests),
        report.wall_seconds,
        report.from,
        report.to
    )?;
    let [mean, p50, p99, max] = [length.mean_ms, length.p50_ms, length.p99_ms, length.max_ms].map(millis);
    writeln!(to, "length: mean {mean}, p50 {p50}, p99 {p99}, longest {max}; variance/mean² {:.2}", length.cv2)?;
    writeln!(to)?;
    writeln!(to, "{:34}{:>9}{:>9}{:>9}{:>9}", "", "mean", "p50", "p99", "most")?;
    writeln!(
        to,
        "{:34}{:>9.2}{:>9.2}{:>9.2}{:>9.2}  {}",
        "request-seconds per wall second",
        per_second.mean,
        per_second.p50,
        per_second.p99,
        per_second.peak,
        per_second.peak_at
    )?;
    writeln!(to, "{:34}{:>36.2}", "  whole lengths at their stamp", per_second.peak_by_stamp)?;
    let (p50, p99, max) = (in_progress.p50, in_progress.p99, in_progress.max);
    writeln!(
        to,
        "{:34}{:>9.2}{:>9}{:>9}{:>9}  {}",
        "requests in progress at once", per_second.mean, p50.value, p99.value, max.value, in_progress.max_at
    )?;
    if !in_progress.exact {
        let range = |level: Level| format!("{}-{}", level.at_least, level.at_most);
        let ranges = [p50, p99, max].map(range);
        writeln!(to, "{:34}{:>9}{:>9}{:>9}{:>9}", "  surely between", "", ranges[0], ranges[1], ranges[2])?;
    }
    writeln!(
        to,
        "burst factor {:.2}: {} in progress at once over {:.2} request-seconds in the busiest second",
        report.burst_factor, max.value, per_second.peak
    )
}

fn need(need: &Need, report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    writeln!(to)?;
    let servers = if need.servers == 1 { "one server".to_owned() } else { format!("each of {} servers", need.servers) };
    writeln!(to, "Needed on {servers} for x{} the requests, each x{} as long:", need.growth, need.slow)?;
    let threads = if need.threads_at_least == need.threads_at_most {
        format!("{} threads", need.threads)
    } else {
        let (least, most) = (need.threads_at_least, need.threads_at_most);
        format!("{least} to {most} threads (best guess {})", need.threads)
    };
    writeln!(to, "  {threads}: at most {} of requests wait; {}: none waits", percent(need.may_wait), need.peak)?;
    let coroutines = need.coroutines;
    writeln!(
        to,
        "  or no threads: {} coroutines at once, {} ({} each)",
        coroutines.at_once,
        bytes(coroutines.bytes),
        bytes(coroutines.bytes_each)
    )?;
    if let Some(waiting) = need.waiting {
        writeln!(to, "  at most {waiting} wait on a server; the next is refused")?;
    }
    writeln!(to)?;
    table(need, to)?;
    let rule = report.per_second.peak_by_stamp;
    writeln!(to)?;
    writeln!(
        to,
        "rule of thumb: {rule:.2} by stamp, x4 for bursts, x2 for growth, x2 for slow backends, over {} = {:.0} threads",
        need.servers,
        (rule * 16.0 / f64::from(need.servers)).ceil()
    )
}

/// Widths of what the log's own requests met (the second only with a bounded queue) and of what theory says.
const OWN: [usize; 6] = [9, 9, 9, 9, 9, 7];
const THEORY: [usize; 3] = [9, 9, 9];

fn table(need: &Need, to: &mut Formatter<'_>) -> fmt::Result {
    let bounded = need.waiting.is_some();
    let own = |at: &usize| bounded || *at != 1;
    let width: usize = (0..OWN.len()).filter(own).map(|at| OWN[at]).sum();
    let theory_width: usize = THEORY.iter().sum();
    writeln!(to, "{:18} | {:<width$} | {:<theory_width$} |", "", "the log's own requests", "M/G/c, each minute")?;
    let row = |to: &mut Formatter<'_>, [threads, stack]: [&str; 2], simulated: [&str; 6], theory: [&str; 3]| {
        write!(to, "{threads:>8}{stack:>10} | ")?;
        for at in (0..OWN.len()).filter(own) {
            write!(to, "{:>1$}", simulated[at], OWN[at])?;
        }
        write!(to, " | ")?;
        for (cell, width) in theory.iter().zip(THEORY) {
            write!(to, "{cell:>width$}")?;
        }
        write!(to, " |")
    };
    row(to, ["threads", "stacks"], ["wait", "refused", "mean", "p99", "longest", "queue"], ["wait", "mean", "p99"])?;
    writeln!(to)?;
    for Size { threads, why, stack_bytes, simulated, theory } in &need.sizes {
        let endless = |wait: Option<f64>| wait.map_or("endless".to_owned(), millis);
        let size = [threads.to_string(), bytes(*stack_bytes)];
        let own = [
            percent(simulated.waited),
            percent(simulated.refused),
            millis(simulated.mean_ms),
            millis(simulated.p99_ms),
            millis(simulated.max_ms),
            count(simulated.queue),
        ];
        let theory = [percent(theory.waited), endless(theory.mean_ms), endless(theory.p99_ms)];
        row(
            to,
            size.each_ref().map(String::as_str),
            own.each_ref().map(String::as_str),
            theory.each_ref().map(String::as_str),
        )?;
        let why: Vec<&str> = why.iter().map(|why| reason(*why)).collect();
        writeln!(to, " {}", why.join(", "))?;
    }
    let bursts =
        need.sizes.iter().any(|size| size.simulated.waited > 0.01 && size.simulated.waited > 4.0 * size.theory.waited);
    if bursts {
        writeln!(to, "The log's own requests wait more than M/G/c says: they come in bursts shorter than a minute.")?;
    }
    Ok(())
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Least => "least",
        Why::Recommended => "recommended",
        Why::Peak => "peak",
        Why::Rule => "rule of thumb",
        Why::Chosen => "chosen",
    }
}

/// With commas.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

/// A share in three digits; what is not nothing is never shown as nothing.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        ..0.001 => "<0.001 %".to_owned(),
        ..1.0 => format!("{} %", (percent * 1000.0).round() / 1000.0),
        _ => format!("{:.1} %", percent),
    }
}

/// Milliseconds, or seconds from 10 on.
fn millis(millis: f64) -> String {
    match millis {
        0.0 => "0 ms".to_owned(),
        ..0.01 => "<10 us".to_owned(),
        ..10.0 => format!("{millis:.2} ms"),
        ..1000.0 => format!("{millis:.0} ms"),
        ..100_000.0 => format!("{:.2} s", millis / 1000.0),
        _ => format!("{:.0} s", millis / 1000.0),
    }
}

fn bytes(size: u64) -> String {
    for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if size >= unit {
            let number = size as f64 / unit as f64;
            let digits = usize::from(number < 10.0 && !size.is_multiple_of(unit));
            return format!("{number:.digits$} {name}");
        }
    }
    format!("{size} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(
            [percent(0.0), percent(0.000_001), percent(0.001), percent(0.5)],
            ["0 %", "<0.001 %", "0.1 %", "50.0 %"]
        );
        assert_eq!(
            [millis(0.0), millis(0.001), millis(1.5), millis(250.0), millis(2500.0)],
            ["0 ms", "<10 us", "1.50 ms", "250 ms", "2.50 s"]
        );
        assert_eq!([bytes(600 << 20), bytes(1536 << 20), bytes(7)], ["600 MiB", "1.5 GiB", "7 B"]);
    }
}
