//! What a line of code consists of: words, and brackets with what is in them.

use super::WIDTH;

/// What a word is, as far as spaces and line breaks depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a literal.
    Operand,
    /// `return`, `lambda`, `load` and their like.
    Keyword,
    /// An operator between two operands, by how tightly it binds.
    Binary(Binding),
    /// An operator before its operand.
    Unary,
    /// `=`, `+=`, `->`.
    Assign,
    Comma,
    Colon,
    /// The colon of a slice.
    SliceColon,
    Dot,
}

/// How tightly something binds, loosest first: lines are broken where it is loosest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    Clause,
    Ternary,
    Or,
    And,
    Comparison,
    BitOr,
    BitXor,
    BitAnd,
    Shift,
    Sum,
    Product,
}

/// A part of a line.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) node: Node,
    /// Comments on lines of their own before it.
    pub(super) leading: Vec<String>,
    /// The comment behind it.
    pub(super) trailing: Option<String>,
    /// Whether an empty line is before it and its comments.
    pub(super) blank_before: bool,
}

#[derive(Debug)]
pub(super) enum Node {
    Word(Kind, String),
    Group(Group),
}

/// What a pair of brackets is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Items, of which the last may have a comma behind it.
    Items,
    /// One expression, or a comprehension.
    Single,
    /// A tuple of one item, whose comma is a part of it.
    OneTuple,
    /// An index or a slice.
    Index,
}

/// A pair of brackets.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// Whether it belongs to the operand before it: a call or an index.
    pub(super) adjoins: bool,
    pub(super) role: Role,
    /// The comment behind the opening bracket.
    pub(super) opening: Option<String>,
    pub(super) items: Vec<Item>,
    /// Whether a comma was behind the last of several items: then they stay on lines of their own.
    pub(super) comma: bool,
    /// Comments before the closing bracket.
    pub(super) closing: Vec<String>,
}

/// What is between two commas.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) pieces: Vec<Piece>,
    /// The comment behind its comma.
    pub(super) trailing: Option<String>,
}

impl Item {
    /// Moves its comments to where they can stay: before and behind the parts that it is broken into.
    pub(super) fn settle(&mut self) {
        let mut ends = breaks(&self.pieces, Binding::Clause).map_or_else(Vec::new, |(_, places)| places);
        ends.push(self.pieces.len());
        let mut start = 0;
        for end in ends {
            let last_part = end == self.pieces.len();
            let Some((first, rest)) = self.pieces[start..end].split_first_mut() else { continue };
            let mut last_trailing = if rest.is_empty() { first.trailing.take() } else { None };
            first.leading.extend(first.trailing.take());
            let count = rest.len();
            for (at, piece) in rest.iter_mut().enumerate() {
                first.leading.append(&mut piece.leading);
                match at + 1 == count {
                    true => last_trailing = piece.trailing.take(),
                    false => first.leading.extend(piece.trailing.take()),
                }
            }
            if last_part && self.trailing.is_some() {
                first.leading.extend(last_trailing.take());
            }
            if let Some(last) = self.pieces[..end].last_mut() {
                last.trailing = last_trailing;
            }
            start = end;
        }
    }
}

impl Piece {
    pub(super) fn new(node: Node) -> Self {
        Self { node, leading: Vec::new(), trailing: None, blank_before: false }
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        match &self.node {
            Node::Word(kind, _) => Some(*kind),
            Node::Group(_) => None,
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        matches!(&self.node, Node::Word(Kind::Keyword | Kind::Binary(_), text) if text == word)
    }

    /// Whether it cannot be on one line with what is around it.
    pub(super) fn must_break(&self) -> bool {
        !self.leading.is_empty()
            || self.trailing.is_some()
            || matches!(&self.node, Node::Group(group) if group.must_break())
    }
}

impl Group {
    /// The bracket that is the only argument of this call, without comments: both open and close on the same lines.
    pub(super) fn only_bracket(&self) -> Option<&Self> {
        let [item] = &self.items[..] else { return None };
        let [piece] = &item.pieces[..] else { return None };
        let comments = self.opening.is_some()
            || !self.closing.is_empty()
            || item.trailing.is_some()
            || !piece.leading.is_empty()
            || piece.trailing.is_some();
        match &piece.node {
            Node::Group(inner) if self.adjoins && self.role == Role::Items && !comments && !inner.items.is_empty() => {
                Some(inner)
            }
            _ => None,
        }
    }

    pub(super) fn must_break(&self) -> bool {
        self.comma && self.role == Role::Items
            || self.opening.is_some()
            || !self.closing.is_empty()
            || self.items.iter().any(|item| item.trailing.is_some() || item.pieces.iter().any(Piece::must_break))
    }
}

/// Whether a space is between two parts of a line.
pub(super) fn space(before: &Piece, after: &Piece) -> bool {
    match (&before.node, &after.node) {
        (_, Node::Word(Kind::Comma | Kind::Colon | Kind::SliceColon, _)) => false,
        // `1.x` would be a number.
        (Node::Word(Kind::Operand, text), Node::Word(Kind::Dot, _)) => text.starts_with(|c: char| c.is_ascii_digit()),
        (_, Node::Word(Kind::Dot, _)) => false,
        (Node::Word(Kind::Dot | Kind::Unary | Kind::SliceColon, _), _) => false,
        (_, Node::Group(group)) => !group.adjoins,
        _ => true,
    }
}

/// Everything on one line, comments left out.
pub(super) fn flat(pieces: &[Piece]) -> String {
    let mut out = String::new();
    write_flat(pieces, &mut out);
    out
}

fn write_flat(pieces: &[Piece], out: &mut String) {
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 && space(&pieces[at - 1], piece) {
            out.push(' ');
        }
        match &piece.node {
            Node::Word(_, text) => out.push_str(text),
            Node::Group(group) => {
                out.push_str(group.open);
                for (at, item) in group.items.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    write_flat(&item.pieces, out);
                }
                if group.role == Role::OneTuple {
                    out.push(',');
                }
                out.push_str(group.close);
            }
        }
    }
}

/// Whether a text fits on a line from a column on, with `rest` more characters behind it.
pub(super) fn fits(text: &str, column: usize, rest: usize) -> bool {
    match text.split_once('\n') {
        Some((first, _)) => column + first.chars().count() <= WIDTH,
        None => column + text.chars().count() + rest <= WIDTH,
    }
}

/// Where the pieces can be broken at their loosest binding, from one on: the starts of the parts, without the first.
pub(super) fn breaks(pieces: &[Piece], from: Binding) -> Option<(Binding, Vec<usize>)> {
    let mut loosest: Option<Binding> = None;
    let mut found = Vec::new();
    // The `in` of a clause belongs to its `for`.
    let mut clause_in = pieces.first().is_some_and(|piece| piece.is("for"));
    for (at, piece) in pieces.iter().enumerate() {
        // A lambda's body reaches to the end.
        if piece.is("lambda") {
            break;
        }
        if piece.is("for") && at > 0 {
            clause_in = true;
        }
        let Some(Kind::Binary(binding)) = piece.kind() else { continue };
        if piece.is("in") && std::mem::take(&mut clause_in) {
            continue;
        }
        // `not in` is one operator.
        if piece.is("in") && at > 0 && pieces[at - 1].is("not") && at > 1 {
            continue;
        }
        if at == 0 || binding < from {
            continue;
        }
        if loosest.is_none_or(|loosest| binding < loosest) {
            loosest = Some(binding);
            found.clear();
        }
        if loosest == Some(binding) {
            found.push(at);
        }
    }
    loosest.map(|binding| (binding, found))
}

/// A string literal in double quotes, unless its text has some.
pub(super) fn quoted(literal: &str) -> String {
    let start = literal.find(['\'', '"']).unwrap_or(0);
    let (prefix, rest) = literal.split_at(start);
    let quote = if rest.starts_with("'''") { "'''" } else { "'" };
    let inner = rest.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let Some(inner) = inner.filter(|inner| !inner.contains('"')) else { return literal.to_owned() };
    // An f-string's expressions may have strings of their own.
    if prefix.contains('f') || (prefix.contains('r') && inner.contains("\\'")) || inner.contains("\\\r") {
        return literal.to_owned();
    }
    let double = if quote == "'" { "\"" } else { "\"\"\"" };
    let mut out = format!("{prefix}{double}");
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match (c, prefix.contains('r')) {
            ('\\', false) => match chars.next() {
                Some('\'') => out.push('\''),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push('\\'),
            },
            _ => out.push(c),
        }
    }
    out + double
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_get_double_quotes_where_they_need_no_escapes() {
        assert_eq!(quoted("'a'"), "\"a\"");
        assert_eq!(quoted("'it\\'s \\\\ \\n'"), "\"it's \\\\ \\n\"");
        assert_eq!(quoted("'a \"b\"'"), "'a \"b\"'");
        assert_eq!(quoted("r'a\\d'"), "r\"a\\d\"");
        assert_eq!(quoted("r'a\\''"), "r'a\\''");
        assert_eq!(quoted("b'a'"), "b\"a\"");
        assert_eq!(quoted("'''a\nb'''"), "\"\"\"a\nb\"\"\"");
        assert_eq!(quoted("f'{a}'"), "f'{a}'");
        assert_eq!(quoted("''"), "\"\"");
        assert_eq!(quoted("\"a\""), "\"a\"");
    }
}
