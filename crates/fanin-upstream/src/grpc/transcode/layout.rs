//! The fields of messages, in the form in which conversions need them.

use std::collections::HashMap;

use fanin_config::{FieldNames, Int64};
use fanin_json::write_str;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use rustc_hash::FxHashMap;

use super::wire::Wire;

/// How JSON is written.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Style {
    pub(in super::super) int64: Int64,
    pub(in super::super) field_names: FieldNames,
}

/// Messages, and all that they contain.
#[derive(Debug)]
pub(in super::super) struct Layouts {
    pub(super) style: Style,
    pub(super) messages: Vec<Layout>,
    pub(super) enums: Vec<Names>,
    by_name: FxHashMap<String, usize>,
}

/// A message.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// By their numbers.
    pub(super) fields: Vec<Field>,
    /// Its JSON is an object of its fields.
    pub(super) is_usual: bool,
    /// Places by number, for small numbers.
    by_number: Vec<Option<u16>>,
    by_name: FxHashMap<String, u16>,
}

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name as JSON, with the colon.
    pub(super) key: Vec<u8>,
    pub(super) what: What,
    pub(super) repeats: Repeats,
    /// It may be absent.
    pub(super) may_lack: bool,
    /// The number of its `oneof`.
    pub(super) oneof: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    No,
    /// Whether it is written as one value with all elements.
    List {
        packed: bool,
    },
    Map,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    Bool,
    Text,
    Bytes,
    /// Place in [`Layouts::enums`].
    Enum(usize),
    /// Place in [`Layouts::messages`].
    Message(usize),
    /// A group, or `google.protobuf.NullValue`.
    Other,
}

impl What {
    pub(super) fn wire(self) -> Wire {
        match self {
            What::Fixed64 | What::Sfixed64 | What::Double => Wire::Fixed64,
            What::Fixed32 | What::Sfixed32 | What::Float => Wire::Fixed32,
            What::Text | What::Bytes | What::Message(_) | What::Other => Wire::Length,
            _ => Wire::Varint,
        }
    }
}

/// The values of an enum.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names as JSON.
    pub(super) by_number: FxHashMap<i32, Vec<u8>>,
    pub(super) by_name: FxHashMap<String, i32>,
    /// The JSON of an absent value.
    pub(super) default: Vec<u8>,
}

impl Layouts {
    /// The layouts of these messages.
    pub(in super::super) fn new(roots: impl Iterator<Item = MessageDescriptor>, style: Style) -> Layouts {
        let mut layouts = Layouts { style, messages: Vec::new(), enums: Vec::new(), by_name: FxHashMap::default() };
        let mut wanted = Vec::new();
        for root in roots {
            layouts.place(&root, &mut wanted);
        }
        let mut enums = HashMap::new();
        let mut at = 0;
        // Those that fields name come to its end.
        while let Some(of) = wanted.get(at).cloned() {
            layouts.messages[at] = layouts.layout(&of, &mut wanted, &mut enums);
            at += 1;
        }
        layouts
    }

    pub(super) fn find(&self, of: &MessageDescriptor) -> Option<usize> {
        self.by_name.get(of.full_name()).copied()
    }

    /// The place of a message, which is wanted if it is new.
    fn place(&mut self, of: &MessageDescriptor, wanted: &mut Vec<MessageDescriptor>) -> usize {
        if let Some(at) = self.find(of) {
            return at;
        }
        self.messages.push(Layout::default());
        wanted.push(of.clone());
        self.by_name.insert(of.full_name().to_owned(), wanted.len() - 1);
        wanted.len() - 1
    }

    fn layout(
        &mut self,
        of: &MessageDescriptor,
        wanted: &mut Vec<MessageDescriptor>,
        enums: &mut HashMap<String, usize>,
    ) -> Layout {
        let is_usual = !of.full_name().starts_with("google.protobuf.")
            && of.extension_ranges().len() == 0
            && of.oneofs().len() <= 64
            && of.fields().len() < usize::from(u16::MAX);
        let mut layout = Layout { is_usual, ..Layout::default() };
        if !is_usual {
            return layout;
        }
        let oneofs: Vec<_> = of.oneofs().map(|oneof| oneof.full_name().to_owned()).collect();
        for (at, field) in of.fields().enumerate() {
            let at = at as u16;
            let number = field.number() as usize;
            if number < 256 {
                layout.by_number.resize(layout.by_number.len().max(number + 1), None);
                layout.by_number[number] = Some(at);
            }
            // Both are read, and a field's name in JSON goes before another field's own name.
            layout.by_name.entry(field.name().to_owned()).or_insert(at);
            let oneof = field.containing_oneof();
            let oneof = oneof.and_then(|oneof| oneofs.iter().position(|name| name == oneof.full_name()));
            let what = self.what(&field, wanted, enums);
            layout.fields.push(Field {
                number: field.number(),
                key: self.key(&field),
                what,
                repeats: match () {
                    () if field.is_map() => Repeats::Map,
                    () if field.is_list() => Repeats::List { packed: field.is_packed() },
                    () => Repeats::No,
                },
                may_lack: field.supports_presence(),
                oneof: oneof.map(|at| at as u8),
            });
        }
        for (at, field) in of.fields().enumerate() {
            layout.by_name.insert(field.json_name().to_owned(), at as u16);
        }
        layout
    }

    fn key(&self, field: &FieldDescriptor) -> Vec<u8> {
        let name = if self.style.field_names == FieldNames::Proto { field.name() } else { field.json_name() };
        let mut key = Vec::with_capacity(name.len() + 3);
        write_str(&mut key, name);
        key.push(b':');
        key
    }

    fn what(
        &mut self,
        field: &FieldDescriptor,
        wanted: &mut Vec<MessageDescriptor>,
        enums: &mut HashMap<String, usize>,
    ) -> What {
        match field.kind() {
            Kind::Int32 => What::Int32,
            Kind::Int64 => What::Int64,
            Kind::Uint32 => What::Uint32,
            Kind::Uint64 => What::Uint64,
            Kind::Sint32 => What::Sint32,
            Kind::Sint64 => What::Sint64,
            Kind::Fixed32 => What::Fixed32,
            Kind::Fixed64 => What::Fixed64,
            Kind::Sfixed32 => What::Sfixed32,
            Kind::Sfixed64 => What::Sfixed64,
            Kind::Float => What::Float,
            Kind::Double => What::Double,
            Kind::Bool => What::Bool,
            Kind::String => What::Text,
            Kind::Bytes => What::Bytes,
            Kind::Enum(of) if of.full_name() == "google.protobuf.NullValue" => What::Other,
            Kind::Enum(of) => {
                let at = enums.entry(of.full_name().to_owned()).or_insert_with(|| {
                    let mut names = Names::default();
                    let text = |name: &str| {
                        let mut text = Vec::new();
                        write_str(&mut text, name);
                        text
                    };
                    for value in of.values() {
                        // Of several names of a number, the library's choice.
                        let shown = of.get_value(value.number()).map_or_else(String::new, |one| one.name().to_owned());
                        names.by_number.insert(value.number(), text(&shown));
                        names.by_name.insert(value.name().to_owned(), value.number());
                    }
                    names.default = text(of.default_value().name());
                    self.enums.push(names);
                    self.enums.len() - 1
                });
                What::Enum(*at)
            }
            Kind::Message(_) if field.is_group() => What::Other,
            Kind::Message(of) => What::Message(self.place(&of, wanted)),
        }
    }
}

impl Layout {
    /// A field's place by its number; `next` is the likely one.
    #[inline]
    pub(super) fn by_number(&self, number: u32, next: usize) -> Option<usize> {
        if self.fields.get(next).is_some_and(|field| field.number == number) {
            return Some(next);
        }
        match self.by_number.get(number as usize) {
            Some(at) => at.map(usize::from),
            None => self.fields.binary_search_by_key(&number, |field| field.number).ok(),
        }
    }

    /// A field's place by its name as JSON without escapes; `next` is the likely one.
    #[inline]
    pub(super) fn by_key(&self, key: &[u8], next: usize) -> Option<usize> {
        if self.fields.get(next).is_some_and(|field| field.key.strip_suffix(b":") == Some(key)) {
            return Some(next);
        }
        let name = std::str::from_utf8(key.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok()?;
        self.by_name.get(name).map(|at| usize::from(*at))
    }
}
