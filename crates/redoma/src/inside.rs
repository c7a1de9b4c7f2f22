//! This program inside a sandbox: the stages that some languages need before their own program starts.
//!
//! It is mounted there under a fixed path and takes `inside STAGE SCRIPT PROGRAM ARGUMENTS…`. By then every wall is up:
//! whatever hostile source does to a parser, it does to a process that has nothing to give.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use redoma_jail::nursery::Server;
use redoma_zygote::typescript::{self, CompileError, compile};

use crate::terminal;

/// Does the stage that this process was started for, if it was started inside. Only comes back with a failure.
pub fn if_inside() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    if Path::new(&name) != Path::new("/").join(redoma_engine::runtime::INSIDE) {
        return None;
    }
    let arguments: Vec<_> = arguments.collect();
    if let [role] = arguments.as_slice()
        && role == "nursery"
    {
        return Some(keep_nursery());
    }
    let error = match arguments.as_slice() {
        [role, script] if role == "typescript-cell" => match compile_cell(script) {
            Ok(()) => return Some(ExitCode::SUCCESS),
            Err(error) => error,
        },
        _ => {
            let Err(error) = stage(&arguments);
            error
        }
    };
    match error.downcast_ref::<CompileError>() {
        // The user's mistake, not ours: shown as a compiler would.
        Some(CompileError::Syntax(errors)) => {
            let _ = writeln!(std::io::stderr(), "{}", errors.to_string().trim_end());
        }
        _ => terminal::error(&format!("{error:#}")),
    }
    Some(ExitCode::FAILURE)
}

/// The keeper's life, in a nursery: makes sandboxes until nobody asks for any more.
fn keep_nursery() -> ExitCode {
    match Server::keeper().map(|mut keeper| keeper.serve()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::error(&format!("the nursery can't be kept: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A cell of a live session: its TypeScript as JavaScript, to standard output.
fn compile_cell(script: &OsString) -> anyhow::Result<()> {
    let source = std::fs::read_to_string(script).context("the cell is not UTF-8")?;
    let compiled = typescript::compile_cell(&source, "cell.mts")?;
    std::io::stdout().write_all(compiled.code.as_bytes()).context("can't write the compiled cell")
}

fn stage(arguments: &[OsString]) -> anyhow::Result<Infallible> {
    let [stage, script, program, rest @ ..] = arguments else {
        bail!("expected STAGE SCRIPT PROGRAM ARGUMENTS…")
    };
    if stage != "typescript" {
        bail!("there is no stage {}", stage.display())
    }
    let script_name = script.to_string_lossy();
    let bytes = std::fs::read(script).with_context(|| format!("can't read {script_name}"))?;
    let source = String::from_utf8(bytes).with_context(|| format!("{script_name} is not UTF-8"))?;
    let compiled = compile(&source, &script_name)?;
    let generated = format!(".redoma-main.{}", compiled.kind.extension());
    std::fs::write(&generated, compiled.code).context("can't write the compiled program")?;
    let mut replaced = false;
    let arguments = rest.iter().map(|argument| {
        if argument == script && !replaced {
            replaced = true;
            return OsString::from(&generated);
        }
        argument.clone()
    });
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("can't start {}", program.display()))
}
