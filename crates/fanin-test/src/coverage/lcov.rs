//! The tracefile of lcov (`man geninfo`), which coverage services read.

use std::fmt::Write;

use super::Coverage;

/// All files as one tracefile.
pub(super) fn lcov(coverage: &Coverage) -> String {
    let mut text = String::new();
    for (name, file) in &coverage.files {
        let _ = writeln!(text, "TN:\nSF:{name}");
        let functions = file.functions();
        for (function, (line, _)) in &functions {
            let _ = writeln!(text, "FN:{line},{function}");
        }
        for (function, (_, count)) in &functions {
            let _ = writeln!(text, "FNDA:{count},{function}");
        }
        let hit = functions.values().filter(|(_, count)| *count > 0).count();
        let _ = writeln!(text, "FNF:{}\nFNH:{hit}", functions.len());
        let branches = file.branches();
        for (line, taken, count) in &branches {
            let _ = writeln!(text, "BRDA:{line},0,{},{count}", u8::from(!*taken));
        }
        let share = file.branch_share();
        let _ = writeln!(text, "BRF:{}\nBRH:{}", share.all, share.hit);
        for (line, count) in file.lines() {
            let _ = writeln!(text, "DA:{line},{count}");
        }
        let share = file.line_share();
        let _ = writeln!(text, "LF:{}\nLH:{}\nend_of_record", share.all, share.hit);
    }
    text
}
