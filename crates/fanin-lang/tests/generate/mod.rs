//! Programs made up at random, for properties that hold for all programs.
//!
//! Longer than 500 lines because the generator is one recursive writer of programs.

use std::fmt::Write as _;

use fanin_lang::testing::Answer;

/// Writes a program from a tape of choices, so that a shorter tape is a smaller program.
struct Writer<'a> {
    tape: &'a [u32],
    at: usize,
    out: String,
    /// Names in scope: numbers, lists, answers, dicts.
    numbers: Vec<String>,
    lists: Vec<String>,
    answers: Vec<String>,
    dicts: Vec<String>,
    functions: usize,
    next: usize,
    depth: usize,
    /// Calls so far, which number the paths.
    calls: usize,
    /// Whether all loops go through a number of items that is written there, or else through [`ITEMS`].
    even: bool,
}

impl Writer<'_> {
    fn choose(&mut self, count: u32) -> u32 {
        let choice = self.tape.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        choice % count
    }

    fn name(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{}", self.next)
    }

    fn one_of(&mut self, names: &[String]) -> Option<String> {
        if names.is_empty() {
            return None;
        }
        let at = self.choose(names.len() as u32);
        Some(names[at as usize].clone())
    }

    fn service(&mut self) -> &'static str {
        ["a", "b", "c"][self.choose(3) as usize]
    }

    fn answer(&mut self) -> String {
        self.depth += 1;
        let choice = if self.depth > 4 { 0 } else { self.choose(9) };
        let text = match choice {
            0 | 1 => {
                let names = self.answers.clone();
                self.one_of(&names).unwrap_or_else(|| self.call())
            }
            2..=5 => self.call(),
            6 if !self.lists.is_empty() => {
                let list = self.list();
                let service = self.service();
                self.calls += 1;
                format!("{service}.get('/{}', query = {{'l': {list}}})", self.calls)
            }
            7 => {
                let answer = self.answer();
                format!("{answer}['items'][{}]", ["0", "1", "-1", "0", "1", "0", "1", "2"][self.choose(8) as usize])
            }
            _ => {
                let cond = self.truth();
                let (yes, no) = (self.answer(), self.answer());
                format!("({yes} if {cond} else {no})")
            }
        };
        self.depth -= 1;
        text
    }

    fn call(&mut self) -> String {
        let service = self.service();
        self.calls += 1;
        let n = self.calls;
        match self.choose(10) {
            9 => format!("{service}.get('/fail{n}', optional = True)"),
            1 if n.is_multiple_of(5) => format!("{service}.get('/fail{n}')"),
            2 => {
                let number = self.number();
                format!("{service}.get('/{n}', query = {{'q': {number}}})")
            }
            3 => {
                let answer = self.answer();
                format!("{service}.get('/{n}', query = {{'q': {answer}['n']}}, optional = True)")
            }
            _ => format!("{service}.get('/{n}')"),
        }
    }

    fn number(&mut self) -> String {
        self.depth += 1;
        let choice = if self.depth > 4 { self.choose(3) } else { self.choose(15) };
        let text = match choice {
            0 => self.choose(5).to_string(),
            1 | 2 => {
                let names = self.numbers.clone();
                self.one_of(&names).unwrap_or_else(|| "3".to_owned())
            }
            3..=5 => {
                let answer = self.answer();
                format!("{answer}['n']")
            }
            6 => {
                let (x, y) = (self.number(), self.number());
                format!("({x} {} {y})", ["+", "-", "*"][self.choose(3) as usize])
            }
            7 => {
                let list = self.list();
                format!("len({list})")
            }
            8 | 9 if self.functions > 0 => {
                let function = self.choose(self.functions as u32);
                let (x, l) = (self.number(), self.list());
                format!("f{function}({x}, {l})")
            }
            10 => {
                let list = self.list();
                format!("({list} + [1, 2])[{}]", self.choose(3))
            }
            11 => {
                let dict = self.dict();
                format!("{dict}.get('k', 3)")
            }
            12 => {
                let (cond, x, y) = (self.truth(), self.number(), self.number());
                format!("({x} if {cond} else {y})")
            }
            13 => {
                let answer = self.answer();
                format!(
                    "{answer}{}",
                    ["['n']", ".get('n', 1)", ".get('n')", "['n']", "['nope']", "['none']", "['items']"]
                        [self.choose(7) as usize]
                )
            }
            _ => {
                let answer = self.answer();
                format!("({answer} or {{'n': 7}})['n']")
            }
        };
        self.depth -= 1;
        text
    }

    fn truth(&mut self) -> String {
        self.depth += 1;
        let text = match self.choose(7) {
            0 => {
                let (x, y) = (self.number(), self.number());
                format!("{x} {} {y}", ["==", "!=", "=="][self.choose(3) as usize])
            }
            1 => {
                let (x, l) = (self.number(), self.list());
                format!("{x} in {l}")
            }
            2 => {
                let answer = self.answer();
                format!("{answer}['ok']")
            }
            3 => {
                let x = self.number();
                format!("not {x}")
            }
            4 => {
                let answer = self.answer();
                format!("{answer} == None")
            }
            5 => {
                let (x, y) = (self.number(), self.number());
                format!("({x} and {y})")
            }
            _ => {
                let x = self.number();
                format!("{x} == 2")
            }
        };
        self.depth -= 1;
        text
    }

    fn list(&mut self) -> String {
        self.depth += 1;
        let choice = if self.depth > 4 { self.choose(3) } else { self.choose(11) };
        let text = match choice {
            0 => "[1, 2, 3]".to_owned(),
            1 | 2 => {
                let names = self.lists.clone();
                self.one_of(&names).unwrap_or_else(|| "[0]".to_owned())
            }
            3 => {
                let (x, y) = (self.number(), self.number());
                format!("[{x}, {y}]")
            }
            4..=7 => self.comprehension(),
            8 if self.functions > 0 => {
                let function = self.choose(self.functions as u32);
                let (x, l) = (self.number(), self.list());
                format!("g{function}({x}, {l})")
            }
            9 => {
                let list = self.list();
                format!("sorted({list}, key = lambda v: str(v))")
            }
            _ => {
                let (x, y) = (self.list(), self.list());
                format!("({x} + {y})")
            }
        };
        self.depth -= 1;
        text
    }

    /// Items of which the number is the same in each run.
    fn items(&mut self) -> String {
        // A text is not looked into before the program runs.
        if self.choose(3) == 2 { format!("range(int('{ITEMS}'))") } else { "range(3)".to_owned() }
    }

    /// What a loop goes through: one time in `times` a list.
    fn over(&mut self, usual: &str, times: u32) -> String {
        let list = self.choose(times) == 0;
        match (self.even, list) {
            (true, _) => self.items(),
            (false, true) => self.list(),
            (false, false) => usual.to_owned(),
        }
    }

    /// An annotation behind a parameter, for two of three.
    fn annotation(&mut self, types: &[&str]) -> String {
        match self.choose(3) {
            0 => String::new(),
            _ => format!(": {}", types[self.choose(types.len() as u32) as usize]),
        }
    }

    fn comprehension(&mut self) -> String {
        let over = self.over("range(3)", 3);
        let name = self.name("i");
        self.numbers.push(name.clone());
        let mut clauses = String::new();
        if self.choose(3) == 0 {
            let cond = self.truth();
            let _ = write!(clauses, " if {cond}");
        }
        let mut pushed = 1;
        if self.choose(5) == 0 {
            let inner = if self.even { self.items() } else { self.list() };
            let second = self.name("j");
            let _ = write!(clauses, " for {second} in {inner}");
            self.numbers.push(second);
            pushed = 2;
            if self.choose(3) == 0 {
                let cond = self.truth();
                let _ = write!(clauses, " if {cond}");
            }
        }
        // The path depends on the item, so that items ask for different things.
        let service = self.service();
        self.calls += 1;
        let element = match self.choose(4) {
            0 => format!("{service}.get('/{}%s' % str({name}))['n']", self.calls),
            1 => format!("({service}.get('/{}%s' % str({name}))['n'] + 1)", self.calls),
            _ => self.number(),
        };
        for _ in 0..pushed {
            self.numbers.pop();
        }
        format!("[{element} for {name} in {over}{clauses}]")
    }

    fn dict(&mut self) -> String {
        self.depth += 1;
        let text = match if self.depth > 4 { 0 } else { self.choose(4) } {
            0 => {
                let names = self.dicts.clone();
                self.one_of(&names).unwrap_or_else(|| "{'k': 1}".to_owned())
            }
            1 => {
                let (x, y) = (self.number(), self.list());
                format!("{{'k': {x}, 'l': {y}}}")
            }
            2 => {
                let (x, list) = (self.number(), if self.even { self.items() } else { self.list() });
                format!("({{str(k): {x} for k in {list}}} | {{'k': 0}})")
            }
            _ => {
                let answer = self.answer();
                format!("({{'k': 1}} | dict({answer} or {{}}))")
            }
        };
        self.depth -= 1;
        text
    }

    fn block(&mut self, indent: usize, statements: u32) {
        let scope = (self.numbers.len(), self.lists.len(), self.answers.len(), self.dicts.len());
        let count = 1 + self.choose(statements);
        for _ in 0..count {
            self.statement(indent);
        }
        self.numbers.truncate(scope.0);
        self.lists.truncate(scope.1);
        self.answers.truncate(scope.2);
        self.dicts.truncate(scope.3);
    }

    fn line(&mut self, indent: usize, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(indent));
    }

    fn statement(&mut self, indent: usize) {
        match self.choose(if indent > 3 { 10 } else { 17 }) {
            0 | 1 => {
                let (answer, name) = (self.answer(), self.name("a"));
                self.line(indent, &format!("{name} = {answer}"));
                self.answers.push(name);
            }
            2 | 3 => {
                let (number, name) = (self.number(), self.name("n"));
                // Most values are of this type; the others fail, whenever they come.
                let ty = if self.choose(8) == 0 { ": int | None | list | dict" } else { "" };
                self.line(indent, &format!("{name}{ty} = {number}"));
                self.numbers.push(name);
            }
            4 | 5 => {
                let (list, name) = (self.list(), self.name("l"));
                self.line(indent, &format!("{name} = {list}"));
                self.lists.push(name);
            }
            6 => {
                let (dict, name) = (self.dict(), self.name("d"));
                self.line(indent, &format!("{name} = {dict}"));
                self.dicts.push(name);
            }
            7 => {
                let names = self.lists.clone();
                if let Some(list) = self.one_of(&names) {
                    let number = self.number();
                    let text = match self.choose(4) {
                        0 => format!("{list} += [{number}]"),
                        1 => format!("{list}[0] = {number}"),
                        _ => format!("{list}.append({number})"),
                    };
                    self.line(indent, &text);
                } else {
                    self.line(indent, "pass");
                }
            }
            8 => {
                let names = self.dicts.clone();
                if let Some(dict) = self.one_of(&names) {
                    let (number, list) = (self.number(), self.list());
                    let text = if self.choose(2) == 0 {
                        format!("{dict}['k'] = {number}")
                    } else {
                        format!("{dict}['l'] = {list}")
                    };
                    self.line(indent, &text);
                } else {
                    self.line(indent, "pass");
                }
            }
            9 => {
                let names = self.numbers.clone();
                match names.iter().rfind(|name| name.starts_with('n')) {
                    Some(name) => {
                        let number = self.number();
                        self.line(indent, &format!("{name} += {number}"));
                    }
                    None => self.line(indent, "pass"),
                }
            }
            10 | 11 => {
                let cond = self.truth();
                self.line(indent, &format!("if {cond}:"));
                self.block(indent + 1, 2);
                if self.choose(2) == 0 {
                    self.line(indent, "else:");
                    self.block(indent + 1, 2);
                }
            }
            12 => {
                let list = self.over("range(2)", 2);
                let name = self.name("v");
                self.line(indent, &format!("for {name} in {list}:"));
                self.numbers.push(name);
                self.block(indent + 1, 2);
                self.numbers.pop();
            }
            13 => {
                let cond = self.truth();
                self.next += 1;
                self.line(indent, &format!("if {cond}:"));
                let text =
                    if self.choose(2) == 0 { format!("fail('stop {}')", self.next) } else { "return 5".to_owned() };
                self.line(indent + 1, &text);
            }
            14 => {
                let number = self.number();
                self.calls += 1;
                let text = format!("b.post('/{}', json = {{'v': {number}}})", self.calls);
                self.line(indent, &text);
            }
            15 => {
                let call = self.call();
                self.line(indent, &call);
            }
            _ => {
                if self.functions > 0 {
                    let function = self.choose(self.functions as u32);
                    let (x, l) = (self.number(), self.list());
                    let which = ["f", "g"][self.choose(2) as usize];
                    self.line(indent, &format!("{which}{function}({x}, {l})"));
                } else {
                    self.line(indent, "pass");
                }
            }
        }
    }

    fn function(&mut self, header: &str, result: fn(&mut Self) -> String) {
        self.line(0, header);
        self.numbers = vec!["x".to_owned()];
        self.lists = vec!["l".to_owned()];
        self.answers.clear();
        self.dicts.clear();
        let count = 1 + self.choose(4);
        for _ in 0..count {
            self.statement(1);
        }
        let value = result(self);
        self.line(1, &format!("return {value}"));
    }
}

/// Types of what is called a number: mostly it is one.
const NUMBER: &[&str] = &["int", "int | None", "float | list | None", "typing.Any"];

/// Types of what is called a list.
const LIST: &[&str] = &["list", "list[int]", "list[int | None]", "typing.Iterable", "list[typing.Any] | None"];

/// The items of a loop whose number of items cannot be known before it runs, where no other loops are wanted but those of known
/// number.
pub const ITEMS: u32 = 6;

/// The program that a tape denotes: a function `main` that calls services `a`, `b` and `c`, and others that it calls.
/// `even`: each of its loops goes through a number of items that is written there, or else through [`ITEMS`].
pub fn write(tape: &[u32], even: bool) -> String {
    let mut writer = Writer {
        tape,
        at: 0,
        out: String::new(),
        numbers: Vec::new(),
        lists: Vec::new(),
        answers: Vec::new(),
        dicts: Vec::new(),
        functions: 0,
        next: 0,
        depth: 0,
        calls: 0,
        even,
    };
    // The main function first: it gets the tape while there is some.
    let functions = 1 + writer.choose(3) as usize;
    writer.functions = functions;
    writer.line(0, "def main():");
    writer.line(1, "l = [4]");
    writer.lists = vec!["l".to_owned()];
    let statements = 4 + writer.choose(8);
    for _ in 0..statements {
        writer.statement(1);
    }
    let all: Vec<String> =
        [&writer.numbers, &writer.lists, &writer.answers, &writer.dicts].into_iter().flatten().cloned().collect();
    writer.line(1, &format!("return [{}]", all.join(", ")));
    for at in (0..functions).rev() {
        writer.functions = at;
        let (x, l) = (writer.annotation(NUMBER), writer.annotation(LIST));
        let result = writer.annotation(NUMBER).replace(':', " ->");
        writer.function(&format!("def f{at}(x{x}, l{l}){result}:"), Writer::number);
        let (x, l) = (writer.annotation(NUMBER), writer.annotation(LIST));
        let result = writer.annotation(LIST).replace(':', " ->");
        writer.function(&format!("def g{at}(x{x}, l{l}){result}:"), Writer::list);
    }
    writer.out
}

/// What the services answer: a number or not, and items, by what they are asked.
pub fn echo(name: &str, text: &str) -> Answer {
    if text.starts_with("\"/fail") {
        return Answer::Fail;
    }
    let n = text.bytes().filter(u8::is_ascii_digit).fold(0_u64, |n, digit| (n * 3 + u64::from(digit - b'0')) % 7);
    Answer::Json(format!(
        "{{\"call\": {:?}, \"n\": {n}, \"ok\": {}, \"none\": null, \"items\": [{{\"n\": {n}, \"ok\": true, \"items\": []}}, {{\"n\": {}}}]}}",
        format!("{name}({text})"),
        n % 2 == 0,
        n + 1
    ))
}
