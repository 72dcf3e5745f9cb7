//! What is being written at a place, found from the text before it, which need not be a program yet.

/// What is being written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// The module of a `load`.
    Module,
    /// A name that a `load` gives.
    Loaded(String),
    /// An attribute or method of a name.
    Member(String),
    /// A key of a dict in a call, below other keys.
    Key { callee: String, path: Vec<String>, quoted: bool },
    /// A name, perhaps that of an argument of a call.
    Name(Option<String>),
    /// Text or a comment.
    Nothing,
}

/// An open bracket.
struct Open {
    bracket: u8,
    /// What is called: `catalog.get`.
    callee: String,
    /// How many commas came.
    commas: usize,
    /// The last text that was written in it.
    text: String,
    /// Whether the last thing in it is a colon.
    colon: bool,
}

/// Finds what is being written at the end of `before`.
pub(crate) fn context(before: &str) -> Context {
    let bytes = before.as_bytes();
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    let mut string_open = false;
    while at < bytes.len() {
        match bytes[at] {
            b'#' => match before[at..].find('\n') {
                Some(newline) => at += newline,
                None => return Context::Nothing,
            },
            quote @ (b'"' | b'\'') => {
                let triple = [quote; 3];
                let mark: &[u8] = if bytes[at..].starts_with(&triple) { &triple } else { &triple[..1] };
                let start = at + mark.len();
                let mut end = start;
                loop {
                    if end >= bytes.len() {
                        string_open = mark.len() == 1 || open.is_empty();
                        if mark.len() == 3 {
                            return Context::Nothing;
                        }
                        break;
                    }
                    if bytes[end..].starts_with(mark) || mark.len() == 1 && bytes[end] == b'\n' {
                        break;
                    }
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                if string_open {
                    break;
                }
                let text = before.get(start..end.min(before.len())).unwrap_or_default();
                if let Some(open) = open.last_mut() {
                    open.text = text.to_owned();
                    open.colon = false;
                }
                at = end + mark.len();
                continue;
            }
            bracket @ (b'(' | b'[' | b'{') => {
                let callee = if bracket == b'(' { path_before(&before[..at]) } else { String::new() };
                open.push(Open { bracket, callee, commas: 0, text: String::new(), colon: false });
            }
            b')' | b']' | b'}' => drop(open.pop()),
            b',' => {
                if let Some(open) = open.last_mut() {
                    open.commas += 1;
                    open.text.clear();
                    open.colon = false;
                }
            }
            b':' => {
                if let Some(open) = open.last_mut() {
                    open.colon = true;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if let Some(last) = open.last().filter(|last| last.bracket == b'(' && last.callee == "load") {
        return match (string_open, last.commas) {
            (false, _) => Context::Nothing,
            (true, 0) => Context::Module,
            (true, _) => Context::Loaded(first_text(before)),
        };
    }
    let key = || {
        let call = open.iter().rposition(|open| open.bracket == b'(')?;
        let inner = &open[call + 1..];
        let last = inner.last().filter(|last| last.bracket == b'{' && !last.colon)?;
        // The keys under which the inner dicts are.
        let keys = inner[..inner.len() - 1].iter().filter(|open| open.bracket == b'{' && open.colon);
        let path = keys.map(|open| open.text.clone()).collect();
        let _ = last;
        Some(Context::Key { callee: open[call].callee.clone(), path, quoted: string_open })
    };
    if let Some(key) = key() {
        return key;
    }
    if string_open {
        return Context::Nothing;
    }
    let word =
        before.rfind(|c: char| !is_word(c)).map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    match before[..word].strip_suffix('.') {
        Some(object) => Context::Member(path_before(object)),
        None => {
            let call = open.last().filter(|open| open.bracket == b'(' && !open.callee.is_empty());
            Context::Name(call.map(|call| call.callee.clone()))
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The dotted name at the end of a text.
fn path_before(text: &str) -> String {
    let text = text.trim_end();
    let start = text
        .rfind(|c: char| !is_word(c) && c != '.')
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    text[start..].to_owned()
}

/// The first text of the last `load` of a text.
fn first_text(before: &str) -> String {
    let load = before.rfind("load").map_or("", |at| &before[at..]);
    let quoted = load.find(['"', '\'']).map_or("", |at| &load[at..]);
    let quote = quoted.chars().next().unwrap_or('"');
    quoted.trim_start_matches(quote).split(quote).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_found() {
        let name = |call: &str| Context::Name(Some(call.to_owned()));
        assert_eq!(context("load(\""), Context::Module);
        assert_eq!(context("load(\"@upstreams\", \"a\", \"b"), Context::Loaded("@upstreams".to_owned()));
        assert_eq!(context("x = catalog.ge"), Context::Member("catalog".to_owned()));
        assert_eq!(context("x = catalog."), Context::Member("catalog".to_owned()));
        assert_eq!(context("x = catalog.get(\"/a\", op"), name("catalog.get"));
        assert_eq!(context("x = f(catalog.get(\"/a\"), "), name("f"));
        assert_eq!(context("x = y"), Context::Name(None));
        assert_eq!(context("x = \"catalog."), Context::Nothing);
        assert_eq!(context("# catalog."), Context::Nothing);
        assert_eq!(context("x = \"\"\"a\nb."), Context::Nothing);
        let key = |path: &[&str], quoted| Context::Key {
            callee: "users.Get".to_owned(),
            path: path.iter().map(|name| (*name).to_owned()).collect(),
            quoted,
        };
        assert_eq!(context("users.Get({\""), key(&[], true));
        assert_eq!(context("users.Get({\"a\": 1, "), key(&[], false));
        assert_eq!(context("users.Get({\"a\": {\"b\": [{\""), key(&["a", "b"], true));
        assert_eq!(context("é = ü."), Context::Member(String::new()));
    }
}
