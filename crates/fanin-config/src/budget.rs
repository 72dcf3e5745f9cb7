//! `budget` of a route: what its flow may do at worst.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::diagnostic::Position;
use crate::reader::Table;
use crate::schema::types;
use crate::values::polynomial::{MOST, Polynomial, parse_polynomial};

/// `budget = { rounds = 2, calls = "2 + 3n", effects = 1 }`: what the flow of a route may do at worst. The plan of the flow must prove it.
///
/// Each value is a number, or a sum with `n`, the number of items of a loop. `n^2` is for a loop within a loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Most rounds of calls, one after another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Or<types::Count<0, 1000000>, types::SumText>")]
    pub rounds: Option<Allowance>,
    /// Most calls. Each call of the flow counts, as for `max_calls`: also one that a batch merges with others or that a cache answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Or<types::Count<0, 1000000>, types::SumText>")]
    pub calls: Option<Allowance>,
    /// Most calls that may change something. They count in `calls`, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Or<types::Count<0, 1000000>, types::SumText>")]
    pub effects: Option<Allowance>,
}

/// How much of something a budget allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowance {
    /// At most so much.
    pub most: Polynomial,
    /// Where fanin.toml sets it, for messages.
    pub at: Position,
}

impl Serialize for Allowance {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.most.serialize(to)
    }
}

impl Budget {
    /// What is set, by its key.
    pub fn allowances(&self) -> impl Iterator<Item = (&'static str, &Allowance)> {
        let all = [("rounds", &self.rounds), ("calls", &self.calls), ("effects", &self.effects)];
        all.into_iter().filter_map(|(key, allowance)| Some((key, allowance.as_ref()?)))
    }
}

/// Reads the key `budget`.
pub(crate) fn read(route: &mut Table<'_, '_>) -> Option<Budget> {
    let mut table = route.table("budget")?;
    let budget = Budget {
        rounds: allowance(&mut table, "rounds"),
        calls: allowance(&mut table, "calls"),
        effects: allowance(&mut table, "effects"),
    };
    if !["rounds", "calls", "effects"].iter().any(|key| table.has(key)) {
        let hint = "for example budget = { rounds = 2, calls = \"2 + 3n\", effects = 1 }";
        let message = format!("{} needs `rounds`, `calls` or `effects`", table.name());
        table.reader().error_hint(table.span(), message, hint);
    }
    table.finish();
    Some(budget)
}

fn allowance(table: &mut Table<'_, '_>, key: &'static str) -> Option<Allowance> {
    let span = table.span_of(key);
    let most = if table.is_integer(key) {
        Polynomial::of([(0, table.number(key, 0..=MOST)?)])
    } else {
        table.parsed(key, "a number or a sum such as \"2 + 3n\"", parse_polynomial)?.value
    };
    Some(Allowance { most, at: table.reader().position(&span?) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Budget, Config};

    fn read(budget: &str) -> Result<Budget, String> {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("a.star"), "").expect("written");
        let text = format!("[[routes]]\npath = '/'\nflow = 'a.star:a'\nbudget = {budget}\n");
        let config = Config::parse(&text, "fanin.toml", dir.path(), &|name| (name == "MOST").then(|| "1 + n".into()));
        let mut config = config.map_err(|error| error.to_string())?;
        Ok(config.routes.remove(0).budget.expect("a budget"))
    }

    #[test]
    fn numbers_and_sums_are_read_with_their_places() {
        let budget = read("{ rounds = 2, calls = '2 + 3n', effects = '${MOST}' }").expect("right");
        let shown: Vec<_> =
            budget.allowances().map(|(key, one)| (key, one.most.to_string(), one.at.column, one.at.line)).collect();
        assert_eq!(
            shown,
            [
                ("rounds", "2".to_owned(), 21, 4),
                ("calls", "2 + 3n".to_owned(), 32, 4),
                ("effects", "1 + n".to_owned(), 52, 4)
            ]
        );
        let json = serde_json::to_value(&budget).expect("JSON");
        assert_eq!(json, serde_json::json!({ "rounds": 2, "calls": "2 + 3n", "effects": "1 + n" }));
        assert_eq!(read("{ effects = 0 }").expect("right").allowances().count(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_at_its_place() {
        for (budget, place, part) in [
            ("{}", "4:10", "needs `rounds`, `calls` or `effects`"),
            ("3", "4:10", "must be a table"),
            ("{ call = 3 }", "4:12", "did you mean `calls`?"),
            ("{ calls = -1 }", "4:20", "is out of range"),
            ("{ calls = 1.5 }", "4:20", "must be a number or a sum such as \"2 + 3n\""),
            ("{ calls = '2 + 3m' }", "4:20", "`2 + 3m` is no sum"),
        ] {
            let problem = read(budget).expect_err(budget);
            assert!(
                problem.contains(&format!("fanin.toml:{place}: ")) && problem.contains(part),
                "{budget}: {problem}"
            );
        }
        assert!(Config::parse("", "fanin.toml", Path::new("."), &|_| None).is_ok());
    }
}
