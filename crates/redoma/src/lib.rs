//! `redoma`, the program: command line, configuration, and the wiring of the other crates.
//!
//! | file | command |
//! |---|---|
//! | `cli.rs` | what can be said on the command line |
//! | `run.rs` | `redoma run` |
//! | `serve.rs` | `redoma serve` |
//! | `keys.rs`, `sessions.rs`, `audit.rs` | `redoma keys`, `redoma sessions`, `redoma audit` |
//! | `setup/` | `redoma setup` |
//! | `doctor.rs` | `redoma doctor` |
//! | `bench.rs` | `redoma bench` |
//! | `scan.rs` | `redoma scan` |
//! | `engine.rs` | an engine as the configuration says |
//! | `reader.rs` | what it does when it is started to read programs |
//! | `inside.rs` | what this program does when it is run inside a sandbox |
//! | `config/` | `redoma.toml`, profiles, folders; `redoma config` |
//! | `policy.rs` | `redoma policy` |
//! | `reload.rs` | a new configuration for a server that runs |
//! | `notify.rs` | what systemd is told: ready, stopping, alive |
//! | `systemd_scope.rs` | a cgroup of one's own from systemd, for users without root |

mod audit;
mod bench;
mod cli;
mod config;
mod doctor;
mod engine;
mod inside;
mod keys;
mod notify;
mod policy;
mod reader;
mod reload;
mod run;
mod scan;
mod serve;
mod sessions;
mod setup;
mod systemd_scope;
mod terminal;

use std::process::ExitCode;

/// The exit code for "redoma itself failed or refused", as opposed to the program's own codes.
const OWN_FAILURE: u8 = 125;

/// The whole program.
pub fn main() -> ExitCode {
    // What is made for sandboxes must be readable for their uid, and writable for nobody else, whatever the caller's.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    redoma_jail::hear_of_children();
    redoma_jail::end_copies_that_panic(redoma_policy::nested::is_reading);
    if let Some(code) = reader::if_reader() {
        return code;
    }
    if let Some(code) = inside::if_inside() {
        return code;
    }
    let cli = cli::Cli::from_command_line();
    let result = match cli.command {
        cli::Command::Run(arguments) => run::run(&cli.global, arguments),
        cli::Command::Serve(arguments) => serve::serve(&cli.global, &arguments),
        cli::Command::Keys(command) => keys::keys(&cli.global, command),
        cli::Command::Sessions(command) => sessions::sessions(&cli.global, command),
        cli::Command::Policy(command) => policy::policy(&cli.global, command),
        cli::Command::Config(command) => config::command::config(&cli.global, command),
        cli::Command::Audit(command) => audit::audit(&cli.global, command),
        cli::Command::Setup(arguments) => setup::setup(&cli.global, &arguments).map(|()| ExitCode::SUCCESS),
        cli::Command::Bench(arguments) => bench::bench(&cli.global, &arguments),
        cli::Command::Scan(arguments) => scan::scan(&arguments),
        cli::Command::Doctor(arguments) => doctor::doctor(&cli.global, &arguments),
    };
    result.unwrap_or_else(|error| {
        terminal::error(&format!("{error:#}"));
        ExitCode::from(OWN_FAILURE)
    })
}
