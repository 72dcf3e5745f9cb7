//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "fanin",
    version,
    about = "Answers requests with straight-line code over many backends",
    long_about = "Fanin is a server for the tier between clients and backends. A request runs a flow: straight-line \
                  code that calls backends, looks at their answers, and returns one response. Independent calls run in \
                  parallel. Nothing blocks. Threads, memory and waiting are bounded.",
    after_help = "Start here:\n  \
                  fanin demo                 show an example: backends, server and sample requests on this machine\n  \
                  fanin check my-service     check my-service/fanin.toml and its flows\n  \
                  fanin test my-service      run the tests of its flows\n  \
                  fanin serve my-service     serve them until SIGTERM or Ctrl-C\n\n\
                  Documentation: the folder docs/ of Fanin's repository.",
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the flows of a folder
    #[command(after_help = "Examples:\n  \
        fanin serve                          serves ./fanin.toml\n  \
        fanin serve examples/vacancies\n  \
        RUST_LOG=fanin=debug fanin serve     logs more\n\n\
        Signals:\n  \
        SIGTERM, Ctrl-C   drain: take no new requests, end the running ones ([server] drain_timeout),\n  \
        \x20                 exit with 0; a second signal ends at once\n  \
        SIGHUP            reload fanin.toml and all flows; if one is wrong, the old ones stay\n\n\
        The access log goes to standard output, all other output to standard error.\n\
        Dashboard, health, metrics and the configuration in force: http://127.0.0.1:9090 ([server] admin).\n\
        Documentation: docs/cli.md, docs/configuration.md.")]
    Serve {
        /// Folder that holds fanin.toml, or the file itself
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Write a new project: a route, its flow, its tests
    #[command(after_help = "Example:\n  \
        fanin new my-service && fanin test my-service && fanin serve my-service\n\n\
        Folders of the project stand in for backends, so that it runs at once. Nothing that exists is\n\
        written over.\n\
        Documentation: docs/tutorial/getting-started.md.")]
    New {
        /// Folder of the project; its last part is the name
        dir: PathBuf,
    },
    /// Check fanin.toml and its flows, and report every error
    #[command(after_help = "Examples:\n  \
        fanin check                     ./fanin.toml and its flows\n  \
        fanin check --json my-service   for editors and CI\n  \
        fanin check --plan              what each route calls, and what waits for what\n  \
        fanin check --plan --against ../base > plan.md   what a change does to it, for a pull request\n\n\
        Each problem is shown as file:line:column, with the line and a hint.\n\
        Exit status: 0 without errors (warnings are allowed, unless denied), 1 with errors, 2 for a\n\
        wrong command line.\n\
        Documentation: docs/check.md.")]
    Check(crate::check::CheckArgs),
    /// Run the tests of flows, in virtual time and without a network
    #[cfg(feature = "test")]
    #[command(after_help = "Examples:\n  \
        fanin test                            all *_test.star files below ./fanin.toml\n  \
        fanin test my-service --filter late   only tests whose name contains `late`\n  \
        fanin test --watch                    again whenever a file changes\n  \
        fanin test --coverage target/flows    what of the flows has run: index.html, lcov.info\n  \
        fanin test --junit report.xml         for CI\n\n\
        A test is a function whose name begins with test_. It stubs backends, sends requests to routes, and\n\
        asserts what comes back and which calls were made. A failed test shows its calls as bars.\n\
        Exit status: 0 if all tests passed, 1 if one failed or cannot run, 2 for a wrong command line.\n\
        Documentation: docs/how-to/test-flows.md.")]
    Test(crate::test::TestArgs),
    /// Try every failure: runs requests with every call's outcome varied, in virtual time
    #[cfg(feature = "test")]
    #[command(after_help = "Examples:\n  \
        fanin explore                           all functions explore_...() of *_test.star files\n  \
        fanin explore 'POST /products'          those that send requests to this route\n  \
        fanin explore --config my-service --write   keep each finding as a test\n  \
        fanin explore --max-calls 8             no case may make more calls\n\n\
        Each answer is varied: late, not at all, refused, an error status, broken, of another kind, without a\n\
        key; then several at once, and in every order. What does not hold is shown with the fewest\n\
        deviations that are needed, its calls as bars, and a test.\n\
        Exit status: 0 if all held, 1 if something was found or nothing could run, 2 for a wrong command line.\n\
        Documentation: docs/how-to/explore-failures.md.")]
    Explore(crate::test::explore::ExploreArgs),
    /// Format flows: one layout for all, with their comments
    #[command(after_help = "Examples:\n  \
        fanin fmt                  every .star file below this folder\n  \
        fanin fmt flows/page.star  one file\n  \
        fanin fmt --check          for CI: names the files that are not formatted\n  \
        fanin fmt - < page.star    for editors: from standard input to standard output\n\n\
        Formatting keeps what a flow does and all its comments. A file with a syntax error stays as it is.\n\
        Exit status: 0 if all is formatted, 1 if a file is not (with --check) or cannot be, 2 for a wrong\n\
        command line.\n\
        Documentation: docs/how-to/editor.md.")]
    Fmt(crate::fmt::FmtArgs),
    /// Help editors with flows: errors as they are typed, hover, completion, definitions, renaming
    #[cfg(feature = "lsp")]
    #[command(
        after_help = "Editors start it; it speaks the Language Server Protocol over standard input and output.\n\
        Errors and warnings are those of `fanin check`, of texts that are not saved yet.\n\n\
        Settings for VS Code, Neovim, Helix and JetBrains: docs/how-to/editor.md."
    )]
    Lsp,
    /// Run an example: backends on loopback, the server in front of them, sample requests
    #[command(after_help = "Examples:\n  \
        fanin demo                   the job site of examples/vacancies, until Ctrl-C\n  \
        fanin demo shop              the retailer of examples/shop\n  \
        fanin demo vacancies --once  only the samples; exit status 1 if one of them fails\n\n\
        In the folder that holds examples/, the demo uses its files: change a flow while it serves.\n\
        Documentation: docs/cli.md.")]
    Demo {
        /// The example
        #[arg(value_enum, default_value_t = Example::Vacancies)]
        example: Example,
        /// End after the samples
        #[arg(long)]
        once: bool,
    },
    /// Say why a request took as long as it did, and what would make it faster
    #[command(after_help = "Examples:\n  \
        fanin explain GET '/product?id=7' --config my-service     serves the folder for this one request\n  \
        fanin explain GET '/product?id=7' --url http://127.0.0.1:8080 --admin http://127.0.0.1:9090\n  \
        fanin explain --route 'GET /product' --admin http://127.0.0.1:9090   its recent requests\n  \
        fanin explain --id e12b176b1ebe3e26 --admin http://127.0.0.1:9090    one that was recorded\n  \
        fanin explain --file requests-20261124T205837.123Z-stall.dump        a file that a server wrote\n\n\
        Shows each call as a bar, the critical path, how much longer each call may take before anybody\n\
        notices, and how much sooner the response comes if a call is shorter. For that the flow runs\n\
        again, in virtual time, with the answers that it got. Nothing is sent twice.\n\
        Documentation: docs/how-to/debug-a-slow-request.md.")]
    Explain(crate::explain::ExplainArgs),
    /// Send requests at a constant, rising or stepped rate, and measure the responses
    #[command(after_help = "Examples:\n  \
        fanin load http://127.0.0.1:8080/vacancies?text=rust --rate 500 --duration 30s\n  \
        fanin load URL --rate 100..2000 --duration 1m --plot load.html\n  \
        fanin load grpc://127.0.0.1:8001/antispam --rate 1000 --body inputs.json --timeout 50ms\n  \
        fanin load URL --rate 50,100,200 -X POST --body order.json -H 'content-type: application/json'\n\n\
        The load is open-loop: each request is sent at its planned moment, even if earlier ones have no\n\
        response yet. Latency counts from that moment. Send load only to servers of your own.\n\
        Documentation: docs/cli.md.")]
    Load(crate::load::LoadArgs),
    /// Record requests of a running server, with what their calls were answered, for `fanin replay`
    #[command(after_help = "Examples:\n  \
        fanin record                                   each request of this machine's server, for a minute\n  \
        fanin record --share 1% --for 10m --out monday.rec\n  \
        fanin record --url http://10.0.0.5:9090 --token-file admin.token --requests 10000\n  \
        fanin record --remove-header x-user --remove-json '**.email'\n\n\
        Secrets are removed before anything is written: the usual headers, query parameters and fields, those of\n\
        [recorder] in fanin.toml, and those of the options; and the same values wherever else they appear.\n\
        The file still has what clients sent and got. Only its owner can read it.\n\
        Exit status: 0 if the file is complete, 1 otherwise, 2 for a wrong command line.\n\
        Documentation: docs/how-to/record-and-replay.md.")]
    Record(crate::recording::command::RecordArgs),
    /// Run recorded requests with another configuration, in virtual time, and show what differs
    #[cfg(feature = "test")]
    #[command(after_help = "Examples:\n  \
        fanin replay monday.rec                          with the configuration of this folder\n  \
        fanin replay monday.rec --config my-service --ignore date --ignore json:generated_at\n  \
        fanin replay monday.rec --what-if upstreams.catalog.limit=32 --what-if 'upstreams.catalog.timeout=\"80ms\"'\n  \
        fanin replay monday.rec --json > replay.json     for programs\n  \
        fanin replay monday.rec --request 17 --write-test flows/page_test.star\n\n\
        Backends answer as they were recorded, after as long. Nothing is sent: effects that differ are shown, and\n\
        a call that the recording does not have fails its request, which is shown as well.\n\
        Exit status: 0 without differences, 1 with some, 2 if nothing could be replayed.\n\
        Documentation: docs/how-to/record-and-replay.md.")]
    Replay(crate::replay::ReplayArgs),
    /// Show what a running server does: the dashboard in a terminal
    #[command(after_help = "Examples:\n  \
        fanin top                                         the server of this machine, until Ctrl-C\n  \
        fanin top --url http://10.0.0.5:9090 --token-file admin.token\n  \
        fanin top --once | head -20                       once, for scripts\n  \
        fanin top --json --window 300 | jq .routes\n\n\
        It asks the admin pages for /dashboard/data each second. The same in a browser: /dashboard there.\n\
        Documentation: docs/how-to/dashboard.md.")]
    Top(crate::top::TopArgs),
    /// Compute from access logs how many threads, or how much memory, a tier needs
    Size(fanin_lab::size::SizeArgs),
    /// Measure threads, coroutines, slow backends and memory here, beside published figures
    Lab(fanin_lab::lab::LabArgs),
    /// One part of an experiment, as a process of its own
    #[command(hide = true)]
    LabRole(fanin_lab::lab::RoleArgs),
    /// Print a script that completes commands and options in a shell
    #[command(after_help = "Examples:\n  \
        fanin completions bash > /etc/bash_completion.d/fanin\n  \
        fanin completions zsh > ~/.zfunc/_fanin\n  \
        fanin completions fish > ~/.config/fish/completions/fanin.fish")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the JSON Schema of fanin.toml
    #[command(after_help = "Examples:\n  \
        fanin schema > fanin.schema.json\n\n\
        Editors with a TOML language server complete and check keys if fanin.toml begins with\n  \
        #:schema ./fanin.schema.json\n\n\
        Documentation: docs/configuration.md.")]
    Schema,
}

/// The examples that `demo` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// Ids from a search, then their descriptions; suggestions if nothing is found
    Vacancies,
    /// Products by mask from the services that own their attributes, with recommendations
    Shop,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn folders_and_examples_have_defaults() {
        let command = |args: &[&str]| Cli::try_parse_from(args).map(|cli| cli.command);
        assert!(matches!(command(&["fanin", "serve"]), Ok(Command::Serve { dir }) if dir.as_os_str() == "."));
        assert!(matches!(
            command(&["fanin", "demo", "--once"]),
            Ok(Command::Demo { example: Example::Vacancies, once: true })
        ));
        assert!(matches!(
            command(&["fanin", "check", "--json", "x"]),
            Ok(Command::Check(args)) if args.json && args.dir.as_os_str() == "x"
        ));
        assert!(command(&["fanin", "demo", "nothing"]).is_err());
        assert!(command(&["fanin"]).is_err());
    }

    /// What docs/cli.md shows: the help of the program and of each command. `UPDATE_DOCS=1` writes it anew.
    #[test]
    fn the_documentation_shows_the_help() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        let text = std::fs::read_to_string(&path).expect("the page");
        let (before, rest) = text.split_once("<!-- help -->\n").expect("a start");
        let (_, after) = rest.split_once("<!-- end -->").expect("an end");
        let mut program = Cli::command().term_width(100);
        program.build();
        let mut help = String::new();
        let mut add = |title: &str, command: &mut clap::Command| {
            let text = command.render_long_help().to_string();
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            help.push_str(&format!("\n## `{title}`\n\n```text\n{}\n```\n", lines.join("\n")));
        };
        add("fanin", &mut program.clone());
        for command in
            program.get_subcommands_mut().filter(|command| command.get_name() != "help" && !command.is_hide_set())
        {
            add(&format!("fanin {}", command.get_name()), command);
        }
        let expected = format!("{before}<!-- help -->\n{help}\n<!-- end -->{after}");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, expected).expect("written");
        } else {
            assert!(text == expected, "docs/cli.md is not up to date: run with UPDATE_DOCS=1");
        }
    }
}
