//! `threads`: the same tasks on pools of 1 to 4096 threads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::chart::{Axis, Series, lines};
use super::error::LabError;
use super::outcome::{Found, Table, mean_and_deviation, median};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "threads",
    title: "Many threads cost no CPU by being many",
    asked: "A job site wanted 600 threads on each server. Does switching between them cost anything? The story ran \
    16,384 tasks of 600,000 random additions each, on pools of 1 to 4096 threads and 4 cores.",
    run,
};

/// Threads, and the story's mean in milliseconds and its difference to the row of 4 threads, per cent.
const STORY: [(usize, f64, f64); 13] = [
    (1, 109_152.0, 287.70),
    (2, 55_072.0, 95.61),
    (4, 28_153.0, 0.0),
    (8, 28_142.0, -0.04),
    (16, 28_141.0, -0.04),
    (32, 28_152.0, 0.0),
    (64, 28_149.0, -0.01),
    (128, 28_146.0, -0.02),
    (256, 28_146.0, -0.03),
    (512, 28_148.0, -0.02),
    (1024, 28_146.0, -0.03),
    (2048, 28_157.0, 0.01),
    (4096, 28_160.0, 0.02),
];
const TASKS: usize = 16_384;
/// Of one task.
const STORY_ADDITIONS: u32 = 600_000;
const WARM_UP: u32 = 20_000;
/// As the story says that it often is enough.
const STACK: usize = 512 << 10;
const BAR: f64 = 2.0;

/// Adds random numbers, so many, and gives the sum lest the compiler leave it out. The generator is SplitMix64 (Steele, Lea and
/// Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
fn additions(count: u32, seed: u64) -> u64 {
    let (mut state, mut sum) = (seed, 0u64);
    for _ in 0..count {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        sum = sum.wrapping_add(mixed ^ (mixed >> 31));
    }
    sum
}

/// Threads that take tasks from a queue until it is empty, again and again.
struct Pool {
    threads: Vec<std::thread::JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The next task's number; at `TASKS` the queue is empty.
    next: Mutex<usize>,
    finished: AtomicUsize,
    sum: AtomicUsize,
    additions: u32,
    done: Condvar,
    /// When the first thread could start, and when the last task ended: told by the threads that were there, since whoever
    /// waits for them may be woken long after on a busy machine.
    begun: OnceLock<Instant>,
    took: Mutex<Option<Duration>>,
    start: Barrier,
}

impl Pool {
    fn new(size: usize, count: u32) -> Result<Pool, LabError> {
        let shared = Arc::new(Shared {
            next: Mutex::new(0),
            finished: AtomicUsize::new(0),
            sum: AtomicUsize::new(0),
            additions: count,
            done: Condvar::new(),
            begun: OnceLock::new(),
            took: Mutex::new(None),
            start: Barrier::new(size),
        });
        let mut threads = Vec::with_capacity(size);
        for _ in 0..size {
            let mine = shared.clone();
            let builder = std::thread::Builder::new().name("lab-pool".to_owned()).stack_size(STACK);
            let thread = builder.spawn(move || mine.work());
            threads.push(thread.map_err(LabError::io(format!("thread {} of {size}", threads.len() + 1)))?);
        }
        Ok(Pool { threads, shared })
    }

    /// Milliseconds from the moment when all threads are ready to the end of the last task.
    fn run(self) -> f64 {
        let took = self.shared.took.lock().unwrap_or_else(PoisonError::into_inner);
        let took = self.shared.done.wait_while(took, |took| took.is_none()).unwrap_or_else(PoisonError::into_inner);
        let took = took.unwrap_or_default().as_secs_f64() * 1e3;
        for thread in self.threads {
            let _ = thread.join();
        }
        std::hint::black_box(self.shared.sum.load(Relaxed));
        took
    }
}

impl Shared {
    fn work(&self) {
        self.start.wait();
        self.begun.get_or_init(Instant::now);
        loop {
            let task = {
                let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
                *next += 1;
                *next
            };
            if task > TASKS {
                return;
            }
            let sum = additions(self.additions, task as u64);
            self.sum.fetch_add(sum as usize, Relaxed);
            if self.finished.fetch_add(1, Relaxed) + 1 == TASKS {
                let took = self.begun.get().map_or(Duration::ZERO, Instant::elapsed);
                *self.took.lock().unwrap_or_else(PoisonError::into_inner) = Some(took);
                self.done.notify_all();
            }
        }
    }
}

fn run(context: &Context) -> Result<Found, LabError> {
    let (count, runs) = context.pick((60_000, 5), (STORY_ADDITIONS, 3));
    let cores = super::process::cores().len();
    for (threads, ..) in STORY {
        Pool::new(threads, WARM_UP)?.run();
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); STORY.len()];
    for turn in 0..runs {
        for (row, (threads, ..)) in STORY.iter().enumerate() {
            // With fewer threads than cores it takes long and tells the same each time.
            if turn == 0 || *threads >= cores {
                times[row].push(Pool::new(*threads, count)?.run());
            }
        }
    }
    let medians: Vec<f64> = times.iter().map(|row| median(row)).collect();
    // The story compares with its 4 cores; here with the row that has a thread for each core.
    let base = STORY.iter().position(|(threads, ..)| *threads >= cores).unwrap_or(0);
    let best = medians.iter().copied().fold(f64::INFINITY, f64::min);

    let mut found = Found::default();
    let against = format!("against {} threads", STORY[base].0);
    let mut table = Table::new(
        format!("{TASKS} tasks of {count} random additions on {cores} cores"),
        &["threads", "mean ms", "st. dev.", &against, "story mean ms", "story against 4 threads"],
    );
    for (row, (threads, story, change)) in STORY.iter().enumerate() {
        let (mean, deviation) = mean_and_deviation(&times[row]);
        let ours = (medians[row] / medians[base] - 1.0) * 100.0;
        table.row([
            threads.to_string(),
            format!("{mean:.0}"),
            if times[row].len() > 1 { format!("{deviation:.1}") } else { String::new() },
            format!("{ours:+.2} %"),
            format!("{story:.0}"),
            format!("{change:+.2} %"),
        ]);
    }
    found.tables.push(table);
    let worst = (medians[STORY.len() - 1] / best - 1.0) * 100.0;
    found.at_most("4096 threads against the best row (medians)", worst.max(0.0), BAR, " %");
    let relative = |values: Vec<f64>, base: f64| -> Vec<(f64, f64)> {
        STORY.iter().zip(values).map(|((threads, ..), value)| (*threads as f64, value / base)).collect()
    };
    let story = relative(STORY.iter().map(|row| row.1).collect(), STORY[2].1);
    let svg = lines(
        "Time of the same work by size of the pool, against one thread a core",
        Axis::log("threads"),
        Axis::even("times as long"),
        &[
            Series::new(format!("here, {cores} cores"), relative(medians.clone(), medians[base])),
            Series::story("story, 4 cores", story),
        ],
    );
    found.plots.push((
        "Beyond one thread per core the line is flat: only the work costs CPU, not the number of threads.".into(),
        svg,
    ));
    found.shows = format!(
        "{TASKS} tasks take as long on 4096 threads as on {} ({:+.2} %; story: +0.02 %): waiting threads cost memory, \
        not CPU.",
        STORY[base].0,
        (medians[STORY.len() - 1] / medians[base] - 1.0) * 100.0
    );
    found.measured(format!(
        "Each pool takes {TASKS} tasks from one queue; The time runs from when all its threads are ready to the end \
        of the last task. After a short warm-up of all pools there are {runs} measured rounds. Each round runs every \
        pool once, so a disturbance hits all rows alike (pools smaller than the machine run once in all). Comparisons \
        are between medians. Random numbers are \
         SplitMix64, stacks {} KiB.",
        STACK >> 10
    ));
    if count != STORY_ADDITIONS {
        found.note(format!(
            "A task here is {count} additions, not the story's {STORY_ADDITIONS}, so that the run is short. Switches \
            weigh more then, and so does other load of the machine."
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once_whatever_the_pool() {
        let expected =
            (1..=TASKS as u64).map(|task| additions(3, task)).fold(0usize, |sum, x| sum.wrapping_add(x as usize));
        for size in [1, 7] {
            let pool = Pool::new(size, 3).unwrap();
            let shared = pool.shared.clone();
            assert!(pool.run() > 0.0);
            assert_eq!(shared.sum.load(Relaxed), expected);
            assert_eq!(shared.finished.load(Relaxed), TASKS);
        }
    }
}
