//! The tables of docs/configuration.md are made from the schema. `UPDATE_DOCS=1` writes them anew. Its examples are valid.

mod common;

use std::path::Path;

use fanin_config::Config;
use serde_json::Value;

/// One table: key, type, default, what it means.
fn table(schema: &Value, section: &str, without: &[&str]) -> String {
    let section = &schema["$defs"][section];
    let required: Vec<&str> = section["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut text = String::from("\n| key | type | default | |\n|---|---|---|---|\n");
    for (key, property) in section["properties"].as_object().expect("properties") {
        if without.contains(&key.as_str()) {
            continue;
        }
        let default = match &property["default"] {
            Value::Null if required.contains(&key.as_str()) => "needed".to_owned(),
            Value::Null => String::new(),
            value => format!("`{value}`"),
        };
        let meaning = property["description"].as_str().expect("a description").replace("\n\n", " ");
        text.push_str(&format!("| `{key}` | {} | {default} | {meaning} |\n", kind(property).replace('|', "\\|")));
    }
    text.push('\n');
    text
}

fn kind(property: &Value) -> String {
    if let Some(kind) = property["x-type"].as_str() {
        return kind.to_owned();
    }
    if let Some(words) = property["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ");
    }
    if let Some(word) = property.get("const") {
        return format!("`{word}`");
    }
    if let Some(choices) = property["anyOf"].as_array() {
        // A variable in place of another type is told in the text above the tables.
        let mut kinds: Vec<String> = choices.iter().filter(|choice| choice["pattern"] != r"\$\{").map(kind).collect();
        kinds.dedup();
        return kinds.join(" or ");
    }
    if property.get("$ref").is_some() {
        return "table".to_owned();
    }
    match property["type"].as_str() {
        Some("integer") => match (property["minimum"].as_u64(), property["maximum"].as_u64()) {
            (Some(least), Some(most)) => format!("number, {least} to {most}"),
            (Some(least), None) => format!("number, at least {least}"),
            _ => "number".to_owned(),
        },
        Some("boolean") => "true or false".to_owned(),
        Some("array") => format!("list of {}", kind(&property["items"])),
        Some("object") => "table".to_owned(),
        Some(other) => other.to_owned(),
        None => panic!("a key without a type: {property}"),
    }
}

#[test]
fn the_tables_are_complete() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).expect("the page");
    let schema = Config::json_schema();
    let limits: Vec<&str> =
        schema["$defs"]["FlowLimits"]["properties"].as_object().expect("keys").keys().map(String::as_str).collect();
    let mut expected = String::new();
    let mut rest = text.as_str();
    let mut seen = Vec::new();
    while let Some(at) = rest.find("<!-- keys: ") {
        let (before, after) = rest.split_at(at);
        let line_end = after.find('\n').expect("a line") + 1;
        let section = after["<!-- keys: ".len()..line_end].trim_end().trim_end_matches("-->").trim();
        let end = after.find("<!-- end -->").expect("an end");
        let without: &[&str] = if section == "Route" { &limits } else { &[] };
        expected.push_str(before);
        expected.push_str(&after[..line_end]);
        expected.push_str(&table(&schema, section, without));
        seen.push(section);
        rest = &after[end..];
    }
    expected.push_str(rest);
    let mut sections: Vec<_> = schema["$defs"].as_object().expect("sections").keys().map(String::as_str).collect();
    sections.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, sections, "each section has one table");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).expect("written");
    } else {
        assert!(text == expected, "docs/configuration.md is not up to date: run with UPDATE_DOCS=1");
    }
}

#[test]
fn the_examples_are_valid() {
    let dir = common::folder();
    std::fs::create_dir(dir.path().join("models")).expect("created");
    std::fs::write(dir.path().join("shop.proto"), "").expect("written");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let examples: Vec<&str> =
        text.split("\n```toml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest)).collect();
    assert!(examples.len() >= 20, "only {} examples", examples.len());
    for example in examples {
        if let Err(error) = common::parse(&example.replace("flows/vacancies.star", "flows/page.star"), dir.path()) {
            panic!("{error}\n{example}");
        }
    }
}
