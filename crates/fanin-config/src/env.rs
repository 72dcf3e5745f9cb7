//! `${NAME}` and `${NAME:-default}` in strings of the file.

/// Where environment variables come from.
pub(crate) type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A string with its variables put in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub text: String,
    /// Whether anything in it came from the environment or from a default.
    pub variable: bool,
}

/// What is wrong with a string, and which part of it is to blame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong<'t> {
    pub part: &'t str,
    pub message: String,
    pub hint: Option<String>,
}

/// Puts variables in: `${NAME}` must be set, `${NAME:-default}` falls back when NAME is unset or empty (as in shells),
/// `$$` is one dollar sign. What a variable holds is not expanded again.
pub(crate) fn expand<'t>(text: &'t str, env: Env<'_>) -> Result<Expanded, Wrong<'t>> {
    let mut out = String::with_capacity(text.len());
    let mut variable = false;
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let part = &rest[at..];
        if let Some(after) = part.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some(inside) = part.strip_prefix("${") {
            let Some(end) = inside.find('}') else {
                return Err(Wrong {
                    part,
                    message: "`${` without `}`".into(),
                    hint: Some("write $$ for a dollar sign".into()),
                });
            };
            let whole = &part[..end + 3];
            let (name, default) = match inside[..end].split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (&inside[..end], None),
            };
            if !is_name(name) {
                return Err(Wrong {
                    part: whole,
                    message: format!("`{name}` is not a name of an environment variable"),
                    hint: Some("write ${NAME} or ${NAME:-default}".into()),
                });
            }
            match (env(name), default) {
                (Some(value), None) => out.push_str(&value),
                (Some(value), Some(_)) if !value.is_empty() => out.push_str(&value),
                (_, Some(default)) => out.push_str(default),
                (None, None) => {
                    return Err(Wrong {
                        part: whole,
                        message: format!("the environment variable {name} is not set"),
                        hint: Some(format!("set it, or write ${{{name}:-default}}")),
                    });
                }
            }
            variable = true;
            rest = &inside[end + 1..];
        } else {
            out.push('$');
            rest = &part[1..];
        }
    }
    out.push_str(rest);
    Ok(Expanded { text: out, variable })
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("search".into()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${HOST}".into()),
            _ => None,
        }
    }

    #[test]
    fn puts_variables_in() {
        for (text, expected, variable) in [
            ("", "", false),
            ("plain", "plain", false),
            ("http://${HOST}:80", "http://search:80", true),
            ("${HOST}${HOST}", "searchsearch", true),
            ("${PORT:-80}", "80", true),
            ("${EMPTY:-80}", "80", true),
            ("<${EMPTY}>", "<>", true),
            ("${PORT:-}", "", true),
            ("${URL:-http://a:-b}", "http://a:-b", true),
            ("$$", "$", false),
            ("$${HOST}", "${HOST}", false),
            ("$HOST costs 5$", "$HOST costs 5$", false),
            ("${TRICK}", "${HOST}", true),
        ] {
            assert_eq!(expand(text, &env), Ok(Expanded { text: expected.into(), variable }), "{text}");
        }
    }

    #[test]
    fn says_which_part_is_wrong() {
        for (text, part, message) in [
            ("a ${NONE} b", "${NONE}", "NONE is not set"),
            ("a ${HOST", "${HOST", "without"),
            ("${}", "${}", "not a name"),
            ("${1A}", "${1A}", "not a name"),
            ("${A B}", "${A B}", "not a name"),
        ] {
            let wrong = expand(text, &env).unwrap_err();
            assert_eq!(wrong.part, part);
            assert!(wrong.message.contains(message), "{}", wrong.message);
        }
    }
}
