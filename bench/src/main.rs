//! All benchmarks of the project. `bench/run NAME` builds and runs one; `bench/README.md` describes them.
//!
//! | module | content |
//! |---|---|
//! | `cost`, `cold`, `inflight`, `overload`, `rolling`, … | one benchmark each, named as its entry of the command line |
//! | `baseline` | the hand-written aggregator that `cost` compares with |
//! | `stub`, `load` | the backend, and the closed-loop load |
//! | `process`, `servers`, `cgroup` | starting what is measured, and reading its CPU and memory |
//! | `interleaved`, `workload` | interleaved measurement of several servers, and what is requested of them |
//! | `sampler`, `stalls`, `core_speed` | disturbances by the machine itself |
//! | `report` | tables and bars |

mod baseline;
mod cgroup;
mod cold;
mod core_speed;
mod cost;
mod cost_sweep;
mod eval;
mod grpc;
mod hold;
mod hostile;
mod inflight;
mod interleaved;
mod linear;
mod load;
mod models;
mod overload;
mod peers;
mod process;
mod progressive;
mod prove;
mod prove_replay;
mod push;
mod report;
mod rolling;
mod sampler;
mod see;
mod servers;
mod shop;
mod sql;
mod stalls;
mod start;
mod stream;
mod stub;
mod suspended;
mod workload;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use report::Report;
use workload::Workload;

#[global_allocator]
static ALLOCATOR: fanin_heap::Mimalloc = fanin_heap::Mimalloc;

/// Why a benchmark has no figures.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Benchmarks of Fanin
///
/// Each prints its tables and its bars, and exits with 1 if a bar is missed, 2 if it could not be measured.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What every benchmark takes.
#[derive(Clone, Debug, Args)]
struct Options {
    /// Fewer and shorter windows: the same figures with more noise
    #[arg(long)]
    quick: bool,
    /// Also write every measurement to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// CPU time of a request, as a ratio to a hand-written baseline
    ///
    /// Example: bench/run cost --quick --workload page
    Cost {
        #[command(flatten)]
        options: Options,
        /// Also measure these peers (all that are installed if none is named)
        #[arg(long, value_name = "NAME", num_args = 0.., value_delimiter = ',')]
        peers: Option<Vec<String>>,
        /// What is compared with the baseline: `fanin`, or `baseline` to see the noise of this machine
        #[arg(long, default_value = "fanin")]
        subject: String,
        /// Another build of `fanin`, whose CPU this one may exceed by 1 %
        #[arg(long, value_name = "PROGRAM")]
        before: Option<PathBuf>,
        /// Only these workloads: page, search, raw
        #[arg(long, alias = "work", value_delimiter = ',')]
        workload: Vec<String>,
        /// Pairs of windows of each server and work
        #[arg(long)]
        pairs: Option<usize>,
        /// Instead: how the cost grows with calls, body size, decoded items, and requests in flight
        #[arg(long, conflicts_with_all = ["peers", "workload", "pairs", "before"])]
        sweep: bool,
    },
    /// Latency of the first 256 clients of a server that has just started
    ///
    /// Example: bench/run cold
    Cold {
        #[command(flatten)]
        options: Options,
    },
    /// Memory and threads of 20,000 requests whose upstream never answers
    ///
    /// Example: bench/run inflight --quick
    Inflight {
        #[command(flatten)]
        options: Options,
    },
    /// Whether the guarantees O1 to O14 hold under overload
    ///
    /// Example: bench/run overload --only O1,O6
    Overload {
        #[command(flatten)]
        options: Options,
        /// Run for the durations that the bars name: an hour for O11
        #[arg(long)]
        full: bool,
        /// Only these: `O1,O6`
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Failed requests while three endpoints of an upstream restart one by one, and one stops without closing its connections
    ///
    /// Example: bench/run rolling
    Rolling {
        #[command(flatten)]
        options: Options,
    },
    /// Cost of one page written in five ways, with recommendations healthy, slow and hanging
    ///
    /// Example: bench/run shop --recommendations slow
    Shop {
        #[command(flatten)]
        options: Options,
        /// Only these: healthy, slow, hanging
        #[arg(long, value_delimiter = ',')]
        recommendations: Vec<String>,
    },
    /// Latency of other requests while ten programs use up their limits
    ///
    /// Example: bench/run hostile --only nested,words
    Hostile {
        #[command(flatten)]
        options: Options,
        /// Only these programs: `nested,words`
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Ordinary requests while hostile clients attack in eighteen ways
    Hold {
        #[command(flatten)]
        options: Options,
        /// Only these attacks: `slow-read,window-0`
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
    },
    /// A search for inputs whose work grows faster than their size, or that hold a worker too long
    ///
    /// Example: bench/run linear --only query,json --cases 5000
    Linear {
        #[command(flatten)]
        options: Options,
        /// Only these kinds of input: `query,json`
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
        /// Inputs of each kind
        #[arg(long)]
        cases: Option<usize>,
        /// Another one tries other inputs
        #[arg(long, default_value_t = 7)]
        seed: u64,
    },
    /// Throughput and memory of a large body that is passed on, beside nginx
    ///
    /// Example: bench/run stream --quick
    Stream {
        #[command(flatten)]
        options: Options,
    },
    /// Memory of 100,000 subscribers, the time until an event reaches the last of 10,000, and what publishing takes
    ///
    /// Example: bench/run push --quick
    Push {
        #[command(flatten)]
        options: Options,
    },
    /// Subscribers of a channel (a role, started by `push`)
    #[command(hide = true)]
    PushSubscribers {
        #[command(flatten)]
        plan: push::subscribers::Plan,
    },
    /// How soon the first part of a page comes, and what parts add to the CPU of a plain answer
    ///
    /// Example: bench/run progressive --quick
    Progressive {
        #[command(flatten)]
        options: Options,
    },
    /// The backend of `stream`
    #[command(hide = true)]
    Large {
        /// Bytes of its body
        #[arg(long)]
        size: u64,
    },
    /// How long a thousand tests of flows take, and trying all failures of the shop's page; how many seeded bugs that finds
    ///
    /// Example: bench/run prove --quick
    Prove {
        #[command(flatten)]
        options: Options,
    },
    /// What seeing costs: the flight recorder, traces, the dashboard; and how soon editors have diagnostics
    ///
    /// Example: bench/run see --quick
    See {
        #[command(flatten)]
        options: Options,
        /// Also compare with this build of `fanin`, from before
        #[arg(long, value_name = "PROGRAM")]
        before: Option<PathBuf>,
        /// The test program that compares predictions with the truth; bench/run builds it
        #[arg(long, value_name = "PROGRAM", hide = true)]
        predictions: Option<PathBuf>,
    },
    /// Time from the start of the process until it is ready
    ///
    /// Example: bench/run start
    Start {
        #[command(flatten)]
        options: Options,
    },
    /// CPU of evaluating flows without I/O, as a ratio to the starlark crate
    ///
    /// Example: bench/run eval --quick
    Eval {
        #[command(flatten)]
        options: Options,
        /// The program of bench/starlark; beside this one if not given
        #[arg(long, value_name = "PROGRAM")]
        other: Option<PathBuf>,
    },
    /// Models over gRPC: cost, deadlines, 2,000 clients during version swaps, an instance that stops
    ///
    /// Example: bench/run models --only cost,deadline
    Models {
        #[command(flatten)]
        options: Options,
        /// The fleet for the ten minutes that its bar names
        #[arg(long)]
        full: bool,
        /// Only these: `cost,mlserver,deadline,fleet,vanish`
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
    },
    /// CPU of a unary call whose flow returns its argument, as a ratio to a bare tonic echo
    ///
    /// Example: bench/run grpc --quick
    Grpc {
        #[command(flatten)]
        options: Options,
    },
    /// The bare tonic echo of pages (a role, started by `grpc`)
    #[command(hide = true)]
    TonicPage {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// The bare tonic echo (a role, started by `models`)
    #[command(hide = true)]
    TonicEcho {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// A database at three times its capacity, killed, and the CPU of a request
    ///
    /// Example: bench/run sql --quick --plot sql.svg
    Sql {
        #[command(flatten)]
        options: Options,
        /// Where the picture goes
        #[arg(long, value_name = "FILE", default_value = "sql.svg")]
        plot: PathBuf,
    },
    /// Queries by hand on hyper and tokio-postgres (a role, started by `sql`)
    #[command(hide = true)]
    SqlDirect {
        #[arg(long)]
        database: String,
    },
    /// Queries on blocking threads (a role, started by `sql`)
    #[command(hide = true)]
    SqlBlocking {
        #[arg(long)]
        database: String,
    },
    /// Our side of `eval` (a role, started by it)
    #[command(hide = true)]
    EvalOurs { program: String, count: u32 },
    /// What a suspended flow takes (a role, started by `inflight`)
    #[command(hide = true)]
    Suspended {
        count: usize,
        #[arg(long)]
        alone: bool,
    },
    /// The backend (a role, started by the benchmarks)
    #[command(hide = true)]
    Stub {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// The HTTP/2 backend (a role, started by the benchmarks)
    #[command(hide = true)]
    Stub2 {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// The hand-written aggregator (a role, started by the benchmarks)
    #[command(hide = true, alias = "limit")]
    Baseline {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        #[arg(long)]
        backend: SocketAddr,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(pass) => {
            if pass {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<bool, Failure> {
    match command {
        Command::Cost { options, sweep: true, .. } => show(&options, cost_sweep::run(&options)?),
        Command::Cost { options, peers, subject, before, workload, pairs, sweep: false } => {
            let if_installed = peers.as_ref().is_some_and(Vec::is_empty);
            let peers = if if_installed { peers::NAMES.map(String::from).to_vec() } else { peers.unwrap_or_default() };
            let plans = cost::Plans { subject, before, peers, if_installed, workloads: workloads(&workload)?, pairs };
            show(&options, cost::run(&options, &plans)?)
        }
        Command::Eval { options, other } => show(&options, eval::run(&options, other)?),
        Command::Sql { options, plot } => show(&options, sql::run(&options, &plot)?),
        Command::SqlDirect { database } => {
            sql::direct::run(SocketAddr::from(([127, 0, 0, 1], 0)), &database, ready)?;
            Ok(true)
        }
        Command::SqlBlocking { database } => {
            sql::blocking::run(SocketAddr::from(([127, 0, 0, 1], 0)), &database, ready)?;
            Ok(true)
        }
        Command::EvalOurs { program, count } => {
            let (nanos, result) = eval::ours(&program, count)?;
            println!("{nanos}\n{result}");
            Ok(true)
        }
        Command::Suspended { count, alone } => {
            println!("{}", suspended::bytes(count, alone)?);
            Ok(true)
        }
        Command::Stub { listen } => {
            let stub = stub::Stub::bind(listen)?;
            ready(stub.local_addr()?);
            stub.run()?;
            Ok(true)
        }
        Command::Stub2 { listen } => {
            stub::http2::run(listen, ready)?;
            Ok(true)
        }
        Command::Models { options, full, only } => {
            show(&options, models::run(&options, &models::Plans { full, only })?)
        }
        Command::Grpc { options } => show(&options, grpc::run(&options)?),
        Command::TonicPage { listen } => {
            grpc::serve(listen, ready)?;
            Ok(true)
        }
        Command::TonicEcho { listen } => {
            models::echo::run(listen, ready)?;
            Ok(true)
        }
        Command::Cold { options } => show(&options, cold::run(&options)?),
        Command::Hostile { options, only } => show(&options, hostile::run(&options, &only)?),
        Command::Hold { options, only } => show(&options, hold::run(&options, &only)?),
        Command::Linear { options, only, cases, seed } => show(&options, linear::run(&options, &only, cases, seed)?),
        Command::Inflight { options } => show(&options, inflight::run(&options)?),
        Command::Overload { options, full, only } => show(&options, overload::run(&overload::Plans { full, only })?),
        Command::Rolling { options } => show(&options, rolling::run(&options)?),
        Command::See { options, before, predictions } => {
            show(&options, see::run(&options, &see::Plans { before, predictions })?)
        }
        Command::Shop { options, recommendations } => show(&options, shop::run(&options, &recommendations)?),
        Command::Prove { options } => show(&options, prove::run(&options)?),
        Command::Start { options } => show(&options, start::run(&options)?),
        Command::Stream { options } => show(&options, stream::run(&options)?),
        Command::Progressive { options } => show(&options, progressive::run(&options)?),
        Command::Push { options } => show(&options, push::run(&options)?),
        Command::PushSubscribers { plan } => {
            push::subscribers::run(plan)?;
            Ok(true)
        }
        Command::Large { size } => {
            stream::serve(size, ready)?;
            Ok(true)
        }
        Command::Baseline { listen, backend } => {
            baseline::run(listen, backend, ready)?;
            Ok(true)
        }
    }
}

fn workloads(names: &[String]) -> Result<Vec<Workload>, Failure> {
    if names.is_empty() {
        return Ok(Workload::ALL.to_vec());
    }
    let find = |name: &String| Workload::ALL.into_iter().find(|work| work.name() == name);
    names.iter().map(|name| find(name).ok_or_else(|| Failure::Usage(format!("no work `{name}`")))).collect()
}

fn show(options: &Options, report: Report) -> Result<bool, Failure> {
    print!("{}", report.text());
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(report.pass())
}

/// Tells whoever started this role where it listens.
fn ready(addr: SocketAddr) {
    println!("{addr}");
    // A closed pipe means that nobody waits for the line.
    drop(std::io::stdout().flush());
}
