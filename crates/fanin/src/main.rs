//! The `fanin` program: command line and demo. It must not contain server, flow or upstream logic.
//!
//! - `cli`: the commands. `serve`, `new`, `check`, `test` (with `explore`), `fmt`, `lsp`, `explain`, `load`, `top`, `replay`: one command each; `size` and `lab` are in `fanin-lab`.
//! - `app`: connects flows, upstreams and models to the server.
//! - `demo`: the examples with their backends.
//! - `recorder`: the last requests with their calls. `client`: one request over HTTP. `admin`: the admin pages of a
//!   running server.
//! - `recording`: requests with their answers, for `fanin replay`. `problem`: errors as clients see them.
//! - `logging`: the program log. `report`: diagnostics for people and programs.

mod admin;
mod app;
mod check;
mod cli;
mod client;
mod demo;
mod explain;
mod fmt;
mod load;
mod logging;
#[cfg(feature = "lsp")]
mod lsp;
mod new;
mod problem;
mod recorder;
mod recording;
#[cfg(feature = "test")]
mod replay;
mod report;
mod serve;
#[cfg(feature = "test")]
mod test;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: fanin_heap::Sampling<fanin_heap::Mimalloc> = fanin_heap::Sampling(fanin_heap::Mimalloc);

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve { dir } => serve::serve(&dir),
        Command::New { dir } => new::run(&dir),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "fanin", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
        Command::Check(args) => check::run(&args),
        #[cfg(feature = "test")]
        Command::Test(args) => test::run(&args),
        #[cfg(feature = "test")]
        Command::Explore(args) => test::explore::run(&args),
        Command::Fmt(args) => fmt::run(&args),
        #[cfg(feature = "lsp")]
        Command::Lsp => lsp::run(),
        Command::Demo { example, once } => demo::run(example, once),
        Command::Explain(args) => explain::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Record(args) => recording::command::run(&args),
        #[cfg(feature = "test")]
        Command::Replay(args) => replay::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Size(args) => fanin_lab::size::run(args).unwrap_or_else(|error| {
            report::chain(&error);
            ExitCode::FAILURE
        }),
        Command::Lab(args) => fanin_lab::lab::run(&args).unwrap_or_else(|error| {
            report::chain(&error);
            ExitCode::FAILURE
        }),
        Command::LabRole(args) => fanin_lab::lab::role(&args).unwrap_or_else(|error| {
            report::chain(&error);
            ExitCode::FAILURE
        }),
        Command::Schema => {
            report::out(format_args!("{:#}\n", fanin_config::Config::json_schema()));
            ExitCode::SUCCESS
        }
    }
}
