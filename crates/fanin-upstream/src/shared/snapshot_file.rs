//! A snapshot's dump on disk: a line of JSON that describes it, then the answer's bytes.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fanin_config::Snapshot;
use fanin_json::{Doc, Writer};

use super::snapshot_table::SnapshotTable;

/// Writes the dump to a new file and renames it, so that a crash leaves the old or the new one.
pub(crate) fn write(path: &Path, config: &Snapshot, table: &SnapshotTable) -> io::Result<()> {
    let fetched = table.fetched().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut head = Vec::new();
    let mut writer = Writer::new(&mut head);
    writer.begin_object();
    writer.key("snapshot");
    writer.str(&config.path);
    writer.key("fetched");
    writer.int(i64::try_from(fetched).unwrap_or(i64::MAX));
    writer.end_object();
    head.push(b'\n');
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(&head)?;
        file.write_all(table.doc().bytes())?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        // The file is incomplete.
        let _ = fs::remove_file(&beside);
    }
    placed
}

/// Reads a dump; `None` if there is no file.
///
/// # Errors
/// Why the file cannot be used: it is of another snapshot, too large, or broken.
pub(crate) fn read(path: &Path, config: &Snapshot, most: usize) -> Result<Option<SnapshotTable>, String> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    // The first line is far shorter than this.
    let most = most.saturating_add(64 * 1024);
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err("it is larger than max_answer allows".into());
    }
    let bytes = Bytes::from(bytes);
    let line = bytes.iter().position(|byte| *byte == b'\n').ok_or("it is not a dump of a snapshot")?;
    let head = Doc::parse(bytes.slice(..line), 4).map_err(|_| "it is not a dump of a snapshot")?;
    let of = head.root().get("snapshot").and_then(|path| path.as_str());
    if of.as_deref() != Some(&config.path) {
        return Err(format!("it is the dump of {}", of.as_deref().unwrap_or("something else")));
    }
    let fetched = head.root().get("fetched").and_then(|fetched| fetched.as_i64()).unwrap_or_default();
    let fetched = UNIX_EPOCH + Duration::from_secs(u64::try_from(fetched).unwrap_or_default());
    SnapshotTable::read(bytes.slice(line + 1..), config, fetched.min(SystemTime::now())).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Snapshot {
        Snapshot::new("/masks?x=\"1\"")
    }

    #[test]
    fn a_written_dump_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/masks.dump");
        assert!(read(&path, &config(), 1000).unwrap().is_none());
        let fetched = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for text in [r#"{"a": 1.50}"#, "{}"] {
            write(&path, &config(), &SnapshotTable::read(text.into(), &config(), fetched).unwrap()).unwrap();
            let table = read(&path, &config(), 1000).unwrap().unwrap();
            assert_eq!((table.doc().bytes().as_ref(), table.fetched()), (text.as_bytes(), fetched));
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_is_no_dump_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("masks.dump");
        for (text, problem) in [
            ("", "not a dump"),
            ("hello\nworld", "not a dump"),
            ("{\"snapshot\":\"/other\",\"fetched\":1}\n{}", "the dump of /other"),
            ("{\"snapshot\":\"/masks?x=\\\"1\\\"\",\"fetched\":1}\n{\"a\": ", "not JSON"),
        ] {
            fs::write(&path, text).unwrap();
            let error = read(&path, &config(), 1000).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
        fs::write(&path, vec![b'x'; 70_000]).unwrap();
        assert!(read(&path, &config(), 1000).unwrap_err().contains("larger"));
    }
}
