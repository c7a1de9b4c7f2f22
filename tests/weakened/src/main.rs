//! Redoma with a switch to leave walls out (`REDOMA_WEAKEN=seccomp,landlock`): the attack suite runs every attack against
//! it too and expects each to be noticed. Never ship this.

use std::process::ExitCode;

fn main() -> ExitCode {
    redoma::main()
}
