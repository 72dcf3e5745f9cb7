//! The job site's backends: 300 vacancies, a search over them, suggestions.

use serde_json::{Value, json};

use super::backend::{Backend, Call, Reply, mix, pick};
use super::{Sample, has};

/// Search, vacancies, suggestions.
pub static BACKENDS: [Backend; 3] = [
    Backend { name: "search", variable: "SEARCH_URL", delay: (5, 15), answer: search },
    Backend { name: "vacancies", variable: "VACANCIES_URL", delay: (10, 40), answer: vacancies },
    Backend { name: "suggestions", variable: "SUGGESTIONS_URL", delay: (8, 20), answer: suggestions },
];

/// What the demo sends.
pub static SAMPLES: [Sample; 6] = [
    Sample {
        shows: "ids, then their descriptions: the second call takes a part of the first one's answer",
        method: "GET",
        target: "/vacancies?text=rust",
        body: "",
        status: 200,
        check: |body| has(body, "/items/0/title"),
    },
    Sample {
        shows: "the search finds something, so the flow does not request suggestions",
        method: "GET",
        target: "/search?text=senior+java",
        body: "",
        status: 200,
        check: |body| has(body, "/items/0/id"),
    },
    Sample {
        shows: "nothing is found: call 1, look at the answer, call something else",
        method: "GET",
        target: "/search?text=lamplighter",
        body: "",
        status: 200,
        check: |body| has(body, "/suggestions/0"),
    },
    Sample {
        shows: "one vacancy, and what else its employer offers",
        method: "GET",
        target: "/vacancies/1007",
        body: "",
        status: 200,
        check: |body| has(body, "/vacancy/title") && has(body, "/same_employer/0"),
    },
    Sample {
        shows: "a backend's 404 that the flow takes for an answer",
        method: "GET",
        target: "/vacancies/9999",
        body: "",
        status: 404,
        check: |body| has(body, "/title"),
    },
    Sample {
        shows: "a bad request calls no backend",
        method: "GET",
        target: "/vacancies",
        body: "",
        status: 400,
        check: |body| has(body, "/title"),
    },
];

const FIRST: u64 = 1001;
const LAST: u64 = 1300;
const PAGE: usize = 20;
const LEVELS: [&str; 4] = ["Junior", "Senior", "Lead", "Principal"];
const SKILLS: [&str; 12] = [
    "Rust",
    "Java",
    "Go",
    "Python",
    "Kotlin",
    "TypeScript",
    "PostgreSQL",
    "Kubernetes",
    "Kafka",
    "React",
    "Scala",
    "Linux",
];
const ROLES: [&str; 6] = ["Developer", "Engineer", "Architect", "Analyst", "Tester", "Team Lead"];
const CITIES: [&str; 6] = ["Lisbon", "Berlin", "Warsaw", "Tallinn", "Prague", "Remote"];
const EMPLOYERS: [&str; 24] = [
    "Northwind",
    "Bluebird",
    "Hexagon",
    "Lighthouse",
    "Granite",
    "Meadow",
    "Harbour",
    "Copper",
    "Willow",
    "Falcon",
    "Orchard",
    "Beacon",
    "Juniper",
    "Summit",
    "Cobalt",
    "Maple",
    "Anchor",
    "Prairie",
    "Comet",
    "Quarry",
    "Heron",
    "Lantern",
    "Saffron",
    "Tundra",
];

fn skills(id: u64) -> [&'static str; 3] {
    ["first", "second", "third"].map(|which| *pick(&SKILLS, &format!("{which} skill of {id}")))
}

fn title(id: u64) -> String {
    format!("{} {} {}", pick(&LEVELS, &format!("level {id}")), skills(id)[0], pick(&ROLES, &format!("role {id}")))
}

fn employer(id: u64) -> u64 {
    1 + mix(&format!("employer {id}")) % EMPLOYERS.len() as u64
}

fn vacancy(id: u64) -> Value {
    let (skills, employer) = (skills(id), employer(id));
    let salary = 30_000 + 500 * (mix(&format!("salary {id}")) % 100);
    json!({
        "id": id,
        "title": title(id),
        "employer": { "id": employer, "name": EMPLOYERS[employer as usize - 1] },
        "city": pick(&CITIES, &format!("city {id}")),
        "salary": { "from": salary, "to": salary + 20_000, "currency": "EUR" },
        "skills": skills,
        "description": format!(
            "We look for somebody who knows {} and is not afraid of {}. Straight-line code, small teams, few meetings. \
             You will build services that answer in milliseconds and stay up when others do not.",
            skills[1], skills[2]
        ),
    })
}

/// Vacancies in which every word of the text is found, or those of an employer.
fn search(call: &Call) -> Reply {
    if call.path != "/ids" {
        return Reply::not_found();
    }
    let text = call.query("text").to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    let wanted: Option<u64> = call.query("employer").parse().ok();
    let found: Vec<u64> = (FIRST..=LAST)
        .filter(|id| match wanted {
            Some(wanted) => employer(*id) == wanted,
            None => {
                let about = format!("{} {}", title(*id), skills(*id).join(" ")).to_lowercase();
                !words.is_empty() && words.iter().all(|word| about.contains(word))
            }
        })
        .collect();
    Reply::ok(json!({ "ids": found[..found.len().min(PAGE)], "total": found.len() }))
}

fn vacancies(call: &Call) -> Reply {
    let known = |id: &str| id.parse().ok().filter(|id| (FIRST..=LAST).contains(id));
    if call.path == "/vacancies" {
        let items: Vec<Value> = call.list("ids").into_iter().filter_map(known).map(vacancy).collect();
        return Reply::ok(json!({ "items": items }));
    }
    match call.path.strip_prefix("/vacancies/").and_then(known) {
        Some(id) => Reply::ok(vacancy(id)),
        None => Reply::not_found(),
    }
}

/// Skills whose name is most like the text.
fn suggestions(call: &Call) -> Reply {
    if call.path != "/suggestions" {
        return Reply::not_found();
    }
    let text = call.query("text").to_lowercase();
    let mut skills = SKILLS.map(str::to_lowercase);
    skills.sort_by_key(|skill| {
        let common = skill.chars().filter(|letter| text.contains(*letter)).count();
        (std::cmp::Reverse(common * 100 / skill.len()), skill.clone())
    });
    Reply::ok(json!({ "suggestions": skills[..3] }))
}
