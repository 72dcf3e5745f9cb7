//! Reads descriptors from `.proto` files, which are compiled here, or from a compiled descriptor set.

use std::fs;
use std::path::{Path, PathBuf};

use prost_reflect::DescriptorPool;
use protox::Compiler;

/// Largest file of descriptors, in bytes.
const LARGEST: u64 = 64 << 20;

/// The described services, and the configuration key that names their files.
pub(crate) struct Described {
    pub pool: DescriptorPool,
    pub key: &'static str,
}

/// Reads the files of `proto` or `descriptors`; with `reflection` there are none. An error has its key.
pub(crate) fn describe(config: &fanin_config::Upstream) -> Result<Described, (&'static str, String)> {
    if config.reflection {
        return Ok(Described { pool: DescriptorPool::new(), key: "reflection" });
    }
    files(config.descriptors.as_deref(), &config.proto, &config.proto_path)
}

/// Reads a descriptor set, or else `.proto` files. An error has its key.
pub(super) fn files(
    descriptors: Option<&Path>,
    proto: &[PathBuf],
    proto_path: &[PathBuf],
) -> Result<Described, (&'static str, String)> {
    if let Some(path) = descriptors {
        let pool = read(path).map_err(|detail| ("descriptors", format!("{}: {detail}", path.display())))?;
        return Ok(Described { pool, key: "descriptors" });
    }
    let pool = compile(proto, proto_path).map_err(|detail| ("proto", detail))?;
    Ok(Described { pool, key: "proto" })
}

fn read(path: &Path) -> Result<DescriptorPool, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > LARGEST {
        return Err(format!("has {size} bytes, {LARGEST} are allowed"));
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    DescriptorPool::decode(bytes.as_slice()).map_err(|error| {
        format!(
            "is not a FileDescriptorSet with all its imports: {error} (protoc --include_imports --descriptor_set_out)"
        )
    })
}

fn compile(files: &[PathBuf], folders: &[PathBuf]) -> Result<DescriptorPool, String> {
    let mut include: Vec<PathBuf> = folders.to_vec();
    if include.is_empty() {
        for folder in files.iter().filter_map(|file| file.parent()) {
            if !include.iter().any(|known| known == folder) {
                include.push(folder.to_owned());
            }
        }
    }
    let mut compiler = Compiler::new(include).map_err(|error| explain(&error))?;
    for file in files {
        compiler.open_file(file).map_err(|error| explain(&error))?;
    }
    Ok(compiler.descriptor_pool())
}

/// The compiler's error with its location, on one line.
fn explain(error: &protox::Error) -> String {
    // `Debug` leads with `file:line:column: `.
    let full = format!("{error:?}");
    let first = full.lines().next().unwrap_or_default().trim().to_owned();
    let plain = error.to_string();
    let mut text = if first.ends_with(&plain) { first } else { plain };
    if text.contains("not found") || text.contains("not in any include path") {
        text.push_str(" (proto_path lists the folders that are searched for imports)");
    }
    text
}
