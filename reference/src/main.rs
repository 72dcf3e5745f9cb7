//! `fanin-reference [--count N] [--seed S] [--area NAME] [--most N]`: more programs than the tests run.

use std::process::ExitCode;

use fanin_reference::{areas, compare};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| value(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let wanted = value("--area");
    let areas: Vec<_> =
        areas::AREAS.into_iter().filter(|area| wanted.as_ref().is_none_or(|name| area.name == name)).collect();
    let most = number("--most", 3) as usize;
    let summary = compare(&areas, number("--count", 1000) as usize, number("--seed", 1), most);
    for difference in &summary.differences {
        println!("{difference}");
    }
    println!("{} programs agree; of them failed on both sides: {:?}", summary.agreed, summary.failed);
    for (what, count) in &summary.listed {
        println!("{count:6} {what}");
    }
    if summary.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
