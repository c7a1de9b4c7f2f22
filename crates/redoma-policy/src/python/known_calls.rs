//! Python's functions that matter to a reader: those that run programs or code, those that bring in what is outside, and
//! other names for the same thing.

/// How a function that runs a program takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A line for the shell.
    ShellLine,
    /// A list, or a text that is a line for the shell if `shell=True`.
    ListOrLine,
    /// The program, then the list of its arguments with its own name first; after so many other arguments.
    ProgramAndList { skip: usize },
    /// The program, then its name and arguments one by one; after so many other arguments.
    ProgramNameAndEach { skip: usize },
    /// The program and its arguments one by one.
    Each,
}

pub(super) fn runs_program(name: &str) -> Option<Takes> {
    Some(match name {
        "os.system"
        | "os.popen"
        | "subprocess.getoutput"
        | "subprocess.getstatusoutput"
        | "asyncio.create_subprocess_shell"
        | "commands.getoutput"
        | "commands.getstatusoutput"
        | "popen2.popen2"
        | "popen2.popen3"
        | "popen2.popen4"
        | "pexpect.run"
        | "pexpect.spawn"
        | "invoke.run"
        | "fabric.api.run"
        | "fabric.api.local"
        | "fabric.api.sudo" => Takes::ShellLine,
        "subprocess.run"
        | "subprocess.call"
        | "subprocess.check_call"
        | "subprocess.check_output"
        | "subprocess.Popen"
        | "pty.spawn"
        | "sh.Command"
        | "anyio.run_process"
        | "anyio.open_process"
        | "trio.run_process" => Takes::ListOrLine,
        "os.execv" | "os.execve" | "os.execvp" | "os.execvpe" | "os.posix_spawn" | "os.posix_spawnp" => {
            Takes::ProgramAndList { skip: 0 }
        }
        "os.spawnv" | "os.spawnve" | "os.spawnvp" | "os.spawnvpe" => Takes::ProgramAndList { skip: 1 },
        "os.execl" | "os.execle" | "os.execlp" | "os.execlpe" => Takes::ProgramNameAndEach { skip: 0 },
        "os.spawnl" | "os.spawnle" | "os.spawnlp" | "os.spawnlpe" => Takes::ProgramNameAndEach { skip: 1 },
        "asyncio.create_subprocess_exec" | "asyncio.subprocess.create_subprocess_exec" => Takes::Each,
        _ => return None,
    })
}

/// Whether its first argument is Python code.
pub(super) fn runs_code(name: &str) -> bool {
    matches!(
        name,
        "eval"
            | "exec"
            | "compile"
            | "execfile"
            | "timeit.timeit"
            | "timeit.repeat"
            | "runpy.run_path"
            | "code.interact"
            | "cProfile.run"
            | "profile.run"
            | "pdb.run"
            | "trace.run"
    )
}

/// Whether what comes out of it was in some code before.
pub(super) fn decodes(name: &str) -> bool {
    let name = name.trim_start_matches('.');
    name.starts_with("base64.")
        || name.starts_with("binascii.")
        || matches!(
            name,
            "codecs.decode"
                | "zlib.decompress"
                | "gzip.decompress"
                | "bz2.decompress"
                | "lzma.decompress"
                | "marshal.loads"
                | "bytes.fromhex"
                | "bytearray.fromhex"
                | "chr"
                | "fromhex"
                | "decompress"
        )
}

/// Whether what comes out of it is from outside of the program.
pub(super) fn is_input(name: &str) -> bool {
    if matches!(
        name,
        "input"
            | "raw_input"
            | "open"
            | "os.getenv"
            | "os.environ.get"
            | "io.open"
            | "codecs.open"
            | "os.read"
            | "getpass.getpass"
            | ".parse_args"
            | ".parse_known_args"
            | ".get_json"
            | ".recv"
            | ".recvfrom"
            | ".read_text"
            | ".read_bytes"
            | "click.prompt"
            | "socket.socket"
            | "sys.stdin.read"
            | "sys.stdin.readline"
            | "fileinput.input"
            | "tokenize.open"
            | "json.load"
            | "yaml.load"
    ) {
        return true;
    }
    let mut parts = name.split('.');
    match parts.next() {
        Some("requests" | "httpx") => {
            matches!(parts.next(), Some("get" | "post" | "put" | "patch" | "delete" | "request" | "Session"))
        }
        Some("urllib" | "urllib2" | "urllib3") => name.ends_with(".urlopen") || name.ends_with(".request"),
        _ => is_input_value(name),
    }
}

/// Whether a name in a module is something from outside of the program.
pub(super) fn is_input_value(path: &str) -> bool {
    let within =
        |module: &str| path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    within("sys.argv")
        || within("sys.stdin")
        || within("os.environ")
        || within("request")
        || within("flask.request")
        || within("bottle.request")
        || within("sanic.request")
        || within("cgi.FieldStorage")
}

/// One name for things that have several.
pub(super) fn usual_name(path: &str) -> String {
    let path = path
        .strip_prefix("builtins.")
        .or_else(|| path.strip_prefix("__builtins__."))
        .or_else(|| path.strip_prefix("__builtin__."))
        .or_else(|| path.strip_prefix("six.moves.builtins."))
        .unwrap_or(path);
    let (module, rest) = path.split_once('.').unwrap_or((path, ""));
    let module = match module {
        "posix" | "nt" => "os",
        "cPickle" | "_pickle" | "cloudpickle" | "dill" if rest.contains("load") => "pickle",
        "subprocess32" | "_posixsubprocess" => "subprocess",
        _ => return path.to_owned(),
    };
    format!("{module}.{rest}")
}

/// What `from module import *` brings, of what matters here.
pub(super) fn star(module: &str) -> &'static [&'static str] {
    match module {
        "os" | "posix" => &[
            "system",
            "popen",
            "execv",
            "execve",
            "execvp",
            "execl",
            "execlp",
            "fork",
            "kill",
            "remove",
            "unlink",
            "rmdir",
            "removedirs",
            "environ",
            "getenv",
            "spawnv",
            "spawnl",
            "path",
            "chmod",
            "chown",
        ],
        "subprocess" => {
            &["run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"]
        }
        "shutil" => &["rmtree", "move", "copy", "copytree"],
        "pickle" => &["loads", "load", "Unpickler"],
        "ctypes" => &["CDLL", "cdll", "PyDLL"],
        "multiprocessing" => &["Process", "Pool"],
        "base64" => &["b64decode", "b32decode", "b16decode", "b85decode", "decodebytes"],
        "socket" => &["socket", "create_connection"],
        _ => &[],
    }
}
