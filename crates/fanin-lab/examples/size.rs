//! `fanin size` as a program of its own: `cargo run --release -p fanin-lab --example size -- access.log`.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use fanin_lab::size::{SizeArgs, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    size: SizeArgs,
}

fn main() -> ExitCode {
    run(Cli::parse().size).unwrap_or_else(|error| {
        eprint!("error: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            eprint!(": {error}");
            cause = error.source();
        }
        eprintln!();
        ExitCode::FAILURE
    })
}
