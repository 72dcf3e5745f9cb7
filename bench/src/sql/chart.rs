//! Both runs in one picture: what was offered, and what was answered well by each.

use std::fmt::Write;

use fanin_load::Outcome;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;

/// An SVG with goodput above and latency below.
pub fn svg(capacity: f64, ours: &Outcome, blocking: &Outcome) -> String {
    let seconds = ours.seconds.max(blocking.seconds);
    let rate = |count: fn(&fanin_load::Interval) -> u64| {
        move |at: &fanin_load::Interval| (at.at, count(at) as f64 / at.length)
    };
    let offered: Vec<_> = ours.intervals.iter().map(rate(|at| at.offered)).collect();
    let good = |outcome: &Outcome| outcome.intervals.iter().map(rate(|at| at.good)).collect::<Vec<_>>();
    let latency = |outcome: &Outcome| {
        outcome.intervals.iter().filter(|at| at.good > 0).map(|at| (at.at, at.latency.p50)).collect::<Vec<_>>()
    };
    let mut out = String::new();
    let (w, h) = (WIDTH + 2.0 * LEFT, 2.0 * (HEIGHT + TOP) + 40.0);
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    );
    let most = offered.iter().map(|(_, rate)| *rate).fold(capacity, f64::max) * 1.05;
    let flat = [(0.0, capacity), (seconds, capacity)];
    panel(
        &mut out,
        TOP,
        "requests a second",
        seconds,
        most,
        &[
            ("offered", "#bbbbbb", &offered),
            ("the database's capacity", "#444444", &flat),
            ("fanin: waiting by number, oldest request first", "#1a7f37", &good(ours)),
            ("blocking threads: waiting by time, 1 s", "#cf222e", &good(blocking)),
        ],
    );
    let (ours, blocking) = (latency(ours), latency(blocking));
    let most = ours.iter().chain(&blocking).map(|(_, ms)| *ms).fold(100.0, f64::max) * 1.05;
    panel(
        &mut out,
        2.0 * TOP + HEIGHT,
        "median latency of good answers, ms",
        seconds,
        most,
        &[("fanin", "#1a7f37", &ours), ("blocking threads", "#cf222e", &blocking)],
    );
    out.push_str("</svg>\n");
    out
}

type Line<'a> = (&'a str, &'a str, &'a [(f64, f64)]);

fn panel(out: &mut String, top: f64, title: &str, seconds: f64, most: f64, lines: &[Line<'_>]) {
    let bottom = top + HEIGHT;
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\">{title}</text>\n<path d=\"M{LEFT} {top}V{bottom}H{}\" stroke=\"black\" fill=\"none\"/>",
        top - 8.0,
        LEFT + WIDTH
    );
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0}</text><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{:.0} s</text>",
            LEFT - 6.0,
            bottom - share * HEIGHT + 4.0,
            share * most,
            LEFT + share * WIDTH,
            bottom + 16.0,
            share * seconds
        );
    }
    for (index, (name, colour, points)) in lines.iter().enumerate() {
        let path: Vec<String> = points
            .iter()
            .map(|(at, value)| format!("{:.1},{:.1}", LEFT + at / seconds * WIDTH, bottom - value / most * HEIGHT))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            path.join(" "),
            LEFT + WIDTH - 330.0,
            top + 14.0 + 16.0 * index as f64
        );
    }
}
