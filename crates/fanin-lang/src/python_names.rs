//! What to write instead of Python that the language does not have: names, methods, keywords and operators.
//!
//! The compiler and `check` put these texts into the hints of their errors.

use crate::value::ValueKind;

/// Builtin names of Python.
const NAMES: &[(&str, &str)] = &[
    ("ArithmeticError", "there are no exceptions: fail(message) or abort(status) ends the flow"),
    ("AttributeError", "there are no exceptions: hasattr(x, name) tests, getattr(x, name, default) falls back"),
    ("Exception", "there are no exceptions: fail(message) or abort(status) ends the flow"),
    ("IndexError", "there are no exceptions: test with len(x) first"),
    ("KeyError", "there are no exceptions: d.get(key, default) falls back"),
    ("TypeError", "there are no exceptions: fail(message) or abort(status) ends the flow"),
    ("ValueError", "there are no exceptions: fail(message) or abort(status) ends the flow"),
    ("RuntimeError", "there are no exceptions: fail(message) or abort(status) ends the flow"),
    ("StopIteration", "there are no iterators: loop with for"),
    ("__file__", "flows do not see files"),
    ("__import__", "load(\"file.star\", \"name\") at the top of the file"),
    ("__name__", "the file's functions are named in fanin.toml"),
    ("ascii", "repr(x)"),
    ("bin", "\"%o\" and \"%x\" format in base 8 and 16; there is no base 2"),
    ("asyncio", "leave it out: calls run in parallel until their answers are used"),
    ("breakpoint", "print(x) writes to the log"),
    ("bytearray", "bytes(x); bytes do not change"),
    ("callable", "type(f) == \"function\""),
    ("classmethod", "there are no classes: struct(a = 1), dicts and functions"),
    ("compile", "there is no code at run time: write a function"),
    ("complex", "there are no complex numbers"),
    ("datetime", "req.time is the time of the request in milliseconds since 1970"),
    ("decimal", "numbers of an answer keep their digits as long as the flow only passes them on"),
    ("delattr", "structs do not change: make a new one with struct(a = 1)"),
    ("divmod", "(a // b, a % b)"),
    ("eval", "json.decode(text) reads data; code is never made at run time"),
    ("exec", "there is no code at run time: write a function"),
    ("exit", "fail(message) or abort(status) ends the flow"),
    ("false", "False"),
    ("filter", "[x for x in items if f(x)]"),
    ("format", "\"{}\".format(x), f\"{x}\" or \"%d\" % x"),
    ("frozenset", "set(x); values of a module are frozen by themselves"),
    ("functools", "write the loop: for x in items: total += x"),
    ("globals", "name what is needed: variables of the file are seen by its functions"),
    ("help", "dir(x) lists names"),
    ("hex", "\"%x\" % n"),
    ("id", "compare values with ==; they have no identity"),
    ("input", "req.query, req.params and req.body are the input of a flow"),
    ("isinstance", "type(x) == \"list\""),
    ("issubclass", "there are no classes: type(x) == \"dict\""),
    ("iter", "loop with for: lists, dicts, sets, tuples and ranges can be looped over"),
    ("itertools", "comprehensions with several for clauses"),
    ("locals", "name what is needed, or keep it in a dict"),
    ("logging", "log(\"text\", level = \"info\")"),
    ("map", "[f(x) for x in items]"),
    ("math", "+ - * / // % on numbers; there are no other functions of math"),
    ("memoryview", "bytes(x)"),
    ("next", "items[0], or loop with for and break"),
    ("nil", "None"),
    ("null", "None"),
    ("object", "struct(a = 1) or a dict"),
    ("oct", "\"%o\" % n"),
    ("open", "an upstream; a folder of files is one too: files = \"...\""),
    ("os", "flows do not see the system: ${NAME} in fanin.toml reads the environment"),
    ("pow", "multiply: x * x; for powers of two shift: 1 << n"),
    ("print_exc", "failures are logged with their line"),
    ("property", "there are no classes: struct(a = 1), dicts and functions"),
    ("quit", "fail(message) or abort(status) ends the flow"),
    ("random", "hash.crc32(text) of something that the request brings, such as a user's id"),
    ("re", "there are no regular expressions: split, partition, startswith, find"),
    ("reduce", "write the loop: for x in items: total += x"),
    ("requests", "load(\"@upstreams\", \"name\"), then name.get(\"/path\")"),
    ("round", "int(x + 0.5), for x >= 0"),
    ("self", "there are no classes: functions take dicts and structs"),
    ("setattr", "structs do not change: make a new one with struct(a = 1), or use a dict"),
    ("slice", "x[start:stop:step]"),
    ("staticmethod", "there are no classes: write a function"),
    ("super", "there are no classes: write a function"),
    ("sys", "flows do not see the system"),
    ("time", "req.time is the time of the request in milliseconds since 1970"),
    ("true", "True"),
    ("undefined", "None"),
    ("vars", "dir(x) lists names, getattr(x, name) takes one"),
];

/// Methods of Python's types.
const METHODS: &[(ValueKind, &str, &str)] = &[
    (ValueKind::Str, "casefold", "s.lower()"),
    (ValueKind::Str, "center", "\" \" * n + s"),
    (ValueKind::Str, "encode", "bytes(s)"),
    (ValueKind::Str, "format_map", "s.format(**d)"),
    (ValueKind::Str, "isdecimal", "s.isdigit()"),
    (ValueKind::Str, "isnumeric", "s.isdigit()"),
    (ValueKind::Str, "ljust", "s + \" \" * (n - len(s))"),
    (ValueKind::Str, "rjust", "\" \" * (n - len(s)) + s"),
    (ValueKind::Str, "swapcase", "s.upper() or s.lower()"),
    (ValueKind::Str, "translate", "s.replace(a, b)"),
    (ValueKind::Str, "zfill", "\"0\" * (n - len(s)) + s"),
    (ValueKind::Bytes, "decode", "str(b)"),
    (ValueKind::Bytes, "hex", "load(\"@hash\", ...) gives digests in hexadecimal"),
    (ValueKind::List, "add", "list.append(x)"),
    (ValueKind::List, "copy", "list(x)"),
    (ValueKind::List, "count", "len([x for x in items if x == wanted])"),
    (ValueKind::List, "push", "list.append(x)"),
    (ValueKind::List, "reverse", "reversed(x) gives a new list"),
    (ValueKind::List, "sort", "sorted(x) gives a new list"),
    (ValueKind::Dict, "copy", "dict(x)"),
    (ValueKind::Dict, "fromkeys", "{key: value for key in keys}"),
    (ValueKind::Dict, "has_key", "key in d"),
    (ValueKind::Dict, "iteritems", "d.items()"),
    (ValueKind::Set, "append", "set.add(x)"),
    (ValueKind::Set, "copy", "set(x)"),
    (ValueKind::Tuple, "append", "t + (x,) gives a new tuple"),
    (ValueKind::Tuple, "count", "len([x for x in t if x == wanted])"),
    (ValueKind::Tuple, "index", "list(t).index(x)"),
];

/// Reserved words of Python.
const KEYWORDS: &[(&str, &str)] = &[
    ("as", "load(\"file.star\", alias = \"name\") gives another name"),
    ("assert", "if not x: fail(message)"),
    ("async", "leave it out: calls run in parallel until their answers are used"),
    ("await", "leave it out: calls run in parallel until their answers are used"),
    ("class", "struct(a = 1), dicts and functions"),
    ("del", "d.pop(key) or list.pop(index)"),
    ("except", "optional = True or default = x in the call, answer.failed afterwards"),
    ("finally", "optional = True or default = x in the call, answer.failed afterwards"),
    ("from", "load(\"file.star\", \"name\")"),
    ("global", "pass the value as an argument and return the new one"),
    ("import", "load(\"file.star\", \"name\")"),
    ("is", "== and !=; x == None tests for None"),
    ("nonlocal", "change a dict or list, or return the new value"),
    ("raise", "fail(message) or abort(status)"),
    ("try", "optional = True or default = x in the call, answer.failed afterwards"),
    ("while", "for i in range(n), with break; every loop is bounded"),
    ("with", "nothing needs closing: write the calls"),
    ("yield", "return a list: [f(x) for x in items]"),
];

/// What to write instead of a name that is not defined.
pub(crate) fn instead_of_name(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(python, _)| *python == name).map(|(_, instead)| *instead)
}

/// What to write instead of a method that a type does not have.
pub(crate) fn instead_of_method(kind: ValueKind, name: &str) -> Option<&'static str> {
    METHODS.iter().find(|(of, python, _)| *of == kind && *python == name).map(|(_, _, instead)| *instead)
}

/// Attributes that the answers of HTTP libraries have.
const ANSWER: &[(&str, &str)] = &[
    ("status_code", "answer.status"),
    ("code", "answer.status"),
    ("body", "the answer itself, which is its JSON value; answer.text is the body as text"),
    ("content", "the answer itself, which is its JSON value; answer.text is the body as text"),
    ("data", "the answer itself, which is its JSON value; answer.text is the body as text"),
    ("json", "the answer itself, which is its JSON value; answer.text is the body as text"),
    ("ok", "not answer.failed; other statuses than 2xx are accepted with ok = [404] in the call"),
    ("raise_for_status", "nothing: a call with an error status ends the flow"),
];

/// What to write instead of an attribute that an answer does not have.
pub(crate) fn instead_of_answer(name: &str) -> Option<&'static str> {
    ANSWER.iter().find(|(other, _)| *other == name).map(|(_, instead)| *instead)
}

/// What to write instead of a reserved word.
pub(crate) fn instead_of_keyword(word: &str) -> Option<&'static str> {
    KEYWORDS.iter().find(|(python, _)| *python == word).map(|(_, instead)| *instead)
}

/// What to write instead of syntax that the parser stopped at. `span` is the token that it did not expect.
pub(crate) fn instead_of_syntax(text: &str, span: (u32, u32)) -> Option<&'static str> {
    let (from, to) = (span.0 as usize, span.1 as usize);
    let token = text.get(from..to)?.trim();
    let line = text.get(text[..from].rfind('\n').map_or(0, |at| at + 1)..from)?;
    let before = line.trim_end();
    let after = text.get(to..)?.lines().next().unwrap_or_default();
    let statement = line.trim_start();
    Some(match token {
        "**" if before.ends_with(['{', ',']) => "a | b joins two dicts",
        "**" => "multiply: x * x; for powers of two shift: 1 << n",
        ":" if after.starts_with('=') => "assign on a line of its own",
        "=" if before.ends_with(':') => "assign on a line of its own",
        "=" if statement.starts_with("if ") || statement.starts_with("elif ") => "== compares, = assigns",
        "&" if before.ends_with('&') => "and",
        "|" if before.ends_with('|') => "or",
        "<" | ">" | "<=" | ">=" | "==" | "!=" => "a < b and b < c",
        "in" | "not" if statement.contains(" in ") => "a in b and b in c",
        "if" if statement.starts_with("else") => "elif",
        "for" if !before.is_empty() => "[f(x) for x in items]; a comprehension has brackets of its own",
        "@" => "call the function; there are no decorators",
        "!" if after.starts_with('=') => "!=",
        "!" => "not x",
        "?" => "a if condition else b",
        "`" | "$" => "a string is written \"text\"",
        _ if statement.trim_end() == "print" => "print(x)",
        _ if statement.starts_with("match ") => "if, elif, else",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::Globals;

    #[test]
    fn tables_name_only_what_the_language_lacks() {
        let globals = Globals::standard();
        for (name, _) in NAMES {
            assert!(!globals.names.contains_key(*name), "{name} is a builtin");
        }
        for (kind, name, _) in METHODS {
            assert!(globals.method(*kind, name).is_none(), "{kind:?} has {name}");
        }
    }
}
