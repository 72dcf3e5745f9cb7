//! Every benchmark of the project. `bench/run NAME` builds and calls it; `bench/README.md` says what each means.

mod bystander;
mod cgroup;
mod cold;
mod cost;
mod eval;
mod hold;
mod hostile;
mod inflight;
mod limit;
mod load;
mod models;
mod overload;
mod pace;
mod peers;
mod process;
mod report;
mod rolling;
mod servers;
mod shop;
mod sql;
mod start;
mod stub;
mod suspended;
mod sweep;
mod turns;
mod work;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use report::Report;
use work::Work;

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

/// Benchmarks of Fanin.
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
    /// CPU time a request, against the hand-written limit
    Cost {
        #[command(flatten)]
        options: Options,
        /// Also measure these peers (all that are installed if none is named)
        #[arg(long, value_name = "NAME", num_args = 0.., value_delimiter = ',')]
        peers: Option<Vec<String>>,
        /// What is compared with the limit: `fanin`, or `limit` to see the noise
        #[arg(long, default_value = "fanin")]
        subject: String,
        /// Only these works: page, search, raw
        #[arg(long, value_delimiter = ',')]
        work: Vec<String>,
        /// Pairs of windows of each server and work
        #[arg(long)]
        pairs: Option<usize>,
        /// Instead: how the cost grows with calls, size, what is looked at, and what is in flight
        #[arg(long, conflicts_with_all = ["peers", "work", "pairs"])]
        sweep: bool,
    },
    /// 256 clients at once on a server that has just started
    Cold {
        #[command(flatten)]
        options: Options,
    },
    /// 20,000 requests on an upstream that never answers
    Inflight {
        #[command(flatten)]
        options: Options,
    },
    /// The promises under overload: O1 to O14 of the design
    Overload {
        #[command(flatten)]
        options: Options,
        /// The durations that the bars name: an hour for O11
        #[arg(long)]
        full: bool,
        /// Only these: `O1,O6`
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Three instances of an upstream are restarted one after the other, then one vanishes without a word
    Rolling {
        #[command(flatten)]
        options: Options,
    },
    /// The retailer's page written in five ways, with recommendations healthy, slow and hanging
    Shop {
        #[command(flatten)]
        options: Options,
        /// Only these: healthy, slow, hanging
        #[arg(long, value_delimiter = ',')]
        recommendations: Vec<String>,
    },
    /// Other requests while ten programs use all they may
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
    /// Time from the start of the process until it is ready
    Start {
        #[command(flatten)]
        options: Options,
    },
    /// Evaluation without I/O, against the starlark crate
    Eval {
        #[command(flatten)]
        options: Options,
        /// The program of bench/starlark; beside this one if not given
        #[arg(long, value_name = "PROGRAM")]
        other: Option<PathBuf>,
    },
    /// Models over gRPC: cost beside a bare tonic echo and MLServer, deadlines, a fleet of clients, instances that vanish
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
    /// The bare tonic echo (a role, started by `models`)
    #[command(hide = true)]
    TonicEcho {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Four connections, three queries a request, three times what the database can
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
    #[command(hide = true)]
    Limit {
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
        Command::Cost { options, sweep: true, .. } => show(&options, sweep::run(&options)?),
        Command::Cost { options, peers, subject, work, pairs, sweep: false } => {
            let if_installed = peers.as_ref().is_some_and(Vec::is_empty);
            let peers = if if_installed { peers::NAMES.map(String::from).to_vec() } else { peers.unwrap_or_default() };
            let plans = cost::Plans { subject, peers, if_installed, works: works(&work)?, pairs };
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
        Command::TonicEcho { listen } => {
            models::echo::run(listen, ready)?;
            Ok(true)
        }
        Command::Cold { options } => show(&options, cold::run(&options)?),
        Command::Hostile { options, only } => show(&options, hostile::run(&options, &only)?),
        Command::Hold { options, only } => show(&options, hold::run(&options, &only)?),
        Command::Inflight { options } => show(&options, inflight::run(&options)?),
        Command::Overload { options, full, only } => show(&options, overload::run(&overload::Plans { full, only })?),
        Command::Rolling { options } => show(&options, rolling::run(&options)?),
        Command::Shop { options, recommendations } => show(&options, shop::run(&options, &recommendations)?),
        Command::Start { options } => show(&options, start::run(&options)?),
        Command::Limit { listen, backend } => {
            limit::run(listen, backend, ready)?;
            Ok(true)
        }
    }
}

fn works(names: &[String]) -> Result<Vec<Work>, Failure> {
    if names.is_empty() {
        return Ok(Work::ALL.to_vec());
    }
    let find = |name: &String| Work::ALL.into_iter().find(|work| work.name() == name);
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
