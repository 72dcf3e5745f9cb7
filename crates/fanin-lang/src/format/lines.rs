//! From text to lines of code: one for each statement, with its comments and its depth.

use starlark_syntax::codemap::CodeMap;
use starlark_syntax::lexer::{Lexer, Token};

use super::pieces::{Binding, Group, Item, Kind, Node, Piece, Role, quoted};
use crate::compile::DIALECT;

/// What a line begins, as far as empty lines depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Def,
    Load,
    Other,
}

/// A statement or the head of one, or comments alone.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) depth: usize,
    pub(super) pieces: Vec<Piece>,
    /// The comment behind it; for a line without pieces the comment that it is.
    pub(super) comment: Option<String>,
    /// Whether an empty line is before it.
    pub(super) blank_before: bool,
    pub(super) start: Start,
}

/// Reads the lines of a text that can be parsed.
pub(super) fn read(text: &str) -> Vec<Line> {
    let mut reader = Reader {
        text,
        lines: Vec::new(),
        indents: vec![0],
        pending: Vec::new(),
        pending_indents: Vec::new(),
        current: Vec::new(),
        blank: false,
        comment: None,
        open: Vec::new(),
        lambdas: 0,
        suite: 0,
        end: 0,
    };
    let codemap = CodeMap::new(String::new(), text.to_owned());
    let mut f_string: Option<(usize, usize)> = None;
    for lexeme in Lexer::new(text, &DIALECT, codemap) {
        let Ok((start, token, end)) = lexeme else { break };
        // An f-string is taken as it is written.
        match (&token, &mut f_string) {
            (Token::FStringStart(_), None) => f_string = Some((start, 1)),
            (Token::FStringStart(_), Some((_, depth))) => *depth += 1,
            (Token::FStringEnd, Some((_, 1))) => {
                let (from, _) = f_string.take().unwrap_or((start, 0));
                reader.word(Kind::Operand, from, end, text[from..end].to_owned());
            }
            (Token::FStringEnd, Some((_, depth))) => *depth -= 1,
            (_, Some(_)) => {}
            (_, None) => reader.token(&token, start, end),
        }
    }
    reader.finish_line();
    reader.place_comments(0);
    reader.lines
}

struct OpenGroup {
    group: Group,
    item: Item,
    /// Comments that belong to what comes next.
    leading: Vec<String>,
    blank: bool,
    lambdas: usize,
    /// Whether a `for` made it a comprehension.
    comprehension: bool,
    /// Whether the variables of a `for` are being read, whose commas part no items.
    variables: bool,
    /// What was before its opening bracket.
    before: Before,
}

struct Before {
    leading: Vec<String>,
    blank: bool,
}

struct Reader<'a> {
    text: &'a str,
    lines: Vec<Line>,
    /// Columns of the blocks around, as they are written.
    indents: Vec<usize>,
    /// Comments on lines of their own whose block is not known yet: text, column, whether an empty line is before.
    pending: Vec<(String, usize, bool)>,
    /// The blocks around the first of them.
    pending_indents: Vec<usize>,
    current: Vec<Piece>,
    blank: bool,
    comment: Option<String>,
    open: Vec<OpenGroup>,
    /// Lambdas outside brackets whose colon has not come yet.
    lambdas: usize,
    /// 1 behind the colon of a block that goes on in the same line.
    suite: usize,
    /// The end of the last word or comment.
    end: usize,
}

impl Reader<'_> {
    fn token(&mut self, token: &Token, start: usize, end: usize) {
        match token {
            Token::Indent => self.indents.push(end - line_start(self.text, end)),
            Token::Dedent => drop(self.indents.pop()),
            Token::Newline => {
                self.finish_line();
                self.suite = 0;
            }
            Token::Comment(_) => self.comment(start, end),
            Token::Semicolon => {
                self.finish_line();
                self.end = end;
            }
            _ => self.code(token, start, end),
        }
    }

    fn code(&mut self, token: &Token, start: usize, end: usize) {
        let written = &self.text[start..end];
        match token {
            Token::OpeningRound => self.begin("(", ")", start, end),
            Token::OpeningSquare => self.begin("[", "]", start, end),
            Token::OpeningCurly => self.begin("{", "}", start, end),
            Token::ClosingRound | Token::ClosingSquare | Token::ClosingCurly => self.close(end),
            Token::Comma if self.open.last().is_some_and(|open| open.lambdas == 0 && !open.variables) => {
                self.item_ends(end);
            }
            Token::String(_) | Token::Bytes(_) => self.word(Kind::Operand, start, end, quoted(written)),
            Token::Colon => self.colon(start, end),
            _ => {
                if matches!(token, Token::Lambda) {
                    *self.lambdas_mut() += 1;
                }
                let kind = self.kind_of(token);
                self.word(kind, start, end, written.to_owned());
                match (token, self.open.last_mut()) {
                    (Token::For, Some(open)) => {
                        open.comprehension = true;
                        open.variables = true;
                    }
                    (Token::In, Some(open)) => open.variables = false,
                    _ => {}
                }
            }
        }
    }

    fn colon(&mut self, start: usize, end: usize) {
        let of_lambda = self.lambdas_here() > 0;
        if of_lambda {
            *self.lambdas_mut() -= 1;
        }
        let in_index = self.open.last().is_some_and(|open| open.group.role == Role::Index);
        let kind = if in_index && !of_lambda { Kind::SliceColon } else { Kind::Colon };
        self.word(kind, start, end, ":".to_owned());
        let of_block = self.open.is_empty()
            && !of_lambda
            && self
                .current
                .first()
                .is_some_and(|first| ["def", "if", "elif", "else", "for"].iter().any(|word| first.is(word)));
        let rest = self.text[end..].trim_start_matches([' ', '\r']);
        if of_block && !rest.is_empty() && !rest.starts_with(['\n', '#']) {
            self.finish_line();
            self.suite = 1;
        }
    }

    fn kind_of(&self, token: &Token) -> Kind {
        let pieces = self.open.last().map_or(&self.current, |open| &open.item.pieces);
        let last = pieces.last();
        let operand_before = last.is_some_and(|piece| matches!(piece.kind(), None | Some(Kind::Operand)));
        let comprehension = self.open.last().is_some_and(|open| open.comprehension);
        let binary = |binding| if operand_before { Kind::Binary(binding) } else { Kind::Unary };
        match token {
            // Heads of statements are keywords: nothing is broken before them.
            Token::If | Token::Else | Token::For | Token::In if last.is_none() => Kind::Keyword,
            Token::For => {
                if self.open.is_empty() {
                    Kind::Keyword
                } else {
                    Kind::Binary(Binding::Clause)
                }
            }
            Token::If if comprehension => Kind::Binary(Binding::Clause),
            Token::If | Token::Else => Kind::Binary(Binding::Ternary),
            Token::Or => Kind::Binary(Binding::Or),
            Token::And => Kind::Binary(Binding::And),
            Token::Not if operand_before => Kind::Binary(Binding::Comparison),
            Token::In
            | Token::EqualEqual
            | Token::BangEqual
            | Token::LessThan
            | Token::GreaterThan
            | Token::LessEqual
            | Token::GreaterEqual => Kind::Binary(Binding::Comparison),
            Token::Pipe => Kind::Binary(Binding::BitOr),
            Token::Caret => Kind::Binary(Binding::BitXor),
            Token::Ampersand => Kind::Binary(Binding::BitAnd),
            Token::LessLess | Token::GreaterGreater => Kind::Binary(Binding::Shift),
            Token::Plus | Token::Minus => binary(Binding::Sum),
            Token::Star => binary(Binding::Product),
            Token::Percent | Token::Slash | Token::SlashSlash => Kind::Binary(Binding::Product),
            Token::StarStar | Token::Tilde => Kind::Unary,
            Token::Equal
            | Token::PlusEqual
            | Token::MinusEqual
            | Token::StarEqual
            | Token::SlashEqual
            | Token::SlashSlashEqual
            | Token::PercentEqual
            | Token::AmpersandEqual
            | Token::PipeEqual
            | Token::CaretEqual
            | Token::LessLessEqual
            | Token::GreaterGreaterEqual
            | Token::MinusGreater => Kind::Assign,
            Token::Comma => Kind::Comma,
            Token::Dot => Kind::Dot,
            Token::Identifier(_) | Token::Int(_) | Token::Float(_) | Token::Ellipsis => Kind::Operand,
            _ => Kind::Keyword,
        }
    }

    fn lambdas_here(&self) -> usize {
        self.open.last().map_or(self.lambdas, |open| open.lambdas)
    }

    fn lambdas_mut(&mut self) -> &mut usize {
        match self.open.last_mut() {
            Some(open) => &mut open.lambdas,
            None => &mut self.lambdas,
        }
    }

    fn blank_before(&self, start: usize) -> bool {
        self.text[self.end..start].bytes().filter(|byte| *byte == b'\n').count() > 1
    }

    /// Notes what is before a word: for the first one of a line its comments and its block.
    fn arrive(&mut self, start: usize) {
        let blank = self.blank_before(start);
        match self.open.last_mut() {
            Some(open) => open.blank |= blank,
            None if self.current.is_empty() => {
                self.blank = blank;
                self.place_comments(self.indents.len() - 1);
            }
            None => {}
        }
    }

    fn word(&mut self, kind: Kind, start: usize, end: usize, text: String) {
        self.arrive(start);
        self.put(Piece::new(Node::Word(kind, text)));
        self.end = end;
    }

    fn put(&mut self, mut piece: Piece) {
        match self.open.last_mut() {
            Some(open) => {
                piece.leading.append(&mut open.leading);
                piece.blank_before |= std::mem::take(&mut open.blank);
                open.item.pieces.push(piece);
            }
            None => self.current.push(piece),
        }
    }

    fn begin(&mut self, open: &'static str, close: &'static str, start: usize, end: usize) {
        self.arrive(start);
        let pieces = self.open.last().map_or(&self.current, |open| &open.item.pieces);
        let adjoins = open != "{"
            && pieces
                .last()
                .is_some_and(|piece| matches!(piece.kind(), None | Some(Kind::Operand)) || piece.is("load"));
        let role = match open {
            "[" if adjoins => Role::Index,
            "(" if !adjoins => Role::Single,
            _ => Role::Items,
        };
        let before = match self.open.last_mut() {
            Some(open) => Before { leading: std::mem::take(&mut open.leading), blank: std::mem::take(&mut open.blank) },
            None => Before { leading: Vec::new(), blank: false },
        };
        self.open.push(OpenGroup {
            group: Group {
                open,
                close,
                adjoins,
                role,
                opening: None,
                items: Vec::new(),
                comma: false,
                closing: Vec::new(),
            },
            item: Item::default(),
            leading: Vec::new(),
            blank: false,
            lambdas: 0,
            comprehension: false,
            variables: false,
            before,
        });
        self.end = end;
    }

    fn item_ends(&mut self, end: usize) {
        let Some(open) = self.open.last_mut() else { return };
        let mut item = std::mem::take(&mut open.item);
        // Comments between an item and its comma.
        if let Some(first) = item.pieces.first_mut() {
            first.leading.append(&mut open.leading);
        }
        open.group.items.push(item);
        open.comprehension = false;
        self.end = end;
    }

    fn close(&mut self, end: usize) {
        let Some(mut open) = self.open.pop() else { return };
        let comma = open.item.pieces.is_empty() && !open.group.items.is_empty();
        open.group.closing = open.leading;
        if !open.item.pieces.is_empty() {
            open.group.items.push(open.item);
        }
        open.group.items.iter_mut().for_each(Item::settle);
        open.group.role = match open.group.role {
            Role::Single if open.group.items.len() == 1 && comma => Role::OneTuple,
            Role::Single if open.group.items.len() != 1 => Role::Items,
            Role::Items if open.comprehension => Role::Single,
            role => role,
        };
        open.group.comma = comma;
        let mut piece = Piece::new(Node::Group(open.group));
        piece.leading = open.before.leading;
        piece.blank_before = open.before.blank;
        self.put(piece);
        self.end = end;
    }

    fn comment(&mut self, start: usize, end: usize) {
        let comment = tidy(&self.text[start..end]);
        let own_line = self.text[self.end..start].contains('\n') || self.end == 0 && self.lines.is_empty();
        let blank = self.blank_before(start);
        match self.open.last_mut() {
            Some(open) if own_line => {
                open.blank |= blank && open.leading.is_empty();
                open.leading.push(comment);
            }
            Some(open) => match (open.item.pieces.last_mut(), open.group.items.last_mut()) {
                (Some(last), _) => last.trailing = Some(comment),
                (None, Some(item)) => item.trailing = Some(comment),
                (None, None) => open.group.opening = Some(comment),
            },
            None if self.current.is_empty() && (own_line || self.lines.is_empty()) => {
                if self.pending.is_empty() {
                    self.pending_indents.clone_from(&self.indents);
                }
                self.pending.push((comment, start - line_start(self.text, start), blank));
            }
            // Behind a semicolon that ends its line.
            None if self.current.is_empty() => {
                if let Some(line) = self.lines.last_mut() {
                    line.comment = Some(comment);
                }
            }
            None => self.comment = Some(comment),
        }
        self.end = end;
    }

    fn finish_line(&mut self) {
        if self.current.is_empty() {
            return;
        }
        let pieces = std::mem::take(&mut self.current);
        let start = match &pieces[0] {
            first if first.is("def") => Start::Def,
            first if first.is("load") => Start::Load,
            _ => Start::Other,
        };
        self.lambdas = 0;
        self.lines.push(Line {
            depth: self.indents.len() - 1 + self.suite,
            pieces,
            comment: self.comment.take(),
            blank_before: std::mem::take(&mut self.blank),
            start,
        });
    }

    /// Gives the comments before a statement the block that their column names: that of the statement, or one that ends before it.
    fn place_comments(&mut self, depth: usize) {
        let mut within = self.pending_indents.len().saturating_sub(1).max(depth);
        for (comment, column, blank_before) in std::mem::take(&mut self.pending) {
            while within > depth && self.pending_indents.get(within).is_none_or(|indent| *indent > column) {
                within -= 1;
            }
            self.lines.push(Line {
                depth: within,
                pieces: Vec::new(),
                comment: Some(comment),
                blank_before,
                start: Start::Other,
            });
        }
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// A comment with a space behind its `#`, and none at its end.
fn tidy(comment: &str) -> String {
    let comment = comment.trim_end();
    match comment.strip_prefix('#') {
        Some(rest) if rest.starts_with(char::is_alphanumeric) => format!("# {rest}"),
        _ => comment.to_owned(),
    }
}
