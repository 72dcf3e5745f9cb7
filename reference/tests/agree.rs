//! Programs of each area from fixed seeds: both evaluators agree, or the difference is in the table.

use fanin_reference::{areas::AREAS, compare, differences};

#[test]
fn generated_programs_agree_or_stand_in_the_table() {
    let count = std::env::var("FANIN_REFERENCE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let summary = compare(&AREAS, count, 2026, 2);
    assert!(summary.differences.is_empty(), "{}", summary.differences.join("\n"));
    let listed: usize = summary.listed.values().sum();
    println!("{} agree, {listed} stand in the table, failed on both sides: {:?}", summary.agreed, summary.failed);
    assert!(summary.agreed >= AREAS.len() * count * 7 / 10, "only {} agree", summary.agreed);
    // Failures are compared too, of most kinds.
    assert!(summary.failed.len() >= 8, "{:?}", summary.failed);
}

#[test]
fn the_readme_has_the_table() {
    let mut table = String::from("| | here | the crate | why |\n|---|---|---|---|\n");
    for entry in &differences::TABLE {
        table.push_str(&format!("| {} | {} | {} | {} |\n", entry.what, entry.here, entry.there, entry.why));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let text = std::fs::read_to_string(path).expect("README.md");
    let (before, rest) = text.split_once("<!-- table -->\n").expect("the table's start");
    let (_, after) = rest.split_once("<!-- end -->").expect("the table's end");
    let wanted = format!("{before}<!-- table -->\n{table}<!-- end -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).expect("README.md can be written");
    }
    assert_eq!(std::fs::read_to_string(path).expect("README.md"), wanted, "UPDATE_DOCS=1 writes it");
}
