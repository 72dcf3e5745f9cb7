//! Reads metrics as OpenMetrics text, the form in which those of all workers come together.

/// A family of metrics.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) unit: String,
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
}

/// One line.
#[derive(Debug, PartialEq)]
pub(crate) struct Sample {
    /// What follows the family's name: `_total`, `_bucket`.
    pub(crate) suffix: String,
    pub(crate) labels: Labels,
    pub(crate) value: f64,
    pub(crate) exemplar: Option<Exemplar>,
}

/// A request that a bucket has counted.
#[derive(Debug, PartialEq)]
pub(crate) struct Exemplar {
    pub(crate) labels: Labels,
    pub(crate) value: f64,
    /// Seconds since 1970.
    pub(crate) at: Option<f64>,
}

/// Names and values, in their order.
pub(crate) type Labels = Vec<(String, String)>;

/// All families. Lines that are not understood are left out.
pub(crate) fn parse(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(rest) => describe(rest, &mut families),
            None => {
                let Some(family) = families.last_mut() else { continue };
                let read = line.strip_prefix(&*family.name).and_then(sample);
                family.samples.extend(read);
            }
        }
    }
    families
}

/// `HELP name text`, `TYPE name kind`, `UNIT name unit`. The lines of a family follow one another.
fn describe(rest: &str, families: &mut Vec<Family>) {
    let mut words = rest.splitn(3, ' ');
    let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else { return };
    if families.last().is_none_or(|family| family.name != name) {
        families.push(Family { name: name.to_owned(), ..Family::default() });
    }
    let Some(family) = families.last_mut() else { return };
    match what {
        "HELP" => family.help = unescape(value),
        "TYPE" => family.kind = value.to_owned(),
        "UNIT" => family.unit = value.to_owned(),
        _ => {}
    }
}

/// `_bucket{le="1"} 3 # {trace_id="…"} 0.7 1.5`, without the family's name.
fn sample(text: &str) -> Option<Sample> {
    let (suffix, rest) = text.split_at(text.find(['{', ' '])?);
    let (labels, rest) = labels(rest)?;
    let (value, exemplar) = match rest.split_once(" # ") {
        None => (rest, None),
        Some((value, exemplar)) => (value, self::exemplar(exemplar)),
    };
    let value = number(value.split_ascii_whitespace().next()?)?;
    Some(Sample { suffix: suffix.to_owned(), labels, value, exemplar })
}

fn exemplar(text: &str) -> Option<Exemplar> {
    let (labels, rest) = labels(text)?;
    let mut numbers = rest.split_ascii_whitespace().map(number);
    Some(Exemplar { labels, value: numbers.next()??, at: numbers.next().flatten() })
}

/// `{name="value",…}` and what follows it; none without a brace.
fn labels(text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else { return Some((labels, text)) };
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, value) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = value.find(|char| {
            let ends = char == '"' && !escaped;
            escaped = char == '\\' && !escaped;
            ends
        })?;
        labels.push((name.to_owned(), unescape(&value[..end])));
        rest = &value[end + 1..];
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        out.extend(match char {
            '\\' => match chars.next() {
                Some('n') => Some('\n'),
                other => other,
            },
            other => Some(other),
        });
    }
    out
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        text => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_read_with_labels_and_exemplars() {
        let text = "# HELP a Help \\\"of\\\" a.\n# TYPE a counter\na_total{x=\"1,}\\\"\\n\",y=\"\"} 17\na_total 2\n\
                    # TYPE b histogram\n# UNIT b seconds\nb_bucket{le=\"0.5\"} 3 # {trace_id=\"ab\"} 0.4 1700000000.5\n\
                    b_bucket{le=\"+Inf\"} 4\nb_sum 9.25\nb_count 4\n# EOF\n";
        let families = parse(text);
        assert_eq!(families.len(), 2);
        assert_eq!((&*families[0].help, &*families[0].kind), ("Help \"of\" a.", "counter"));
        let labels = vec![("x".to_owned(), "1,}\"\n".to_owned()), ("y".to_owned(), String::new())];
        let first = Sample { suffix: "_total".to_owned(), labels, value: 17.0, exemplar: None };
        assert_eq!(families[0].samples[0], first);
        assert_eq!((families[0].samples.len(), &*families[1].unit), (2, "seconds"));
        let exemplar = families[1].samples[0].exemplar.as_ref().expect("an exemplar");
        assert_eq!((&*exemplar.labels[0].1, exemplar.value, exemplar.at), ("ab", 0.4, Some(1_700_000_000.5)));
        assert_eq!(families[1].samples.iter().map(|one| one.value).collect::<Vec<_>>(), [3.0, 4.0, 9.25, 4.0]);
    }
}
