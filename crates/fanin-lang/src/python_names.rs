//! Names that Python has and Starlark does not, and what to write instead.

/// Sorted by name.
const NAMES: [(&str, &str); 60] = [
    ("ArithmeticError", EXCEPTION),
    ("Exception", EXCEPTION),
    ("IndexError", EXCEPTION),
    ("KeyError", EXCEPTION),
    ("TypeError", EXCEPTION),
    ("ValueError", EXCEPTION),
    ("__import__", "load(\"file.star\", \"name\") loads a name from another file"),
    ("ascii", "repr(x) shows a value as source text"),
    ("asyncio", "nothing is awaited by hand: calls run in parallel until their answers are used"),
    ("bin", "format integers with int arithmetic; there are no binary literals in responses"),
    ("bytearray", "bytes are immutable: build a list of ints, then bytes(numbers)"),
    ("callable", "type(f) == \"function\" tests for a function"),
    ("classmethod", "there are no classes: use functions, and struct(...) for data"),
    ("compile", CODE),
    ("complex", "numbers are int and float"),
    ("datetime", "req.time is the time of the request"),
    ("decimal", "numbers of an answer keep their digits as long as the flow only passes them on"),
    ("delattr", "structs are immutable: make a new one"),
    ("divmod", "(a // b, a % b)"),
    ("eval", CODE),
    ("exec", CODE),
    ("exit", "return ends the flow, abort(status, message) ends it with an error"),
    ("false", "False"),
    ("filter", "[x for x in items if condition(x)]"),
    ("format", "f\"{x}\" or \"{}\".format(x)"),
    ("frozenset", "set(items); answers and globals are frozen"),
    ("globals", CODE),
    ("hex", "\"%x\" % number"),
    ("id", "compare by value with =="),
    ("input", "the request is the flow's argument: req.query, req.json, req.headers"),
    ("isinstance", "type(x) == \"list\""),
    ("issubclass", "there are no classes"),
    ("iter", "for x in items, or list(items)"),
    ("locals", CODE),
    ("logging", "log(\"text\", level = \"info\")"),
    ("map", "[f(x) for x in items]"),
    ("math", "x // 1 rounds down; max, min, abs and sum are built in"),
    ("memoryview", "bytes"),
    ("next", "items[0], or a loop with break"),
    ("nil", "None"),
    ("null", "None"),
    ("object", "struct(name = value)"),
    ("oct", "\"%o\" % number"),
    ("open", "a folder is an upstream: [upstreams.NAME] files = \"...\""),
    ("os", "configuration is in fanin.toml; ${NAME} there reads the environment"),
    ("pow", "multiply in a loop: there is no power operator"),
    ("property", "there are no classes: use functions, and struct(...) for data"),
    ("random", "flows are deterministic: hash(text) spreads values evenly"),
    ("re", "strings have startswith, endswith, find, split, partition and replace"),
    ("requests", "load(\"@upstreams\", \"NAME\") gives an upstream, NAME.get(path) calls it"),
    ("round", "int(x + 0.5) rounds a positive number"),
    ("setattr", "structs are immutable: use a dict, or make a new struct"),
    ("slice", "items[start:stop]"),
    ("staticmethod", "there are no classes: use functions, and struct(...) for data"),
    ("super", "there are no classes: use functions, and struct(...) for data"),
    ("sys", "configuration is in fanin.toml"),
    ("time", "req.time is the time of the request"),
    ("true", "True"),
    ("undefined", "None"),
    ("vars", CODE),
];

const CODE: &str = "code cannot be made or inspected at run time";
const EXCEPTION: &str =
    "nothing is raised or caught: fail(message) fails the flow, optional = True on a call tolerates its failure";

/// What to write instead of a name that Python has, if it has it.
pub(crate) fn instead_of(name: &str) -> Option<&'static str> {
    NAMES.binary_search_by_key(&name, |(python, _)| python).ok().map(|at| NAMES[at].1)
}

/// What to write instead of a statement or an operator of Python's that the grammar does not have. `word` is the text at which the
/// parser gave up with `message`.
pub(crate) fn instead_of_syntax(word: &str, message: &str) -> Option<&'static str> {
    Some(match word {
        "while" => "for _ in range(limit): ... with break; every loop is bounded",
        "try" | "except" | "finally" | "raise" => EXCEPTION,
        "class" => "there are no classes: use functions, and struct(name = value) for data",
        "import" | "from" => "load(\"file.star\", \"name\") loads a name from another file",
        "async" | "await" => "leave it out: calls run in parallel until their answers are used",
        "yield" => "build a list and return it",
        "with" => "nothing needs closing: write the statements without it",
        "global" | "nonlocal" => "pass values as arguments and return them",
        "is" => "== and != compare values; x == None tests for None",
        "del" => "dict.pop(key) or list.pop(index) removes an element",
        "assert" => "if not condition: fail(message)",
        "**" if message.contains("expected expression") => "a | b joins two dicts",
        "**" => "multiply in a loop: there is no power operator",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted_by_key(|(name, _)| *name));
        assert_eq!(instead_of("isinstance"), Some("type(x) == \"list\""));
        assert_eq!(instead_of("len"), None);
    }
}
