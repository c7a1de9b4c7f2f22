//! From facts to findings: which kind a fact is, and how bad it is by where its argument comes from.

use super::kinds::{self, Kind, Level};
use crate::facts::{Call, Command, Fact, Language, Source, Value, What};
use crate::folding;

/// What was found at a fact, before it is put together with the text.
pub(super) struct Found {
    pub(super) kind: &'static Kind,
    pub(super) level: Level,
    pub(super) origin: Option<Source>,
}

/// What else about a file changes how facts are seen.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    pub(super) has_jinja: bool,
    pub(super) has_pandas: bool,
    pub(super) remote: Option<Remote>,
}

/// A library that runs commands on other hosts, by methods whose names alone say little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remote {
    Fabric,
    PowerShell,
}

impl Surroundings {
    pub(super) fn of(facts: &[Fact]) -> Self {
        let mut found = Self::default();
        for fact in facts {
            // An import that may fail (`try: import x`) is no fact, but what is called of it says its name.
            let name = match &fact.what {
                What::Import(import) => import.module.known(),
                What::Call(call) => Some(call.name.as_str()),
                _ => None,
            };
            let Some(name) = name else { continue };
            match name.split('.').next().unwrap_or("") {
                "jinja2" | "mako" => found.has_jinja = true,
                "pandas" | "dask" | "modin" | "polars" => found.has_pandas = true,
                "fabric" | "invoke" | "fabric2" => found.remote = Some(Remote::Fabric),
                "pypsrp" | "winrm" => found.remote = Some(Remote::PowerShell),
                _ => {}
            }
        }
        found
    }
}

/// Constant, variable, parameter or input: the plain scale.
fn plain(origin: Option<Source>) -> Level {
    match origin {
        None => Level::Low,
        Some(Source::Variable) => Level::Medium,
        Some(Source::Parameter | Source::Input) => Level::High,
    }
}

/// What a shell reads: input in there is as bad as it gets.
fn shell(origin: Option<Source>) -> Level {
    if origin == Some(Source::Input) { Level::Critical } else { plain(origin) }
}

/// Less than running code: choosing among code that is there already.
fn mild(origin: Option<Source>) -> Level {
    match origin {
        None | Some(Source::Variable) => Level::Low,
        Some(Source::Parameter) => Level::Medium,
        Some(Source::Input) => Level::High,
    }
}

/// A program with its arguments, without a shell: what matters most is who chooses the program.
fn program(words: &Value) -> (Level, Option<Source>) {
    let origin = folding::source_of(words);
    let of_program = match words {
        Value::List(words) => words.first().and_then(folding::source_of),
        // `"git " + …`: without a shell it names a program, or is taken apart.
        Value::Begins(text, _) if text.contains(char::is_whitespace) => None,
        other => folding::source_of(other),
    };
    let level = match (of_program, origin) {
        (Some(source), _) => plain(Some(source)),
        (None, origin) => match mild(origin) {
            Level::High => Level::Medium,
            level => level,
        },
    };
    (level, origin)
}

pub(super) fn of_fact(fact: &Fact, around: &Surroundings, text: &dyn Fn() -> String) -> Option<Found> {
    match (&fact.what, fact.language) {
        (What::Call(call), Language::Python) => of_python_call(call, around, text),
        (What::Call(call), Language::JavaScript | Language::TypeScript) => of_javascript_call(call),
        (What::Import(import), Language::JavaScript | Language::TypeScript) => {
            let origin = folding::source_of(&import.module)?;
            // `./locales/${name}`: the beginning holds it in a folder.
            let level = match &import.module {
                Value::Begins(text, _) if text.contains('/') && origin != Source::Input => Level::Low,
                _ => mild(Some(origin)),
            };
            Some(Found { kind: &kinds::JS_IMPORT, level, origin: Some(origin) })
        }
        (What::Command(command), Language::Bash) => of_command(command, fact.depth, text),
        _ => None,
    }
}

fn first(call: &Call) -> Option<Source> {
    let value = call.positional(0).or_else(|| call.arguments.first().map(|argument| &argument.value));
    // A function that is handed on: `map(eval, texts)`.
    value.map_or(Some(Source::Variable), folding::source_of)
}

fn of_python_call(call: &Call, around: &Surroundings, text: &dyn Fn() -> String) -> Option<Found> {
    let origin = first(call);
    let found = |kind, level| Some(Found { kind, level, origin });
    let unless_constant =
        |kind, level: fn(Option<Source>) -> Level| origin.and_then(|_| found(kind, level(origin)));
    match call.name.as_str() {
        "eval" | "exec" => found(&kinds::PYTHON_EVAL, plain(origin)),
        "compile" => {
            let is_only_parsed = text().contains("PyCF_ONLY_AST");
            (!is_only_parsed).then_some(Found { kind: &kinds::PYTHON_COMPILE, level: plain(origin), origin })
        }
        "os.system"
        | "os.popen"
        | "subprocess.getoutput"
        | "subprocess.getstatusoutput"
        | "commands.getoutput"
        | "commands.getstatusoutput"
        | "asyncio.create_subprocess_shell"
        | "popen2.popen2"
        | "popen2.popen3" => found(&kinds::PYTHON_SHELL, shell(origin)),
        "subprocess.run"
        | "subprocess.call"
        | "subprocess.check_call"
        | "subprocess.check_output"
        | "subprocess.Popen"
        | "asyncio.create_subprocess_exec"
        | "anyio.run_process"
        | "anyio.open_process"
        | "trio.run_process" => Some(of_subprocess(call)),
        "pexpect.spawn" | "pexpect.run" => found(&kinds::PYTHON_SUBPROCESS, plain(origin)),
        name if name.starts_with("os.exec")
            || name.starts_with("os.spawn")
            || name.starts_with("os.posix_spawn") =>
        {
            Some(of_exec(call))
        }
        "pty.spawn" => found(&kinds::PYTHON_PTY, plain(origin).max(Level::Medium)),
        "pickle.loads" | "pickle.load" | "pickle.Unpickler" | "dill.loads" | "dill.load"
        | "cloudpickle.loads" | "cloudpickle.load" | "pandas.read_pickle" | "jsonpickle.decode" => {
            found(&kinds::PYTHON_PICKLE, plain(origin).max(Level::Medium))
        }
        "marshal.loads" | "marshal.load" => found(&kinds::PYTHON_MARSHAL, plain(origin).max(Level::Medium)),
        "shelve.open" => found(&kinds::PYTHON_SHELVE, mild(origin)),
        "yaml.load" | "yaml.load_all" | "ruamel.yaml.load" if !is_safe_yaml(&text()) => {
            found(&kinds::PYTHON_YAML, plain(origin).max(Level::Medium))
        }
        "yaml.unsafe_load" | "yaml.unsafe_load_all" => {
            found(&kinds::PYTHON_YAML, plain(origin).max(Level::High))
        }
        "yaml.full_load" | "yaml.full_load_all" => found(&kinds::PYTHON_YAML, mild(origin)),
        "__import__"
        | "importlib.import_module"
        | "importlib.__import__"
        | "imp.load_source"
        | "importlib.util.spec_from_file_location"
        // These look for something in a package, or of that name, and import it on the way.
        | "pkgutil.get_data"
        | "pkgutil.resolve_name"
        | "importlib.resources.files"
        | "pydoc.locate" => unless_constant(&kinds::PYTHON_IMPORT, mild),
        "ctypes.CDLL"
        | "ctypes.PyDLL"
        | "ctypes.WinDLL"
        | "ctypes.cdll.LoadLibrary"
        | "ctypes.windll.LoadLibrary" => unless_constant(&kinds::PYTHON_CTYPES, mild),
        "code.interact"
        | "code.InteractiveConsole"
        | "code.InteractiveInterpreter"
        | "IPython.embed"
        | "IPython.start_ipython" => {
            Some(Found { kind: &kinds::PYTHON_INTERACTIVE, level: Level::Medium, origin: None })
        }
        "jinja2.Template"
        | "mako.template.Template"
        | "flask.render_template_string"
        | "jinja2.Environment.from_string" => unless_constant(&kinds::PYTHON_TEMPLATE, plain),
        ".from_string" if around.has_jinja => unless_constant(&kinds::PYTHON_TEMPLATE, plain),
        "pandas.eval" => unless_constant(&kinds::PYTHON_PANDAS, plain),
        ".query" | ".eval" if around.has_pandas => {
            let is_text =
                matches!(call.positional(0), Some(Value::Begins(..) | Value::Unknown(Source::Input)));
            is_text.then_some(Found { kind: &kinds::PYTHON_PANDAS, level: plain(origin), origin })
        }
        "torch.load" if call.named("weights_only").and_then(Value::known) != Some("True") => {
            found(&kinds::PYTHON_MODEL, plain(origin).max(Level::Medium))
        }
        "joblib.load" | "sklearn.externals.joblib.load" => {
            found(&kinds::PYTHON_MODEL, plain(origin).max(Level::Medium))
        }
        "numpy.load" if call.named("allow_pickle").is_some_and(|allow| allow.known() != Some("False")) => {
            found(&kinds::PYTHON_MODEL, plain(origin).max(Level::Medium))
        }
        "runpy.run_path" | "runpy.run_module" | "execfile" => unless_constant(&kinds::PYTHON_RUN_FILE, plain),
        _ => of_remote_command(call, around).or_else(|| of_other_call(call)),
    }
}

/// Methods that have another host run something. Of libraries whose methods have common names, constants are no finding.
fn of_remote_command(call: &Call, around: &Surroundings) -> Option<Found> {
    let origin = first(call);
    let is_one = match (call.name.as_str(), around.remote) {
        (".exec_command", _) => true,
        (".run" | ".sudo" | ".local", Some(Remote::Fabric))
        | (
            ".add_script" | ".run_ps" | ".run_cmd" | ".execute_ps" | ".execute_cmd",
            Some(Remote::PowerShell),
        ) => origin.is_some(),
        _ => false,
    };
    let is_found = is_one && !call.arguments.is_empty();
    is_found.then_some(Found { kind: &kinds::PYTHON_SSH, level: shell(origin), origin })
}

/// Functions that are not known by name, but say in their arguments what they do.
fn of_other_call(call: &Call) -> Option<Found> {
    let is_on = |name: &str| call.named(name).and_then(Value::known) == Some("True");
    let origin = first(call);
    if is_on("shell") || is_on("use_unsafe_shell") {
        return Some(Found { kind: &kinds::PYTHON_SUBPROCESS_SHELL, level: shell(origin), origin });
    }
    // `inspect.signature` and its kin: annotations that are texts are evaluated.
    if is_on("eval_str") {
        return Some(Found { kind: &kinds::PYTHON_EVAL, level: plain(origin), origin });
    }
    let origin = call.arguments.iter().find_map(|given| computed_shell_line(&given.value))?;
    Some(Found { kind: &kinds::PYTHON_SUBPROCESS_SHELL, level: shell(Some(origin)), origin: Some(origin) })
}

/// Where the line comes from in a list such as `["sh", "-c", line]`, whoever is given it.
fn computed_shell_line(value: &Value) -> Option<Source> {
    let Value::List(words) = value else { return None };
    let [Value::Known(program), Value::Known(option), line, ..] = words.as_slice() else { return None };
    let name = program.rsplit('/').next()?;
    let is_shell = matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash");
    let is_code = option.starts_with('-') && !option.starts_with("--") && option.ends_with('c');
    if is_shell && is_code { folding::source_of(line) } else { None }
}

fn of_subprocess(call: &Call) -> Found {
    let words = call.positional(0).or_else(|| call.named("args")).or_else(|| call.named("command"));
    let unknown = Value::Unknown(Source::Variable);
    let words = words.unwrap_or(&unknown);
    if call.name.ends_with("_exec") {
        let words: Vec<Value> = call
            .arguments
            .iter()
            .filter(|given| given.name.is_none())
            .map(|given| given.value.clone())
            .collect();
        let (level, origin) = program(&Value::List(words));
        return Found { kind: &kinds::PYTHON_SUBPROCESS, level, origin };
    }
    if call.is_through_shell() {
        let origin = folding::source_of(words);
        return Found { kind: &kinds::PYTHON_SUBPROCESS_SHELL, level: shell(origin), origin };
    }
    let (level, origin) = program(words);
    Found { kind: &kinds::PYTHON_SUBPROCESS, level, origin }
}

fn of_exec(call: &Call) -> Found {
    let words: Vec<Value> = call
        .arguments
        .iter()
        .filter(|given| given.name.is_none())
        .skip(usize::from(call.name.starts_with("os.spawn")))
        .map(|given| given.value.clone())
        .collect();
    let (level, origin) = program(&Value::List(words));
    Found { kind: &kinds::PYTHON_SUBPROCESS, level, origin }
}

/// The loader's name is not a value that a reader works out, so the text of the call tells.
fn is_safe_yaml(text: &str) -> bool {
    ["SafeLoader", "BaseLoader", "safe_load", "typ='safe'", "typ=\"safe\""]
        .iter()
        .any(|name| text.contains(name))
}

fn of_javascript_call(call: &Call) -> Option<Found> {
    let origin = first(call);
    let found = |kind, level| Some(Found { kind, level, origin });
    match call.name.as_str() {
        "eval" | "execScript" => found(&kinds::JS_EVAL, plain(origin)),
        "Function" | "AsyncFunction" | "GeneratorFunction" => {
            let origin = call.arguments.iter().filter_map(|given| folding::source_of(&given.value)).max();
            (!call.arguments.is_empty()).then_some(Found {
                kind: &kinds::JS_FUNCTION,
                level: plain(origin),
                origin,
            })
        }
        name if name.starts_with("vm.")
            && matches!(
                &name[3..],
                "runInThisContext"
                    | "runInNewContext"
                    | "runInContext"
                    | "Script"
                    | "compileFunction"
                    | "SourceTextModule"
            ) =>
        {
            found(&kinds::JS_VM, plain(origin).max(Level::Medium))
        }
        "vm2.VM" | "vm2.NodeVM" => found(&kinds::JS_VM, Level::High),
        "worker_threads.Worker" if call.named("eval").is_some_and(|eval| eval.known() != Some("false")) => {
            found(&kinds::JS_EVAL, plain(origin))
        }
        "child_process.exec"
        | "child_process.execSync"
        | "shelljs.exec"
        | "execa.execaCommand"
        | "execa.command"
        | "zx.$"
        | "Bun.$"
        | "bun.$" => found(&kinds::JS_EXEC, shell(origin)),
        "child_process.spawn"
        | "child_process.spawnSync"
        | "child_process.execFile"
        | "child_process.execFileSync"
        | "child_process.fork"
        | "cross-spawn"
        | "cross-spawn.sync"
        | "cross-spawn.spawn"
        | "execa"
        | "execa.execa"
        | "execa.execaSync"
        | "Bun.spawn"
        | "Bun.spawnSync"
        | "Deno.Command"
        | "Deno.run"
        | "node-pty.spawn" => Some(of_spawn(call)),
        "setTimeout" | "setInterval" | "setImmediate" => {
            let is_text = matches!(call.positional(0), Some(Value::Known(_) | Value::Begins(..)));
            is_text.then_some(Found { kind: &kinds::JS_TIMER, level: plain(origin), origin })
        }
        "node-serialize.unserialize" | "serialize-to-js.deserialize" | "funcster.deepDeserialize" => {
            found(&kinds::JS_SERIALIZE, plain(origin).max(Level::High))
        }
        "process.binding" | "process.dlopen" | "process._linkedBinding" => {
            found(&kinds::JS_BINDING, Level::Medium)
        }
        _ => None,
    }
}

fn of_spawn(call: &Call) -> Found {
    let mut words: Vec<Value> = call.positional(0).cloned().into_iter().collect();
    match call.positional(1) {
        Some(Value::List(more)) => words.extend(more.iter().cloned()),
        Some(other) if other.known().is_none() => words.push(other.clone()),
        _ => {}
    }
    let words = match words.as_slice() {
        [Value::List(list)] => Value::List(list.clone()),
        _ => Value::List(words),
    };
    if call.is_through_shell() {
        let origin = folding::source_of(&words);
        return Found { kind: &kinds::JS_SPAWN_SHELL, level: shell(origin), origin };
    }
    let (level, origin) = program(&words);
    Found { kind: &kinds::JS_SPAWN, level, origin }
}

fn of_command(command: &Command, depth: u8, text: &dyn Fn() -> String) -> Option<Found> {
    let is_download =
        command.reads_from.iter().any(|from| matches!(from.as_str(), "curl" | "wget" | "fetch" | "aria2c"));
    let is_shell = |name: &str| matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash");
    let name = command.name();
    if is_download
        && name.is_some_and(|name| {
            is_shell(name)
                || name.starts_with("python")
                || matches!(name, "node" | "perl" | "ruby" | "php" | "eval" | "source" | ".")
        })
        && (!name.is_some_and(|name| name.starts_with("python") || name == "node")
            || runs_standard_input(command))
    {
        return Some(Found { kind: &kinds::SHELL_DOWNLOAD, level: Level::High, origin: Some(Source::Input) });
    }
    // Inside of Python and JavaScript, the call around it has been found already.
    if depth > 0 {
        return None;
    }
    let is_of_interest = name.is_none_or(|name| {
        is_shell(name) || matches!(name, "eval" | "source" | "." | "ssh" | "docker" | "podman" | "nerdctl")
    });
    if !is_of_interest {
        return None;
    }
    let text = &text();
    let origin = shell_origin(command, text);
    let found = |kind, level| Some(Found { kind, level, origin });
    match name {
        None => {
            let Value::Unknown(_) = &command.program else { return None };
            found(&kinds::SHELL_PROGRAM, Level::Low)
        }
        Some("eval") => found(&kinds::SHELL_EVAL, shell(origin)),
        Some("source" | ".") => {
            // `source "$here/lib.sh"`: a folder of one's own, and a fixed name.
            let is_beside = text.contains(".sh") || text.contains("/bin/activate") || text.contains("/etc/");
            let level = if is_beside { Level::Low } else { mild(origin).max(Level::Medium) };
            origin.and_then(|_| found(&kinds::SHELL_SOURCE, level))
        }
        Some(name) if is_shell(name) => {
            let at = command.arguments.iter().position(|word| word.known().is_some_and(is_code_option))?;
            let code = command.arguments.get(at + 1)?;
            // `$` that is still there was in single quotes: the inner shell's own.
            let is_fixed = code.known().is_some_and(|code| code.contains('$') || !has_expansion(text));
            if command.wrappers.iter().any(|wrapper| wrapper == "xargs" || wrapper == "find")
                && (text.contains("{}") && code.shown().contains("{}"))
            {
                return Some(Found {
                    kind: &kinds::SHELL_XARGS,
                    level: Level::High,
                    origin: Some(Source::Input),
                });
            }
            if is_fixed { None } else { found(&kinds::SHELL_C, shell(origin)) }
        }
        Some("ssh") => {
            let words = command.arguments.iter().filter(|word| !word.shown().starts_with('-')).count();
            let level = mild(origin).max(Level::Medium);
            if words >= 2 && origin.is_some() { found(&kinds::SHELL_SSH, level) } else { None }
        }
        Some("docker" | "podman" | "nerdctl") => of_container(command),
        _ => None,
    }
}

fn is_code_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

/// `curl … | python3`, but not `curl … | python3 -m json.tool`.
fn runs_standard_input(command: &Command) -> bool {
    command.arguments.first().is_none_or(|first| first.known() == Some("-"))
}

fn of_container(command: &Command) -> Option<Found> {
    let has = |sought: &str| command.arguments.iter().any(|word| word.shown().contains(sought));
    let kind = if has("--privileged") {
        &kinds::CONTAINER_PRIVILEGED
    } else if has("docker.sock") {
        &kinds::CONTAINER_SOCKET
    } else {
        return None;
    };
    Some(Found { kind, level: Level::High, origin: None })
}

/// The reader works a script out as if it had no arguments and no environment; here both count as what they are.
fn shell_origin(command: &Command, text: &str) -> Option<Source> {
    let known = command.arguments.iter().filter_map(folding::source_of).max();
    if !has_expansion(text) {
        return known;
    }
    let has_parameter =
        text.as_bytes().windows(2).any(|pair| matches!(pair, [b'$', b'1'..=b'9' | b'@' | b'*']))
            || text.as_bytes().windows(3).any(|pair| matches!(pair, [b'$', b'{', b'1'..=b'9' | b'@' | b'*']));
    let read = if has_parameter { Source::Parameter } else { Source::Variable };
    // What is sourced by a variable that the script does not set is mostly its environment's: not a stranger's.
    let is_sourced = matches!(command.name(), Some("source" | "."));
    Some(match known {
        Some(Source::Input) if is_sourced && !has_parameter => Source::Variable,
        Some(known) => known.max(read),
        None => read,
    })
}

/// Whether something in a command is put in by the shell, outside of single quotes.
fn has_expansion(text: &str) -> bool {
    let (mut is_quoted, mut is_double, mut is_escaped) = (false, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if !is_quoted => is_escaped = true,
            b'\'' if !is_double => is_quoted = !is_quoted,
            b'"' if !is_quoted => is_double = !is_double,
            b'$' | b'`' if !is_quoted => return true,
            _ => {}
        }
    }
    false
}
