//! This program as a reader of other programs, in a process that has given up everything: see `redoma_engine::readers`.

use std::process::ExitCode;

use redoma_engine::readers::{NAME, be_reader};

/// Reads, if this process was started for that. Comes back at its end.
pub fn if_reader() -> Option<ExitCode> {
    let is_reader = std::env::args_os().next().is_some_and(|name| name == NAME);
    // Nobody listens to why: whoever started it sees that it is gone.
    is_reader.then(|| if be_reader().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
