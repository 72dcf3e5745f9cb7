//! A function of a flow file, as a key names it.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::diagnostic::Position;
use crate::reader::{Located, Reader, Table};
use crate::values::names::is_identifier;

/// A function of a flow file.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRef {
    /// The file, relative to the configuration's folder and below it, with `/` between folders.
    pub file: PathBuf,
    /// The function's name.
    pub function: String,
    /// Where fanin.toml names it, for messages.
    pub at: Position,
}

impl FlowRef {
    /// A function of a flow file that no configuration file names.
    pub fn new(file: impl Into<PathBuf>, function: impl Into<String>) -> FlowRef {
        FlowRef { file: file.into(), function: function.into(), at: Position::default() }
    }
}

impl fmt::Display for FlowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.function)
    }
}

/// Reads a key that names a flow, whose file must be there.
pub(crate) fn read_flow(table: &mut Table<'_, '_>, key: &'static str) -> Option<FlowRef> {
    let flow = table.parsed(key, "a file and a function such as \"flows/page.star:page\"", flow_ref)?;
    check_file(table.reader(), &flow);
    Some(at_position(flow, table.reader()))
}

fn at_position(at: Located<FlowRef>, reader: &Reader<'_>) -> FlowRef {
    FlowRef { at: reader.position(&at.span), ..at.value }
}

/// Reads `file.star:function`.
fn flow_ref(text: &str) -> Result<FlowRef, String> {
    let Some((file, function)) = text.rsplit_once(':') else {
        return Err(format!("`{text}` names no function; write \"file.star:function\""));
    };
    if !is_identifier(function) {
        return Err(format!("`{function}` is not a function's name"));
    }
    if !file.ends_with(".star") {
        return Err(format!("`{file}` is not a .star file"));
    }
    let inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside || file.contains('\\') {
        return Err(format!("`{file}` is outside the configuration's folder; move it below that folder"));
    }
    let plain: PathBuf = Path::new(file).components().filter(|part| !matches!(part, Component::CurDir)).collect();
    Ok(FlowRef::new(plain, function))
}

/// The flow's file must be there, and links must not lead out of the folder.
fn check_file(reader: &Reader<'_>, flow: &Located<FlowRef>) {
    let file = reader.dir().join(&flow.value.file);
    if !file.is_file() {
        reader.error(&flow.span, format!("there is no flow file {}", file.display()));
        return;
    }
    let real = |path: &Path| path.canonicalize().ok();
    if let (Some(file_at), Some(dir)) = (real(&file), real(reader.dir()))
        && !file_at.starts_with(&dir)
    {
        let message = format!("the flow file {} is a link to outside the configuration's folder", file.display());
        reader.error(&flow.span, message);
    }
}
