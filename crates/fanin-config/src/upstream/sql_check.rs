//! Checks of SQL text that need no database.

/// First words of statements that change data.
const WRITING: [&str; 15] = [
    "insert", "update", "delete", "merge", "replace", "truncate", "create", "alter", "drop", "rename", "call", "do",
    "grant", "revoke", "load",
];
/// First words of statements that change the state of the connection, which outlives the call.
const SESSION: [&str; 15] = [
    "begin",
    "start",
    "commit",
    "rollback",
    "savepoint",
    "release",
    "set",
    "reset",
    "listen",
    "lock",
    "unlock",
    "use",
    "declare",
    "prepare",
    "copy",
];

/// The first word of a statement, without comments and opening brackets.
fn first_word(sql: &str) -> String {
    let mut rest = sql.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else {
            break;
        }
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    }
    rest.chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_ascii_lowercase()
}

/// Checks the text of a statement, from `fanin.toml` or a flow. The database checks the rest: a statement without `writes` runs
/// in a read-only transaction.
///
/// # Errors
/// The problem, and a hint what to write.
pub fn check_sql(sql: &str, writes: bool) -> Result<(), (String, &'static str)> {
    let word = first_word(sql);
    if word.is_empty() {
        return Err(("is empty".to_owned(), "write one statement, such as \"select 1\""));
    }
    if SESSION.contains(&word.as_str()) {
        let what = format!("`{word}` changes the state of the connection, which other calls use, too");
        return Err((what, "each call is its own transaction; combine what belongs together into one statement"));
    }
    if !writes && WRITING.contains(&word.as_str()) {
        return Err((
            format!("`{word}` changes data, but the statement is read-only"),
            "set writes = true on the statement; in a flow, call execute()",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_word_decides() {
        for (sql, word) in [
            ("select 1", "select"),
            ("  -- a comment\n (SELECT 1)", "select"),
            ("/* a */ /* b */insert into x", "insert"),
            ("-- nothing", ""),
            ("", ""),
        ] {
            assert_eq!(first_word(sql), word, "{sql}");
        }
        assert!(check_sql("select 1", false).is_ok());
        assert!(check_sql("with a as (select 1) select * from a", false).is_ok());
        assert!(check_sql("update a set b = 1", true).is_ok());
        assert!(check_sql("update a set b = 1", false).unwrap_err().0.contains("read-only"));
        assert!(check_sql("begin", true).unwrap_err().0.contains("state of the connection"));
        assert!(check_sql(" ", false).is_err());
    }
}
