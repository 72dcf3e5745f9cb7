//! The signatures of builtin functions and methods. Natives read their arguments themselves, so this table repeats
//! what their code does. A test calls each of them and compares.

use super::signature::Signature;
use crate::native::NativeFn;
use crate::value::ValueKind;

const FUNCTIONS: &[&str] = &[
    "abs(x, /)",
    "all(x: iterable, /) -> bool",
    "any(x: iterable, /) -> bool",
    "bool(x?, /) -> bool",
    "bytes(x?, /) -> bytes",
    "chr(i: int, /) -> str",
    "dict(pairs?, /, **kwargs) -> dict",
    "dir(x, /) -> list[str]",
    "enumerate(iterable: iterable, start: int | None?) -> list",
    "fail(*args, sep: str?)",
    "float(x?, /) -> float",
    "getattr(x, name: str, default?, /)",
    "hasattr(x, name: str, /) -> bool",
    "hash(x, /) -> int",
    "int(x?, base: int?) -> int",
    "json.decode(x, default?)",
    "json.encode(x, /) -> str",
    "json.encode_indent(x, prefix: str?, indent: str?) -> str",
    "json.indent(s: str, prefix: str?, indent: str?) -> str",
    "len(x, /) -> int",
    "list(x: iterable?, /) -> list",
    "max(*args, key?)",
    "min(*args, key?)",
    "ord(x, /) -> int",
    "log(text, /, *, level: str?, **kwargs) -> None",
    "print(*args, sep: str?) -> None",
    "range(start: int, stop: int?, step: int?, /) -> range",
    "repr(x, /) -> str",
    "reversed(x: iterable, /) -> list",
    "set(x: iterable?, /) -> set",
    "sorted(x: iterable, /, *, key?, reverse: bool?) -> list",
    "str(x?, /) -> str",
    "sum(iterable: iterable, start?)",
    "struct(**kwargs) -> struct",
    "tuple(x: iterable?, /) -> tuple",
    "type(x, /) -> str",
    "zip(*args) -> list",
];

const STR: &[&str] = &[
    "capitalize() -> str",
    "codepoint_ords()",
    "codepoints()",
    "count(sub: str, start: int | None?, end: int | None?, /) -> int",
    "elem_ords()",
    "elems()",
    "endswith(suffix: str | tuple, start: int | None?, end: int | None?, /) -> bool",
    "find(sub: str, start: int | None?, end: int | None?, /) -> int",
    "format(*args, **kwargs) -> str",
    "index(sub: str, start: int | None?, end: int | None?, /) -> int",
    "isalnum() -> bool",
    "isalpha() -> bool",
    "isdigit() -> bool",
    "islower() -> bool",
    "isspace() -> bool",
    "istitle() -> bool",
    "isupper() -> bool",
    "join(parts: iterable, /) -> str",
    "lower() -> str",
    "lstrip(chars: str | None?, /) -> str",
    "partition(sep: str, /) -> tuple",
    "removeprefix(prefix: str, /) -> str",
    "removesuffix(suffix: str, /) -> str",
    "replace(old: str, new: str, count: int?) -> str",
    "rfind(sub: str, start: int | None?, end: int | None?, /) -> int",
    "rindex(sub: str, start: int | None?, end: int | None?, /) -> int",
    "rpartition(sep: str, /) -> tuple",
    "rsplit(sep: str | None?, maxsplit: int?) -> list[str]",
    "rstrip(chars: str | None?, /) -> str",
    "split(sep: str | None?, maxsplit: int?) -> list[str]",
    "splitlines(keepends: bool?) -> list[str]",
    "startswith(prefix: str | tuple, start: int | None?, end: int | None?, /) -> bool",
    "strip(chars: str | None?, /) -> str",
    "title() -> str",
    "upper() -> str",
];

const BYTES: &[&str] = &["elems()"];

const LIST: &[&str] = &[
    "append(x, /) -> None",
    "clear() -> None",
    "extend(x: iterable, /) -> None",
    "index(x, start: int | None?, end: int | None?, /) -> int",
    "insert(index: int, x, /) -> None",
    "pop(index: int | None?, /)",
    "remove(x, /) -> None",
];

const DICT: &[&str] = &[
    "clear() -> None",
    "get(key, default?, /)",
    "items() -> list",
    "keys() -> list",
    "pop(key, default?, /)",
    "popitem() -> tuple",
    "setdefault(key, default?, /)",
    "update(pairs?, /, **kwargs) -> None",
    "values() -> list",
];

const SET: &[&str] = &[
    "add(x, /) -> None",
    "clear() -> None",
    "difference(*args) -> set",
    "difference_update(*args) -> None",
    "discard(x, /) -> None",
    "intersection(*args) -> set",
    "intersection_update(*args) -> None",
    "isdisjoint(x: iterable, /) -> bool",
    "issubset(x: iterable, /) -> bool",
    "issuperset(x: iterable, /) -> bool",
    "pop()",
    "remove(x, /) -> None",
    "symmetric_difference(x: iterable, /) -> set",
    "symmetric_difference_update(x: iterable, /) -> None",
    "union(*args) -> set",
    "update(*args) -> None",
];

fn in_table(table: &[&str], name: &str) -> Option<Signature> {
    table
        .iter()
        .find(|line| line.split_once('(').is_some_and(|(found, _)| found == name))
        .map(|line| Signature::parse(line))
}

/// The signature of a function as a line, for people.
pub(crate) fn signature_line(native: &NativeFn) -> Option<String> {
    let of_table = || FUNCTIONS.iter().find(|line| line.split_once('(').is_some_and(|(name, _)| name == native.name));
    native.signature.or_else(|| of_table().copied()).map(ToOwned::to_owned)
}

/// The signature of a function. One that the host adds says itself what it takes.
pub(crate) fn function(native: &NativeFn) -> Option<Signature> {
    match native.signature {
        Some(line) => Some(Signature::parse(line)),
        None => in_table(FUNCTIONS, native.name),
    }
}

/// The signature of a method; the object itself is not among its parameters.
pub(crate) fn method(kind: ValueKind, name: &str) -> Option<Signature> {
    let table = match kind {
        ValueKind::Str => STR,
        ValueKind::Bytes => BYTES,
        ValueKind::List => LIST,
        ValueKind::Dict => DICT,
        ValueKind::Set => SET,
        _ => return None,
    };
    in_table(table, name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::Kind;
    use crate::host::NoHost;
    use crate::machine::{Instance, Machine, Run};
    use crate::meter::Limits;
    use crate::native::Globals;
    use crate::program::Program;
    use crate::value::{Frozen, FrozenValue};

    /// Whether a call is refused for its arguments.
    fn refused(call: &str) -> bool {
        let text = format!("def main():\n    return {call}\n");
        let program = Program::from_source("t.star", &text).unwrap_or_else(|found| panic!("{call}: {found:?}"));
        let function = program.function("t.star", "main").expect("there");
        let limits = Limits { steps: 10_000, memory: 1 << 20, depth: 10, fibers: 10, value: 1 << 20 };
        let mut instance = Instance::new(&program, function, Vec::new(), limits).expect("no arguments");
        match instance.run(&mut Machine::new(), &mut NoHost, 10_000) {
            Run::Failed(failure) => failure.kind == Kind::Arguments,
            _ => false,
        }
    }

    fn compare(call: &str, signature: &Signature) {
        let required = signature.params.iter().filter(|param| param.required).count();
        let some = |count: usize| vec!["[]"; count].join(", ");
        let least = required.max(usize::from(matches!(signature.name.as_str(), "min" | "max")));
        assert!(!refused(&format!("{call}({})", some(least))), "{call} with {least}");
        if signature.args.is_none() {
            let most = signature.positional;
            assert!(!refused(&format!("{call}({})", some(most))), "{call} with {most}");
            assert!(refused(&format!("{call}({})", some(most + 1))), "{call} with {}", most + 1);
        }
        if required > 0 {
            assert!(refused(&format!("{call}({})", some(required - 1))), "{call} with {}", required - 1);
        }
        if signature.kwargs.is_none() {
            assert!(
                refused(&format!("{call}({}{}no_such = 1)", some(least), if least > 0 { ", " } else { "" })),
                "{call}"
            );
        }
        for (at, param) in signature.params.iter().enumerate().filter(|(at, _)| *at >= least) {
            let named = at >= signature.positional_only || signature.kwargs.is_some();
            let before = if least > 0 { ", " } else { "" };
            let call = format!("{call}({}{before}{} = None)", some(least), param.name);
            assert_eq!(!refused(&call), named, "{call}");
        }
    }

    #[test]
    fn functions_take_what_the_table_says() {
        for line in FUNCTIONS {
            let signature = Signature::parse(line);
            compare(&signature.name, &signature);
        }
    }

    #[test]
    fn methods_take_what_the_table_says() {
        for (object, table) in [("\"a\"", STR), ("b\"a\"", BYTES), ("[1]", LIST), ("{1: 2}", DICT), ("set([1])", SET)] {
            for line in table {
                let signature = Signature::parse(line);
                compare(&format!("{object}.{}", signature.name), &signature);
            }
        }
    }

    #[test]
    fn no_builtin_is_forgotten() {
        let globals = Arc::new(Globals::standard());
        for value in globals.names.values() {
            match value {
                FrozenValue::Native(native) => assert!(function(native).is_some(), "{} is in no table", native.name),
                FrozenValue::Frozen(frozen) => {
                    let Frozen::Struct(fields) = &**frozen else { continue };
                    for (_, field) in fields.iter() {
                        if let FrozenValue::Native(native) = field {
                            assert!(function(native).is_some(), "{} is in no table", native.name);
                        }
                    }
                }
                _ => {}
            }
        }
        for kind in [ValueKind::Str, ValueKind::Bytes, ValueKind::List, ValueKind::Dict, ValueKind::Set] {
            for name in globals.method_names(kind) {
                assert!(method(kind, name).is_some(), "{name} of {kind:?} is in no table");
            }
        }
    }
}
