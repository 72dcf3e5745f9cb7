//! How a line of code is laid out: on one line if it fits, else broken at its outermost brackets first.

use super::pieces::{Binding, Group, Item, Kind, Node, Piece, Role, breaks, fits, flat, space};
use super::{INDENT, WIDTH};

/// Lays out one statement, indented.
pub(super) fn statement(mut pieces: Vec<Piece>, indent: usize, comment: Option<&str>) -> String {
    let mut out = Out { text: " ".repeat(indent), line: 0 };
    let broken = pieces.iter().any(Piece::must_break);
    // What a comment says of its line must stay true of it.
    let stays = comment.is_some_and(|comment| comment.contains("fanin:"));
    if !broken && (stays || fits(&flat(&pieces), indent, 0)) {
        out.text += &flat(&pieces);
        return out.text;
    }
    if !broken && let Some(from) = wraps(&pieces, indent) {
        parenthesise(&mut pieces, from);
    }
    out.pieces(&pieces, indent, 0);
    out.text
}

/// Where an expression begins that is to be wrapped in parentheses, because it can be broken at its operators only.
fn wraps(pieces: &[Piece], indent: usize) -> Option<usize> {
    let from = match pieces.iter().position(|piece| piece.kind() == Some(Kind::Assign)) {
        Some(at) => at + 1,
        None if ["return", "if", "elif"].iter().any(|word| pieces[0].is(word)) => 1,
        None => return None,
    };
    let expression = &pieces[from..];
    if expression.is_empty() || pieces[0].is("def") || expression.iter().any(|piece| piece.kind() == Some(Kind::Comma))
    {
        return None;
    }
    let (_, places) = breaks(expression, Binding::Ternary)?;
    // One operator before a last bracket: that bracket can be broken instead.
    let without_colon = expression.len() - usize::from(expression.last().and_then(Piece::kind) == Some(Kind::Colon));
    if places.len() == 1 && matches!(expression[without_colon - 1].node, Node::Group(_)) {
        let mut out = Out { text: " ".repeat(indent), line: 0 };
        out.pieces(pieces, indent, 0);
        let fit = out.text.lines().all(|line| line.chars().count() <= WIDTH);
        let last_only = flat(&pieces[..from + without_colon - 1]);
        if fit && out.text.trim_start().starts_with(&last_only) {
            return None;
        }
    }
    Some(from)
}

fn parenthesise(pieces: &mut Vec<Piece>, from: usize) {
    let colon = pieces.pop_if(|piece| piece.kind() == Some(Kind::Colon));
    let expression = pieces.split_off(from);
    pieces.push(Piece::new(Node::Group(Group {
        open: "(",
        close: ")",
        adjoins: false,
        role: Role::Single,
        opening: None,
        items: vec![Item { pieces: expression, trailing: None }],
        comma: false,
        closing: Vec::new(),
    })));
    pieces.extend(colon);
}

struct Out {
    text: String,
    /// Where the last line begins.
    line: usize,
}

impl Out {
    fn column(&self) -> usize {
        self.text[self.line..].chars().count()
    }

    fn newline(&mut self, indent: usize) {
        self.text.push('\n');
        self.line = self.text.len();
        self.text.extend(std::iter::repeat_n(' ', indent));
    }

    fn push(&mut self, text: &str) {
        let start = self.text.len();
        self.text += text;
        if let Some(newline) = text.rfind('\n') {
            self.line = start + newline + 1;
        }
    }

    /// Pieces in a row, each bracket on one line if that fits. `rest`: how many characters come behind.
    fn pieces(&mut self, pieces: &[Piece], indent: usize, rest: usize) {
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 && space(&pieces[at - 1], piece) {
                self.push(" ");
            }
            match &piece.node {
                Node::Word(_, text) => self.push(text),
                Node::Group(group) => {
                    let on_one_line = flat(std::slice::from_ref(piece));
                    let behind = until_break(&pieces[at..], rest);
                    if group.items.is_empty() && group.closing.is_empty() && group.opening.is_none()
                        || !group.must_break() && fits(&on_one_line, self.column(), behind)
                    {
                        self.push(&on_one_line);
                    } else {
                        self.group(group, indent);
                    }
                }
            }
        }
    }

    /// A bracket whose items are on lines of their own.
    fn group(&mut self, group: &Group, indent: usize) {
        self.push(group.open);
        if let Some(inner) = group.only_bracket() {
            self.group(inner, indent);
            self.push(group.close);
            return;
        }
        if let Some(comment) = &group.opening {
            self.push(&format!("  {comment}"));
        }
        let within = indent + INDENT;
        let alone = group.items.len() == 1;
        for (at, item) in group.items.iter().enumerate() {
            if at > 0 && item.pieces.first().is_some_and(|first| first.blank_before) {
                self.newline(0);
            }
            let comma = match group.role {
                Role::Items | Role::OneTuple => true,
                Role::Single | Role::Index => at + 1 < group.items.len(),
            };
            let more = if alone { within } else { within + INDENT };
            self.newline(within);
            self.chain(&item.pieces, Binding::Clause, more, comma, item.trailing.as_deref());
        }
        for comment in &group.closing {
            self.newline(within);
            self.push(comment);
        }
        self.newline(indent);
        self.push(group.close);
    }

    /// An item at the start of a line: as it is if it fits, else broken before its loosest operators.
    fn chain(&mut self, pieces: &[Piece], from: Binding, more: usize, comma: bool, behind: Option<&str>) {
        let indent = self.column();
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return };
        let within = pieces.iter().enumerate().any(|(at, piece)| {
            at > 0 && !piece.leading.is_empty() || at + 1 < pieces.len() && piece.trailing.is_some()
        });
        let broken = pieces.iter().any(|piece| matches!(&piece.node, Node::Group(group) if group.must_break()));
        let whole = !within && !broken && fits(&flat(pieces), indent, usize::from(comma));
        let Some((binding, places)) = (if whole { None } else { breaks(pieces, from) }) else {
            for comment in &first.leading {
                self.push(comment);
                self.newline(indent);
            }
            self.pieces(pieces, indent, usize::from(comma));
            if comma {
                self.push(",");
            }
            if let Some(comment) = last.trailing.as_deref().or(behind) {
                self.push(&format!("  {comment}"));
            }
            return;
        };
        let next = next_binding(binding);
        let ends = places.iter().copied().chain([pieces.len()]);
        let mut start = 0;
        for end in ends {
            if start > 0 {
                self.newline(more);
            }
            let is_last = end == pieces.len();
            let column = self.column();
            let (comma, behind) = if is_last { (comma, behind) } else { (false, None) };
            self.chain(&pieces[start..end], next, column + INDENT, comma, behind);
            start = end;
        }
    }
}

fn next_binding(binding: Binding) -> Binding {
    match binding {
        Binding::Clause => Binding::Ternary,
        Binding::Ternary => Binding::Or,
        Binding::Or => Binding::And,
        Binding::And => Binding::Comparison,
        Binding::Comparison => Binding::BitOr,
        Binding::BitOr => Binding::BitXor,
        Binding::BitXor => Binding::BitAnd,
        Binding::BitAnd => Binding::Shift,
        Binding::Shift => Binding::Sum,
        Binding::Sum | Binding::Product => Binding::Product,
    }
}

/// How many characters come behind the first piece up to the next place where the line can be broken.
fn until_break(pieces: &[Piece], rest: usize) -> usize {
    let mut width = 0;
    for (at, piece) in pieces.iter().enumerate().skip(1) {
        width += usize::from(space(&pieces[at - 1], piece));
        match &piece.node {
            Node::Word(_, text) => match text.split_once('\n') {
                Some((first, _)) => return width + first.chars().count(),
                None => width += text.chars().count(),
            },
            Node::Group(group) if group.items.is_empty() && group.closing.is_empty() => width += 2,
            Node::Group(_) => return width + 1,
        }
    }
    width + rest
}
