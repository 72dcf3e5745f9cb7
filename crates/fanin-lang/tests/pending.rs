//! The property that all else rests on: whatever is pending, and in whatever order it comes, a
//! program has the same result, the same failure and the same effects as with all values there.

mod generate;

use std::cell::RefCell;
use std::rc::Rc;

use fanin_lang::testing::{TestHost, program, run};
use fanin_lang::{Failure, Limits, Program};
use proptest::prelude::*;

use self::generate::{echo, write};

type Ran = (Result<String, Box<Failure>>, Vec<String>);

fn go(program: &Program, at_once: Box<dyn FnMut() -> bool>, pick: &mut dyn FnMut(usize) -> usize) -> Ran {
    let mut host = TestHost::new(program, Box::new(echo), at_once);
    let limits = Limits { steps: 300_000, ..Limits::default() };
    let result = run(program, "main", vec![], limits, &mut host, pick);
    let writes = host.sent.iter().filter(|sent| sent.contains(".post")).cloned().collect();
    (result, writes)
}

fn check(tape: &[u32], seed: u64) -> Result<(), TestCaseError> {
    let text = write(tape, false);
    let program = program(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
    let expected = go(&program, Box::new(|| true), &mut |_| 0);
    let limited = |ran: &Ran| matches!(&ran.0, Err(failure) if failure.kind == fanin_lang::Kind::Limit);
    if limited(&expected) {
        return Ok(());
    }
    let state = Rc::new(RefCell::new(seed | 1));
    let random = move || {
        let mut x = state.borrow_mut();
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x >> 11
    };
    for round in 0..6 {
        let coin = random.clone();
        let order = random.clone();
        let got = match round {
            0 => go(&program, Box::new(|| false), &mut |_| 0),
            1 => go(&program, Box::new(|| false), &mut |open| open - 1),
            2 | 3 => go(&program, Box::new(|| false), &mut |open| (order() % open as u64) as usize),
            _ => go(&program, Box::new(move || coin() % 2 == 0), &mut |open| (order() % open as u64) as usize),
        };
        if limited(&got) {
            continue;
        }
        prop_assert_eq!(&got, &expected, "round {}\n{}", round, text);
    }
    Ok(())
}

fn cases() -> u32 {
    std::env::var("FANIN_PENDING_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pending_values_change_nothing(tape in prop::collection::vec(any::<u32>(), 20..600), seed in any::<u64>()) {
        check(&tape, seed)?;
    }
}

#[test]
fn the_generator_writes_programs_that_mostly_work() {
    let (mut worked, mut waited) = (0, 0);
    for seed in 0..300_u32 {
        let tape: Vec<u32> = (0..400_u32).map(|at| (seed * 7919 + at).wrapping_mul(2_654_435_761) >> 7).collect();
        let program = program(&write(&tape, false)).expect("it loads");
        let mut host = TestHost::new(&program, Box::new(echo), Box::new(|| false));
        let result = run(&program, "main", vec![], Limits::default(), &mut host, &mut |_| 0);
        if std::env::var_os("FANIN_PENDING_SHOW").is_some() {
            println!("{} {:?}", host.sent.len(), result.as_ref().map_err(|failure| &failure.message));
        }
        worked += u32::from(result.is_ok());
        waited += u32::from(host.sent.len() > 5);
    }
    assert!(worked > 60, "only {worked} of 300 programs worked");
    assert!(waited > 150, "only {waited} of 300 programs made calls");
}
