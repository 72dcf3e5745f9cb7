//! `files`: reading files on the pool's own threads, or beside them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::chart::{Axis, Series, bars};
use super::error::LabError;
use super::outcome::{Found, Table, digits, median};
use super::{Context, Experiment};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "files",
    title: "Reading files on other threads than the pool's",
    asked: "The team with coroutines read single files 7.5 % faster asynchronously from an SSD; on a hard disk there \
    was no difference. They also counted the CPU tasks that a pool completes while 400 reads finish, by the share of \
    reads.",
    run,
};

/// Share of reads, time sync and async in ms, CPU tasks done sync and async.
const STORY: [(&str, f64, [u32; 4]); 4] = [
    ("3/4", 0.75, [117, 116, 497, 584]),
    ("1/2", 0.5, [128, 127, 1522, 1652]),
    ("1/4", 0.25, [163, 164, 4958, 4960]),
    ("1/8", 0.125, [230, 238, 11381, 11495]),
];
const READS: usize = 400;
const BLOCK: usize = 16 << 10;
const BLOCKS: usize = 4096;

/// A file whose blocks are read at random, so that the cache and read-ahead do not help.
struct Data {
    path: PathBuf,
    /// Spreads reads over the file; the same in each run.
    next: AtomicUsize,
}

impl Data {
    fn make(dir: &Path) -> Result<Data, LabError> {
        let path = dir.join("blocks");
        let failed = || LabError::io("writing a file of 64 MB");
        let mut file = File::create(&path).map_err(failed())?;
        let mut block = vec![0u8; BLOCK];
        for number in 0..BLOCKS {
            block[..8].copy_from_slice(&(number as u64).to_le_bytes());
            file.write_all(&block).map_err(failed())?;
        }
        file.sync_all().map_err(failed())?;
        let data = Data { path, next: AtomicUsize::new(0) };
        data.forget()?;
        Ok(data)
    }

    /// Has the kernel drop the file from its cache; needs no rights beyond the file's own.
    fn forget(&self) -> Result<(), LabError> {
        let file = File::open(&self.path).map_err(LabError::io("opening the file"))?;
        file.sync_all().map_err(LabError::io("writing the file out"))?;
        for advice in [Advice::DontNeed, Advice::Random] {
            fadvise(&file, 0, None, advice)
                .map_err(|error| LabError::io("dropping the file from the cache")(error.into()))?;
        }
        Ok(())
    }

    /// A block not read since the last [`forget`](Self::forget), as long as there are fewer reads than blocks.
    fn place(&self) -> u64 {
        // 1597 and 4096 have no common divisor: every block comes once.
        (self.next.fetch_add(1, Relaxed).wrapping_mul(1597) % BLOCKS) as u64
    }

    fn read(&self) -> std::io::Result<u64> {
        let place = self.place();
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(place * BLOCK as u64))?;
        let mut block = vec![0; BLOCK];
        file.read_exact(&mut block)?;
        Ok(u64::from(block[0]) + u64::from(block[1]))
    }

    /// The same through tokio: each step goes to its pool of blocking threads.
    async fn read_beside(&self) -> std::io::Result<u64> {
        let place = self.place();
        let mut file = tokio::fs::File::open(&self.path).await?;
        file.seek(SeekFrom::Start(place * BLOCK as u64)).await?;
        let mut block = vec![0; BLOCK];
        file.read_exact(&mut block).await?;
        Ok(u64::from(block[0]) + u64::from(block[1]))
    }
}

/// About 20 microseconds of work.
fn compute(seed: u64) -> u64 {
    let mut x = seed | 1;
    for _ in 0..12_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// Whether task number `at` of the mix is a read.
fn is_read(at: usize, share: f64) -> bool {
    ((at + 1) as f64 * share).floor() > (at as f64 * share).floor()
}

/// Milliseconds until `READS` reads are done by a pool of `threads` which takes reads and CPU tasks from one mix, and CPU tasks done.
fn mixed(data: &Arc<Data>, threads: usize, share: f64, beside: bool) -> Result<(f64, usize), LabError> {
    data.forget()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(threads)
        .enable_all()
        .build()
        .map_err(LabError::io("a runtime"))?;
    let (next, begun, done, computed) =
        (AtomicUsize::new(0), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let failed: Arc<Mutex<Option<std::io::Error>>> = Arc::default();
    let stop = AtomicBool::new(false);
    let note = |failed: &Mutex<Option<std::io::Error>>, error| {
        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let at = next.fetch_add(1, Relaxed);
                    if is_read(at, share) && begun.fetch_add(1, Relaxed) < READS {
                        if beside {
                            let (data, done, failed) = (data.clone(), done.clone(), failed.clone());
                            runtime.spawn(async move {
                                match data.read_beside().await {
                                    Ok(value) => drop(std::hint::black_box(value)),
                                    Err(error) => note(&failed, error),
                                }
                                done.fetch_add(1, Relaxed);
                            });
                        } else {
                            match data.read() {
                                Ok(value) => drop(std::hint::black_box(value)),
                                Err(error) => note(&failed, error),
                            }
                            done.fetch_add(1, Relaxed);
                        }
                    } else {
                        std::hint::black_box(compute(at as u64));
                        computed.fetch_add(1, Relaxed);
                    }
                    if done.load(Relaxed) >= READS {
                        stop.store(true, Relaxed);
                    }
                }
            });
        }
    });
    let took = start.elapsed().as_secs_f64() * 1e3;
    match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(LabError::io("reading the file")(error)),
        None => Ok((took, computed.load(Relaxed))),
    }
}

/// Microseconds of single reads, one after another: blocking, and through tokio.
fn single(data: &Data, reads: usize) -> Result<(f64, f64), LabError> {
    let failed = || LabError::io("reading the file");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    let (mut blocking, mut beside) = (Vec::new(), Vec::new());
    data.forget()?;
    for _ in 0..reads {
        let start = Instant::now();
        std::hint::black_box(data.read().map_err(failed())?);
        blocking.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        std::hint::black_box(runtime.block_on(data.read_beside()).map_err(failed())?);
        beside.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok((median(&blocking), median(&beside)))
}

fn run(context: &Context) -> Result<Found, LabError> {
    let dir = super::scratch()?;
    let data = Arc::new(Data::make(dir.path())?);
    let (blocking, beside) = single(&data, context.pick(200, 1500))?;
    let threads = super::process::cores().len();
    let turns = context.pick(5, 21);
    let mut found = Found::default();
    let mut singles = Table::new(
        "a single read of 16 KB that is not in the cache, median",
        &["", "blocking us", "asynchronous us", "difference", "story, SSD"],
    );
    singles.row([
        "one read".to_owned(),
        digits(blocking),
        digits(beside),
        format!("{:+.1} %", (beside / blocking - 1.0) * 100.0),
        "-7.5 %".to_owned(),
    ]);
    let mut table = Table::new(
        format!("until {READS} reads are done, on a pool of {threads} threads, medians of {turns} turns"),
        &[
            "share of reads",
            "ms sync / async",
            "CPU tasks sync",
            "CPU tasks async",
            "CPU tasks a ms",
            "story ms sync / async",
            "story CPU tasks sync / async",
            "story CPU tasks a ms",
        ],
    );
    let (mut ours, mut theirs, mut gains) = (Vec::new(), Vec::new(), Vec::new());
    for (group, (name, share, story)) in STORY.iter().enumerate() {
        let mut figures = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..turns {
            for (at, asynchronous) in [false, true].into_iter().enumerate() {
                let (took, tasks) = mixed(&data, threads, *share, asynchronous)?;
                figures[at].push(took);
                figures[at + 2].push(tasks as f64);
            }
        }
        let [sync_ms, async_ms, sync_tasks, async_tasks] = figures.map(|list| median(&list));
        let gain = |tasks: [f64; 2], times: [f64; 2]| ((tasks[1] / times[1]) / (tasks[0] / times[0]) - 1.0) * 100.0;
        let our_gain = gain([sync_tasks, async_tasks], [sync_ms, async_ms]);
        let [story_sync_ms, story_async_ms, story_sync, story_async] = story.map(f64::from);
        let story_gain = gain([story_sync, story_async], [story_sync_ms, story_async_ms]);
        table.row([
            (*name).to_owned(),
            format!("{} / {}", digits(sync_ms), digits(async_ms)),
            format!("{sync_tasks:.0}"),
            format!("{async_tasks:.0}"),
            format!("{our_gain:+.0} %"),
            format!("{story_sync_ms} / {story_async_ms}"),
            format!("{story_sync} / {story_async}"),
            format!("{story_gain:+.0} %"),
        ]);
        ours.push((group as f64, our_gain));
        theirs.push((group as f64, story_gain));
        gains.push(our_gain);
    }
    found.tables = vec![singles, table];
    let svg = bars(
        "CPU tasks a millisecond: asynchronous reads against blocking ones",
        &STORY.map(|(name, ..)| name),
        Axis::even("% more"),
        &[Series::new("here", ours), Series::story("story", theirs)],
    );
    found
        .plots
        .push(("The larger the share of reads, the more a pool gains when they do not hold its threads.".into(), svg));
    found.shows = format!(
        "A single read takes {:+.0} % when another thread does it. In a pool where three of four tasks are reads, \
        this changes the CPU tasks per millisecond by {:+.0} % (story: +19 %).",
        (beside / blocking - 1.0) * 100.0,
        gains[0]
    );
    found.measured(format!(
        "A file of 64 MB, read in blocks of 16 KB in random order, each once. Before each round the kernel drops it \
        from its cache. A pool with one thread per core ({threads}) runs a mix of reads and CPU tasks of about 20 us \
        each. CPU tasks are counted until {READS} reads are done. Blocking: the pool's thread reads. Asynchronous: \
        tokio's file API reads on its own {threads} threads."
    ));
    found.note(
        "Asynchronous file reads are blocking reads on other threads: so works tokio's file API. io_uring needs no \
        threads, but its crates need `unsafe` or a runtime of their own.",
    );
    found.note("On a virtual machine the host may cache the file, so a read can be faster than the disk.");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_its_share_of_reads() {
        for (_, share, _) in STORY {
            let reads = (0..8000).filter(|at| is_read(*at, share)).count();
            assert_eq!(reads, (8000.0 * share) as usize);
        }
    }

    #[test]
    fn all_reads_are_done_both_ways() {
        let dir = tempfile::tempdir().unwrap();
        let data = Arc::new(Data::make(dir.path()).unwrap());
        for beside in [false, true] {
            let (_, tasks) = mixed(&data, 2, 0.25, beside).unwrap();
            assert!(tasks >= READS * 2, "{tasks} CPU tasks");
        }
    }
}
