//! Where the code of this process comes from: the program's file and its libraries.

use std::path::Path;

/// A part of a file that is code in memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// The file.
    pub file: String,
}

/// All code, the program's own first. Empty where the system does not say (`proc_pid_maps(5)`).
pub(crate) fn all() -> Vec<Code> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    read(&maps, &program)
}

fn read(maps: &str, program: &Path) -> Vec<Code> {
    let mut all: Vec<Code> = maps.lines().filter_map(line).collect();
    all.sort_by_key(|code| Path::new(&code.file) != program);
    all
}

/// Such as `55d0c8a00000-55d0c8f00000 r-xp 00a00000 08:01 1234    /usr/bin/fanin`.
fn line(line: &str) -> Option<Code> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = words.next()?;
    let file = words.nth(2)?.trim_start();
    if !rights.contains('x') || !file.starts_with('/') {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Code { start: number(start)?, end: number(end)?, offset: number(offset)?, file: file.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_data_and_the_program_comes_first() {
        let maps = "\
7f10a000-7f10b000 r--p 00000000 08:01 77                         /usr/lib/libc.so.6
7f10b000-7f10d000 r-xp 00001000 08:01 77                         /usr/lib/libc.so.6
7f20b000-7f20d000 r-xp 00000000 00:00 0                          [vdso]
7f30b000-7f30d000 rwxp 00000000 00:00 0
8f10b000-8f1fd000 r-xp 00a00000 08:01 78                         /opt/my programs/fanin
not a line
";
        let code = |start, end, offset, file: &str| Code { start, end, offset, file: file.to_owned() };
        let expected = vec![
            code(0x8f10_b000, 0x8f1f_d000, 0xa0_0000, "/opt/my programs/fanin"),
            code(0x7f10_b000, 0x7f10_d000, 0x1000, "/usr/lib/libc.so.6"),
        ];
        assert_eq!(read(maps, Path::new("/opt/my programs/fanin")), expected);
    }
}
