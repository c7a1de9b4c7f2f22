//! The program. Everything is in the library beside it, so that a test build can be made of the same parts.

use std::process::ExitCode;

#[cfg(feature = "weaken")]
compile_error!(
    "`redoma` itself is never built with walls to leave out; build `-p redoma-weakened` by itself"
);

fn main() -> ExitCode {
    redoma::main()
}
