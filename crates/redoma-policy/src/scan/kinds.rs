//! The kinds of dynamic execution that a scan finds: what each is called, why it matters, what to do about it.

/// How bad it would be, judged by what is run and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Low,
    Medium,
    High,
    Critical,
}

impl Level {
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// One kind of finding.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// For baselines and for `redoma: ignore[…]`.
    pub id: &'static str,
    pub title: &'static str,
    pub why: &'static str,
    pub advice: &'static str,
}

const fn kind(id: &'static str, title: &'static str, why: &'static str, advice: &'static str) -> Kind {
    Kind { id, title, why, advice }
}

macro_rules! kinds {
    ($($name:ident = $id:literal, $title:literal, $why:literal, $advice:literal;)*) => {
        $(pub const $name: Kind = kind($id, $title, $why, $advice);)*
        /// All of them.
        pub const ALL: &[Kind] = &[$($name),*];
    };
}

kinds! {
    PYTHON_EVAL = "python-eval", "Python code is run from a text",
        "eval and exec do whatever the text says, with all that this process may do",
        "parse data with ast.literal_eval or json; run code that others wrote in a sandbox: redoma run --lang py -, or POST /api/v1/executions";
    PYTHON_COMPILE = "python-compile", "Python code is compiled from a text",
        "what is compiled is mostly run next, with all that this process may do",
        "if it only has to be parsed use ast.parse; run what others wrote with redoma run --lang py -, or POST /api/v1/executions";
    PYTHON_SHELL = "python-shell", "a line is given to the shell",
        "the shell runs everything in the line, so one ; or $( ) in a value is a command of its own",
        "use subprocess.run with a list; run what others wrote with redoma run --lang bash -, or POST /api/v1/executions";
    PYTHON_SUBPROCESS_SHELL = "python-subprocess-shell", "subprocess is used through the shell",
        "with shell=True one ; or $( ) in a value is a command of its own",
        "give a list and leave shell=True out; run what others wrote with redoma run --lang bash -, or POST /api/v1/executions";
    PYTHON_SUBPROCESS = "python-subprocess", "a program is started",
        "who chooses the program, or an argument that begins with -, chooses what happens on this host",
        "fix the program's path, put -- before values; run untrusted work with redoma run, or POST /api/v1/executions";
    PYTHON_PTY = "python-pty", "a program is started on a terminal of its own",
        "a program with a terminal is a way in for whoever reaches it",
        "use subprocess.run with a list; give people a shell in a session of Redoma instead of on this host";
    PYTHON_SSH = "python-remote-command", "a command is run on another host",
        "the other host's shell runs everything in the line",
        "quote each value with shlex.quote, or send a script that takes its values as arguments";
    PYTHON_PICKLE = "python-pickle", "pickled data is loaded",
        "loading a pickle can run any code that whoever made it chose",
        "use json or another plain format; load pickles of others inside redoma run --lang py --in FILE";
    PYTHON_MARSHAL = "python-marshal", "marshalled code is loaded",
        "marshal holds compiled code and is not safe against made-up data",
        "use json for data; load code of others inside redoma run --lang py --in FILE";
    PYTHON_SHELVE = "python-shelve", "a shelf is opened",
        "a shelf is made of pickles: who can write the file can run code",
        "use sqlite3 or json; keep the file where only this program may write";
    PYTHON_YAML = "python-yaml-load", "YAML is loaded with tags that make objects",
        "yaml.load without a safe loader builds any object that the text names",
        "use yaml.safe_load";
    PYTHON_IMPORT = "python-dynamic-import", "the name of an imported module is computed",
        "importing runs the module: who chooses the name chooses the code",
        "choose from a fixed list of names; import others' plug-ins inside redoma run --lang py";
    PYTHON_CTYPES = "python-native-library", "a native library is loaded by a computed name",
        "a library's start code runs when it is loaded, and nothing checks what it does",
        "load it by a fixed path";
    PYTHON_INTERACTIVE = "python-interactive", "a prompt for Python code is opened",
        "who reaches the prompt can run anything in this process",
        "leave it out of what is shipped; give people a session of Redoma: POST /api/v1/sessions";
    PYTHON_TEMPLATE = "python-template", "a template is made of a text that is not fixed",
        "templates can reach Python objects, so whoever writes one can mostly run code",
        "keep templates in files and pass values in, or render with jinja2.sandbox inside redoma run";
    PYTHON_PANDAS = "python-pandas-eval", "a query for pandas is put together from values",
        "the text is an expression that pandas evaluates, and @ reaches local variables",
        "compare columns in Python, or check the value against a fixed list first";
    PYTHON_MODEL = "python-model-load", "a model file is loaded that may hold code",
        "such files are pickles inside: loading one can run any code that whoever made it chose",
        "use safetensors, weights_only=True or allow_pickle=False; load files of others inside redoma run --in FILE";
    PYTHON_RUN_FILE = "python-run-file", "a Python file is run whose name is computed",
        "who chooses or writes the file chooses the code",
        "run it with redoma run FILE, or POST /api/v1/executions";
    JS_EVAL = "js-eval", "JavaScript code is run from a text",
        "eval does whatever the text says, with all that this process may do",
        "parse data with JSON.parse; run code that others wrote with redoma run --lang js -, or POST /api/v1/executions";
    JS_FUNCTION = "js-function", "a function is made of a text",
        "the Function constructor is eval with another name",
        "write the function down; run code that others wrote with redoma run --lang js -, or POST /api/v1/executions";
    JS_VM = "js-vm", "code is run with node:vm",
        "vm is not a wall: code in it gets out to the process around it in one line",
        "run it in a real sandbox: redoma run --lang js -, or POST /api/v1/executions";
    JS_EXEC = "js-exec", "a line is given to the shell",
        "exec runs everything in the line, so one ; or $( ) in a value is a command of its own",
        "use execFile or spawn with a list; run what others wrote with redoma run --lang bash -, or POST /api/v1/executions";
    JS_SPAWN_SHELL = "js-spawn-shell", "spawn is used through the shell",
        "with shell: true one ; or $( ) in a value is a command of its own",
        "leave the shell option out; run what others wrote with redoma run --lang bash -, or POST /api/v1/executions";
    JS_SPAWN = "js-spawn", "a program is started",
        "who chooses the program, or an argument that begins with -, chooses what happens on this host",
        "fix the program's path, put -- before values; run untrusted work with redoma run, or POST /api/v1/executions";
    JS_TIMER = "js-timer-string", "a timer is given code as a text",
        "setTimeout and setInterval evaluate a text like eval does",
        "give it a function";
    JS_IMPORT = "js-dynamic-import", "the name of a loaded module is computed",
        "loading runs the module: who chooses the name chooses the code",
        "choose from a fixed list of names; load others' plug-ins inside redoma run --lang js";
    JS_SERIALIZE = "js-unserialize", "data is unserialised that can hold functions",
        "node-serialize runs functions that are in the data",
        "use JSON.parse";
    JS_BINDING = "js-process-binding", "Node's internals are reached",
        "process.binding and process.dlopen go around every check of the module system",
        "use the public modules";
    SHELL_EVAL = "shell-eval", "eval runs a text that is put together",
        "eval reads the text again as code, so what is in a variable is run",
        "use an array (\"${command[@]}\") or a case; run what others wrote with redoma run --lang bash -";
    SHELL_C = "shell-c", "a shell is given code with variables in it",
        "what is in the variable becomes part of the code",
        "pass values as arguments: bash -c '… \"$1\"' _ \"$value\"; run what others wrote with redoma run --lang bash -";
    SHELL_SOURCE = "shell-source", "a script is sourced by a computed name",
        "who chooses the name, or writes the file, chooses the code",
        "source fixed paths that only you can write";
    SHELL_DOWNLOAD = "shell-download-run", "what was downloaded is run at once",
        "whoever answers the request runs code here, and nobody has seen it before",
        "download, check a known hash, then run; try it first with redoma run --lang bash FILE";
    SHELL_XARGS = "shell-xargs", "xargs puts its input into a shell's code",
        "names that it reads can hold code",
        "pass them as arguments: xargs -0 sh -c '… \"$@\"' _";
    SHELL_SSH = "shell-ssh", "a line with variables is run on another host",
        "the other host's shell reads the line again, so what is in a variable is run",
        "quote with printf %q, or send a script on standard input and values as arguments";
    SHELL_PROGRAM = "shell-computed-program", "the program that is run is in a variable",
        "who sets the variable chooses the program",
        "name the program, or check the variable against a fixed list";
    SUDOERS_ALL = "sudoers-all", "sudo lets somebody run everything",
        "whoever gets this account has the whole host",
        "list the commands that are needed, with full paths";
    SUDOERS_WILDCARD = "sudoers-wildcard", "a sudoers line has a wildcard",
        "* matches spaces and slashes too, so other arguments and files fit as well",
        "list the exact commands, or write a small script that checks its arguments";
    SUDOERS_ESCAPE = "sudoers-escape", "sudo lets somebody run a program that starts others",
        "editors, pagers, shells and interpreters can start a root shell",
        "use sudoedit for files; list commands that can't start others";
    CONTAINER_PRIVILEGED = "container-privileged", "a container is privileged",
        "a privileged container is root on the host with an extra step",
        "add the capabilities and devices that it needs, one by one";
    CONTAINER_SOCKET = "container-docker-socket", "a container gets the container engine's socket",
        "who has the socket can start a privileged container, and has the host",
        "leave it out; if code has to be run for others, let Redoma do it: it needs no socket";
    CONTAINER_HOST = "container-host", "a container shares the host's namespaces or has powers over it",
        "the container can see or change what is outside of it",
        "leave it out, or give the one capability that is needed";
    IGNORE_WITHOUT_REASON = "ignore-without-reason", "a finding is ignored without a reason",
        "the next reader can't tell whether it still holds, so it was not ignored",
        "write why behind it: redoma: ignore[kind] the list is fixed above";
}

/// The kind of that id.
pub fn named(id: &str) -> Option<&'static Kind> {
    ALL.iter().find(|kind| kind.id == id)
}
