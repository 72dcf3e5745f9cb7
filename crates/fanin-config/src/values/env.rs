//! Expansion of environment variables in strings: `${NAME}` and `${NAME:-default}`.

/// Looks up an environment variable.
pub(crate) type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A string after expansion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub text: String,
    /// Whether a variable or its default is part of it. Such a header value is treated as a secret.
    pub variable: bool,
}

/// Why a string cannot be expanded, and the part that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExpandError<'t> {
    pub part: &'t str,
    pub message: String,
    pub hint: Option<String>,
}

/// Expands variables: `${NAME}` must be set, `${NAME:-default}` falls back when NAME is unset or empty (as in shells),
/// `$$` is one dollar sign. A variable's value is not expanded again.
pub(crate) fn expand<'t>(text: &'t str, env: Env<'_>) -> Result<Expanded, ExpandError<'t>> {
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
                return Err(ExpandError {
                    part,
                    message: "`${` has no closing `}`".into(),
                    hint: Some("to write a dollar sign, use $$".into()),
                });
            };
            let whole = &part[..end + 3];
            let (name, default) = match inside[..end].split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (&inside[..end], None),
            };
            if !is_name(name) {
                return Err(ExpandError {
                    part: whole,
                    message: format!("`{name}` is not a valid name of an environment variable"),
                    hint: Some("write ${NAME} or ${NAME:-default}".into()),
                });
            }
            match (env(name), default) {
                (Some(value), None) => out.push_str(&value),
                (Some(value), Some(_)) if !value.is_empty() => out.push_str(&value),
                (_, Some(default)) => out.push_str(default),
                (None, None) => {
                    return Err(ExpandError {
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
    fn expands_variables() {
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
    fn an_error_names_the_wrong_part() {
        for (text, part, message) in [
            ("a ${NONE} b", "${NONE}", "NONE is not set"),
            ("a ${HOST", "${HOST", "closing"),
            ("${}", "${}", "not a valid name"),
            ("${1A}", "${1A}", "not a valid name"),
            ("${A B}", "${A B}", "not a valid name"),
        ] {
            let error = expand(text, &env).unwrap_err();
            assert_eq!(error.part, part);
            assert!(error.message.contains(message), "{}", error.message);
        }
    }
}
