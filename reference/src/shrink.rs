//! Makes the tape of a program that differs shorter and smaller, as long as it still differs.

use crate::areas::{Area, write};
use crate::{Program, agree, both, differences};

/// Most programs that one shrinking tries.
const TRIES: usize = 2_000;

/// The smallest program found that still differs and is not in the table.
#[must_use]
pub fn shrink(area: &Area, mut tape: Vec<u32>) -> Program {
    let differs = |tape: &[u32]| {
        let program = write(area, tape);
        let (ours, theirs) = both(&program);
        !agree(&ours, &theirs) && differences::find(&program, &ours, &theirs).is_none()
    };
    let mut tries = 0;
    let mut attempt = |candidate: Vec<u32>, tape: &mut Vec<u32>| {
        tries += 1;
        if tries <= TRIES && candidate != *tape && differs(&candidate) {
            *tape = candidate;
            return true;
        }
        false
    };
    let mut size = tape.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at + size <= tape.len() {
            let mut without = tape.clone();
            without.drain(at..at + size);
            let mut zeroed = tape.clone();
            zeroed[at..at + size].fill(0);
            if !attempt(without, &mut tape) && !attempt(zeroed, &mut tape) {
                at += size;
            }
        }
        size /= 2;
    }
    write(area, &tape)
}
