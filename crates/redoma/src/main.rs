//! The program. Everything is in the library beside it, so that a test build can be made of the same parts.

use std::process::ExitCode;

fn main() -> ExitCode {
    redoma::main()
}
