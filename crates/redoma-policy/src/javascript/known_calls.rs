//! JavaScript's functions that matter to a reader: those that run programs or code, and those that bring in what is
//! outside.

/// How a function that runs a program takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A line for the shell.
    ShellLine,
    /// The program and a list of arguments; through the shell if an option says so.
    ProgramAndList,
    /// A list with the program first.
    List,
    /// A script for Node.
    Script,
}

pub(super) fn runs_program(name: &str) -> Option<Takes> {
    Some(match name {
        "child_process.exec"
        | "child_process.execSync"
        | "shelljs.exec"
        | "execa.execaCommand"
        | "execa.execaCommandSync"
        | "execa.command"
        | "execa.commandSync"
        | "zx.$"
        | "execa.$"
        | "bun.$"
        | "Bun.$" => Takes::ShellLine,
        "child_process.spawn"
        | "child_process.spawnSync"
        | "child_process.execFile"
        | "child_process.execFileSync"
        | "cross-spawn"
        | "cross-spawn.sync"
        | "cross-spawn.spawn"
        | "execa"
        | "execa.execa"
        | "execa.execaSync"
        | "execa.sync"
        | "Deno.Command"
        | "node-pty.spawn" => Takes::ProgramAndList,
        "Bun.spawn" | "Bun.spawnSync" | "Deno.run" => Takes::List,
        "child_process.fork" => Takes::Script,
        _ => return None,
    })
}

/// Which argument of a function is JavaScript code, if one is.
pub(super) fn code_argument(name: &str) -> Option<Code> {
    Some(match name {
        "eval"
        | "vm.runInThisContext"
        | "vm.runInNewContext"
        | "vm.runInContext"
        | "vm.Script"
        | "vm.compileFunction"
        | "vm.SourceTextModule" => Code::First,
        "Function" | "AsyncFunction" | "GeneratorFunction" => Code::Last,
        "setTimeout" | "setInterval" | "setImmediate" | "execScript" => Code::FirstIfText,
        _ => return None,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    First,
    Last,
    FirstIfText,
}

pub(super) fn decodes(name: &str) -> bool {
    matches!(
        name,
        "atob"
            | "Buffer.from"
            | "String.fromCharCode"
            | "String.fromCodePoint"
            | "unescape"
            | "decodeURIComponent"
            | "zlib.gunzipSync"
            | "zlib.inflateSync"
            | "zlib.unzipSync"
            | "zlib.brotliDecompressSync"
            | "new Buffer"
    )
}

/// Whether what comes out of a function is from outside of the program.
pub(super) fn is_input(name: &str) -> bool {
    matches!(
        name,
        "fs.readFileSync"
            | "fs.readFile"
            | "fs.promises.readFile"
            | "prompt"
            | "fetch"
            | "axios.get"
            | "axios.post"
            | "axios"
            | "readline.question"
            | ".question"
            | "Deno.readTextFile"
            | "Deno.readTextFileSync"
            | "got"
            | "axios.request"
    ) || is_input_value(name)
}

/// Whether a name stands for something from outside of the program.
pub(super) fn is_input_value(path: &str) -> bool {
    let mut parts = path.split('.');
    match (parts.next(), parts.next()) {
        (Some("process"), Some("argv" | "env" | "stdin"))
        | (Some("Deno"), Some("args" | "env"))
        | (Some("location" | "document"), Some("hash" | "search" | "href" | "cookie" | "referrer" | "URL")) => {
            true
        }
        (Some("req" | "request"), Some(part)) => is_of_request(part),
        _ => false,
    }
}

/// Parts of a request that a client chooses.
pub(super) fn is_of_request(part: &str) -> bool {
    matches!(
        part,
        "body" | "query" | "params" | "headers" | "cookies" | "files" | "url" | "originalUrl" | "rawBody"
    )
}

/// One name for things that have several.
pub(super) fn usual_name(path: &str) -> String {
    let mut path = path.strip_prefix("node:").unwrap_or(path);
    while let Some(rest) = ["globalThis.", "global.", "window.", "self.", "top."]
        .iter()
        .find_map(|prefix| path.strip_prefix(prefix))
    {
        path = rest;
    }
    let path = path.replace("fs/promises", "fs.promises").replace(".default.", ".");
    path.strip_suffix(".default").unwrap_or(&path).to_owned()
}
