//! The formatter: what it makes of flows, and that it keeps what they mean and say.

use std::path::{Path, PathBuf};

use fanin_lang::format_source;
use starlark_syntax::codemap::CodeMap;
use starlark_syntax::lexer::{Lexer, Token};
use starlark_syntax::syntax::Dialect;

fn format(text: &str) -> String {
    format_source("t.star", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn tokens(text: &str) -> Vec<(usize, Token, usize)> {
    let codemap = CodeMap::new("t.star".to_owned(), text.to_owned());
    Lexer::new(text, &Dialect::Extended, codemap).map_while(Result::ok).collect()
}

/// The words of a text and its comments, each in their order. Left out is what depends on the layout.
fn words_and_comments(text: &str) -> (Vec<String>, Vec<String>) {
    let mut words = Vec::new();
    let mut comments = Vec::new();
    for (start, token, end) in tokens(text) {
        match token {
            Token::Comment(comment) => comments.push(comment.trim().to_owned()),
            Token::Newline | Token::Indent | Token::Dedent | Token::Semicolon => {}
            Token::Comma | Token::OpeningRound | Token::ClosingRound => {}
            Token::String(text) => words.push(format!("{text:?}")),
            Token::Bytes(bytes) => words.push(format!("{bytes:?}")),
            _ => words.push(text[start..end].to_owned()),
        }
    }
    comments.sort();
    (words, comments)
}

/// Formats a text, and finds that nothing is lost and that formatting again changes nothing.
fn holds(text: &str) -> String {
    let once = format(text);
    let twice = format(&once);
    assert_eq!(once, twice, "formatting again changes it; from:\n{text}");
    assert_eq!(words_and_comments(text), words_and_comments(&once), "from:\n{text}\nto:\n{once}");
    assert!(
        once.lines().all(|line| line == line.trim_end() || once.contains("\"\"\"") || once.contains("\\\n")),
        "{once}"
    );
    once
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn flows(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                flows(&path, found);
            }
        } else if name.ends_with(".star") {
            found.push((path.clone(), std::fs::read_to_string(&path).expect("text")));
        } else if name.ends_with(".md") {
            let text = std::fs::read_to_string(&path).expect("text");
            for block in text.split("```python\n").skip(1) {
                found.push((path.clone(), block.split("```").next().unwrap_or_default().to_owned()));
            }
        }
    }
}

/// Flows of the repository that can be parsed, those in its documentation among them.
fn all_flows() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["examples", "crates", "fuzz", "docs", "bench"] {
        flows(&root().join(folder), &mut found);
    }
    found.retain(|(_, text)| {
        format_source("t.star", text).is_ok() || fanin_lang::Program::from_source("t", text).is_ok()
    });
    found
}

#[test]
fn flows_of_the_repository_keep_their_meaning_and_comments() {
    let all = all_flows();
    assert!(all.len() > 150, "only {} flows", all.len());
    for (_, text) in &all {
        holds(text);
    }
}

#[test]
fn layouts_and_comments_at_random_places_are_kept() {
    let mut random = fastrand::Rng::with_seed(7);
    for (_, text) in all_flows() {
        for _ in 0..4 {
            let mut mixed = String::new();
            let (mut end, mut depth, mut number, mut f_strings) = (0, 0, 0, 0);
            for (start, token, token_end) in tokens(&text) {
                mixed += &text[end..start];
                // Within brackets a line may end anywhere, with a comment or without.
                if depth > 0 && f_strings == 0 && !mixed.ends_with('#') && random.u32(..6) == 0 {
                    match random.u32(..4) {
                        0 => mixed += "\n",
                        1 => mixed += "\n\n  ",
                        2 => mixed += &format!("  # behind {number}\n"),
                        _ => mixed += &format!("\n      #alone {number}\n"),
                    }
                    number += 1;
                }
                match &token {
                    Token::OpeningRound | Token::OpeningSquare | Token::OpeningCurly => depth += 1,
                    Token::ClosingRound | Token::ClosingSquare | Token::ClosingCurly => depth -= 1,
                    Token::FStringStart(_) => f_strings += 1,
                    Token::FStringEnd => f_strings -= 1,
                    Token::Newline if !text[end..start].contains('#') && random.u32(..5) == 0 => {
                        mixed += &format!("  # line {number}");
                        number += 1;
                        if random.bool() {
                            mixed += &format!("\n{}# below {number}", " ".repeat(random.usize(..9)));
                        }
                    }
                    _ => {}
                }
                mixed += text.get(start..token_end).unwrap_or_default();
                end = token_end.max(end);
            }
            holds(&mixed);
        }
    }
}

#[track_caller]
fn becomes(text: &str, wanted: &str) {
    assert_eq!(holds(text), wanted);
}

#[test]
fn spaces_and_quotes_are_those_of_starlark() {
    becomes(
        "load ( '@upstreams' ,'a' )\ndef f( x,y=1,*,z:int=2,**rest )->int :\n  return a.get('/x/{id}',params={'id':x},optional=True) [ 0 ]\n",
        "load(\"@upstreams\", \"a\")\n\ndef f(x, y = 1, *, z: int = 2, **rest) -> int:\n    \
         return a.get(\"/x/{id}\", params = {\"id\": x}, optional = True)[0]\n",
    );
    becomes("x=-1+(-y)*~z\n", "x = -1 + (-y) * ~z\n");
    becomes("x = a [1 : n+2] [:: -1]\ny = f (*a , **b)\n", "x = a[1:n + 2][::-1]\ny = f(*a, **b)\n");
    becomes("f = lambda x,y = 2 : x+y\n", "f = lambda x, y = 2: x + y\n");
    becomes("x = not a in b\ny = a not in b\nz=(1 ,)\n", "x = not a in b\ny = a not in b\nz = (1,)\n");
    becomes("x = 1 ; y = 2 ;\nif x : y = 3\n", "x = 1\ny = 2\nif x:\n    y = 3\n");
    becomes("x = a + \\\n    b\n", "x = a + b\n");
    becomes("x = f'{a  +  b}'\r\ny = 1", "x = f'{a  +  b}'\ny = 1\n");
    becomes("", "");
    becomes("# only a comment", "# only a comment\n");
}

#[test]
fn long_calls_have_an_argument_a_line() {
    let long = "a".repeat(60);
    becomes(
        &format!(
            "def f(x):\n    y = catalog.get(\"/products\", query = {{\"ids\": {long}}}, optional = True, ok = [404])\n"
        ),
        &format!(
            "def f(x):\n    y = catalog.get(\n        \"/products\",\n        query = {{\"ids\": {long}}},\n        \
             optional = True,\n        ok = [404],\n    )\n"
        ),
    );
    becomes("x = json.encode({'a':1,})\n", "x = json.encode({\n    \"a\": 1,\n})\n");
    becomes("x = [\n1,\n2,\n]\ny = [1,\n2]\n", "x = [\n    1,\n    2,\n]\ny = [1, 2]\n");
    becomes(
        &format!("x = [part.split({long}) for part in text if part.{long}]\n"),
        &format!("x = [\n    part.split({long})\n    for part in text\n    if part.{long}\n]\n"),
    );
}

#[test]
fn long_conditions_are_wrapped() {
    let (a, b) = ("a".repeat(50), "b".repeat(50));
    becomes(
        &format!("if {a} and not {b} or c:\n    x = 1\n"),
        &format!("if (\n    {a} and not {b}\n    or c\n):\n    x = 1\n")
            .replace(&format!("    {a} and not {b}\n"), &format!("    {a}\n        and not {b}\n")),
    );
    becomes(
        &format!("def f():\n    return {a} if x else {b}\n"),
        &format!("def f():\n    return (\n        {a}\n        if x\n        else {b}\n    )\n"),
    );
    becomes(&format!("x = {a} + f({b}, 1)\n"), &format!("x = {a} + f(\n    {b},\n    1,\n)\n"));
}

#[test]
fn comments_stay_with_what_they_are_about() {
    becomes(
        "#!x\n#one\nx = 1 # two\ndef f():\n\n  #three\n  return [ # four\n    1, # five\n    # six\n    2 # seven\n    # eight\n  ]\n  #nine\n#ten\ny = 1\n",
        "#!x\n# one\nx = 1  # two\n\ndef f():\n    # three\n    return [  # four\n        1,  # five\n        # six\n        \
         2,  # seven\n        # eight\n    ]\n    # nine\n\n# ten\ny = 1\n",
    );
    becomes(
        "if (a # one\n  and b # two\n  ):\n  pass\n# three\nelse:\n  pass\n",
        "if (\n    a  # one\n    and b  # two\n):\n    pass\n# three\nelse:\n    pass\n",
    );
    let long = "a".repeat(50);
    let silenced = format!("x = f({long}, {long})  # fanin: allow(unused-load)\n");
    becomes(&silenced, &silenced);
}

#[test]
fn empty_lines_are_around_definitions_and_loads() {
    becomes(
        "\n\n\"\"\"Doc.\"\"\"\nload('a.star', 'a')\nload('b.star', 'b')\nX = 1\n\n\n\nY = 2\ndef f():\n\n    pass\n\n\n    return 1\n# of g\ndef g():\n    pass\nZ = 1\n",
        "\"\"\"Doc.\"\"\"\n\nload(\"a.star\", \"a\")\nload(\"b.star\", \"b\")\n\nX = 1\n\nY = 2\n\ndef f():\n    pass\n\n    \
         return 1\n\n# of g\ndef g():\n    pass\n\nZ = 1\n",
    );
}

#[test]
fn what_cannot_be_parsed_is_told() {
    let error = format_source("t.star", "def f(:\n").expect_err("it is wrong");
    assert_eq!((error.position.line, error.position.file.as_str()), (1, "t.star"));
    let deep = format!("x = {}1{}\n", "(".repeat(500), ")".repeat(500));
    assert!(format_source("t.star", &deep).is_err());
}
