//! Checks of SQL text that need no database.

/// First words of statements that change data.
const WRITING: [&str; 15] = [
    "insert", "update", "delete", "merge", "replace", "truncate", "create", "alter", "drop", "rename", "call", "do",
    "grant", "revoke", "load",
];
/// First words of statements that change the state of the connection, which outlives the call.
const SESSION: [&str; 20] = [
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
    "abort",
    "end",
    "deallocate",
    "discard",
    "xa",
];
/// First words of statements that leave the session as it was, unless they call a function that changes it.
const PLAIN: [&str; 10] =
    ["select", "insert", "update", "delete", "merge", "replace", "with", "values", "table", "truncate"];

/// The first word of a statement, without comments and opening brackets.
fn first_word(sql: &str) -> &str {
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
    let end = rest.bytes().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(rest.len());
    &rest[..end]
}

/// Whether a statement can change its session, as far as its text shows: procedures and blocks, statements that define
/// something, the database's own functions for settings and locks, variables of MySQL.
pub fn can_change_session(sql: &str) -> bool {
    let word = first_word(sql);
    if !PLAIN.iter().any(|plain| word.eq_ignore_ascii_case(plain)) {
        return true;
    }
    let text = sql.as_bytes();
    let is_at = |start: Option<usize>, name: &str| {
        let found = start.and_then(|start| text.get(start..start + name.len()));
        found.is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    };
    text.iter().enumerate().any(|(at, byte)| match byte {
        b'_' => [("set_config", 3), ("get_lock", 3), ("pg_advisory_", 2), ("pg_try_advisory_", 2)]
            .iter()
            .any(|(name, before)| is_at(at.checked_sub(*before), name)),
        b':' => is_at(Some(at), ":="),
        b'@' => is_at(text[..at].trim_ascii_end().len().checked_sub(4), "into"),
        _ => false,
    })
}

/// Checks the text of a statement, from `fanin.toml` or a flow. The database checks the rest: a statement without `writes` runs
/// in a read-only transaction.
///
/// # Errors
/// The problem, and a hint what to write.
pub fn check_sql(sql: &str, writes: bool) -> Result<(), (String, &'static str)> {
    let word = first_word(sql).to_ascii_lowercase();
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
            ("  -- a comment\n (SELECT 1)", "SELECT"),
            ("/* a */ /* b */insert into x", "insert"),
            ("-- nothing", ""),
            ("", ""),
        ] {
            assert_eq!(first_word(sql), word, "{sql}");
        }
        for sql in ["select 1", "With a as (select 1) table a", "insert into targets_configured values ('a@b', ':')"] {
            assert!(!can_change_session(sql), "{sql}");
        }
        for sql in [
            "call p()",
            "do $$ begin end $$",
            "create temp table a (id int)",
            "select SET_config('a', 'b', false)",
            "select pg_catalog.pg_try_advisory_lock(1)",
            "select pg_advisory_lock_shared(1)",
            "select get_lock('a', 0)",
            "select @a := 1",
            "select 1 INTO\n@a",
            "_",
        ] {
            assert!(can_change_session(sql), "{sql}");
        }
        assert!(check_sql("END", true).unwrap_err().0.contains("state of the connection"));
        assert!(check_sql("select 1", false).is_ok());
        assert!(check_sql("with a as (select 1) select * from a", false).is_ok());
        assert!(check_sql("update a set b = 1", true).is_ok());
        assert!(check_sql("update a set b = 1", false).unwrap_err().0.contains("read-only"));
        assert!(check_sql("begin", true).unwrap_err().0.contains("state of the connection"));
        assert!(check_sql(" ", false).is_err());
    }
}
