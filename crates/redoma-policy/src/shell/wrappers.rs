//! Programs that run another program which is written after them.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::facts::{Source, Value};

/// What a program runs in turn.
#[derive(Debug)]
pub(super) enum Inner {
    Program(Vec<Value>),
    /// Text for a shell.
    Shell(Value),
}

struct Wrapper {
    names: &'static [&'static str],
    /// Options whose value is the next argument.
    with_value: &'static [&'static str],
    /// So many arguments come before the program.
    before: usize,
}

const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        names: &["sudo", "doas", "pkexec"],
        with_value: &[
            "-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U", "-r", "-t", "--user", "--group", "--prompt",
        ],
        before: 0,
    },
    Wrapper { names: &["env"], with_value: &["-u", "-C", "--unset", "--chdir"], before: 0 },
    Wrapper {
        names: &[
            "nohup",
            "setsid",
            "command",
            "builtin",
            "busybox",
            "toybox",
            "fakeroot",
            "unbuffer",
            "eatmydata",
        ],
        with_value: &[],
        before: 0,
    },
    Wrapper { names: &["exec"], with_value: &["-a"], before: 0 },
    Wrapper { names: &["time"], with_value: &["-f", "-o", "--format", "--output"], before: 0 },
    Wrapper { names: &["nice"], with_value: &["-n", "--adjustment"], before: 0 },
    Wrapper { names: &["ionice"], with_value: &["-c", "-n", "-p", "--class", "--classdata"], before: 0 },
    Wrapper { names: &["chrt", "taskset"], with_value: &["-p"], before: 1 },
    Wrapper { names: &["timeout"], with_value: &["-s", "-k", "--signal", "--kill-after"], before: 1 },
    Wrapper {
        names: &["stdbuf"],
        with_value: &["-i", "-o", "-e", "--input", "--output", "--error"],
        before: 0,
    },
    Wrapper { names: &["strace", "ltrace"], with_value: &["-e", "-o", "-p", "-s", "-u"], before: 0 },
    Wrapper { names: &["chroot", "setarch"], with_value: &[], before: 1 },
    Wrapper { names: &["unshare", "nsenter"], with_value: &["-t", "--target", "-S", "-G"], before: 0 },
    Wrapper {
        names: &["runuser", "setpriv", "capsh", "proot"],
        with_value: &["-u", "-g", "-G", "-r", "-b", "-w"],
        before: 0,
    },
    Wrapper { names: &["systemd-run"], with_value: &["-p", "--unit", "-u", "-E"], before: 0 },
    Wrapper {
        names: &["xargs"],
        with_value: &[
            "-I",
            "-n",
            "-P",
            "-L",
            "-d",
            "-E",
            "-a",
            "-s",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
        ],
        before: 0,
    },
    Wrapper { names: &["parallel"], with_value: &["-j", "-n", "-a", "--jobs"], before: 0 },
];

static BY_NAME: LazyLock<HashMap<&str, &Wrapper>> = LazyLock::new(|| {
    WRAPPERS.iter().flat_map(|wrapper| wrapper.names.iter().map(move |name| (*name, wrapper))).collect()
});

/// Options of `ssh` whose value is the next argument.
const SSH_VALUES: &[&str] = &[
    "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-p", "-Q", "-R",
    "-S", "-W", "-w",
];

/// What `name` runs, if it is a program that runs others.
pub(super) fn inner(name: &str, arguments: &[Value]) -> Vec<Inner> {
    match name {
        "find" => return executed_by_find(arguments),
        "watch" => {
            let rest = after_options(arguments, &["-n", "--interval"], 0);
            return shell_text(rest).into_iter().collect();
        }
        "ssh" => {
            let rest = after_options(arguments, SSH_VALUES, 1);
            return shell_text(rest).into_iter().collect();
        }
        "su" | "script" | "flock" | "runuser" if command_option(arguments).is_some() => {
            return command_option(arguments).cloned().map(Inner::Shell).into_iter().collect();
        }
        "flock" => {
            let rest = after_options(arguments, &["-w", "-E", "--timeout"], 1);
            return if rest.is_empty() { Vec::new() } else { vec![Inner::Program(rest.to_vec())] };
        }
        "command" if matches!(arguments.first().and_then(Value::known), Some("-v" | "-V")) => {
            return Vec::new();
        }
        "env" => {
            if let Some(text) = split_string(arguments) {
                return vec![Inner::Shell(text)];
            }
        }
        _ => {}
    }
    let Some(wrapper) = BY_NAME.get(name) else {
        return Vec::new();
    };
    let mut rest = after_options(arguments, wrapper.with_value, wrapper.before);
    while let Some(text) = rest.first().and_then(Value::known) {
        let is_setting = text.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        if !is_setting && !text.starts_with('-') {
            break;
        }
        rest = &rest[1..];
    }
    if rest.is_empty() {
        return Vec::new();
    }
    let mut program = rest.to_vec();
    if matches!(name, "xargs" | "parallel") {
        program.push(Value::Unknown(Source::Input));
    }
    vec![Inner::Program(program)]
}

/// What is left after options and `before` further arguments.
fn after_options<'v>(arguments: &'v [Value], with_value: &[&str], before: usize) -> &'v [Value] {
    let mut rest = arguments;
    while let Some(option) = rest.first().and_then(Value::known) {
        if option == "--" {
            rest = &rest[1..];
            break;
        }
        if !option.starts_with('-') || option == "-" {
            break;
        }
        let skipped = if with_value.contains(&option) { 2 } else { 1 };
        rest = rest.get(skipped..).unwrap_or_default();
    }
    rest.get(before..).unwrap_or_default()
}

/// What follows `-c`, also at the end of a group of options.
fn command_option(arguments: &[Value]) -> Option<&Value> {
    let is_it = |text: &str| {
        text == "--command" || text.starts_with('-') && !text.starts_with("--") && text.ends_with('c')
    };
    let at = arguments.iter().position(|argument| argument.known().is_some_and(is_it))?;
    arguments.get(at + 1)
}

/// `env -S 'rm -rf /'`
fn split_string(arguments: &[Value]) -> Option<Value> {
    for (index, argument) in arguments.iter().enumerate() {
        let text = argument.known()?;
        if !text.starts_with('-') {
            return None;
        }
        if text == "-S" || text == "--split-string" {
            return joined(&arguments[index + 1..]);
        }
        if let Some(rest) = text.strip_prefix("-S").or_else(|| text.strip_prefix("--split-string=")) {
            return Some(Value::Known(rest.into()));
        }
    }
    None
}

fn shell_text(arguments: &[Value]) -> Option<Inner> {
    joined(arguments).map(Inner::Shell)
}

/// Arguments with blanks between them, as `eval` and `ssh` put them together.
pub(super) fn joined(arguments: &[Value]) -> Option<Value> {
    let (first, rest) = arguments.split_first()?;
    let blank = || Value::Known(" ".into());
    let add = |before, value: &Value| {
        super::expand::concatenated(super::expand::concatenated(before, blank()), value.clone())
    };
    Some(rest.iter().fold(first.clone(), add))
}

/// The programs after `-exec` and its kin, each up to `;` or `+`.
fn executed_by_find(arguments: &[Value]) -> Vec<Inner> {
    let mut programs = Vec::new();
    let mut rest = arguments;
    while let Some(start) = rest
        .iter()
        .position(|argument| matches!(argument.known(), Some("-exec" | "-execdir" | "-ok" | "-okdir")))
    {
        rest = &rest[start + 1..];
        let end = rest
            .iter()
            .position(|argument| matches!(argument.known(), Some(";" | "+")))
            .unwrap_or(rest.len());
        // What it finds begins where it looks.
        let found = arguments
            .iter()
            .filter_map(Value::known)
            .find(|argument| !argument.starts_with('-'))
            .map_or(Value::Unknown(Source::Input), |folder| {
                Value::Begins(format!("{}/", folder.trim_end_matches('/')).into(), Source::Input)
            });
        let program = rest[..end]
            .iter()
            .map(|argument| if argument.known() == Some("{}") { found.clone() } else { argument.clone() })
            .collect::<Vec<_>>();
        if !program.is_empty() {
            programs.push(Inner::Program(program));
        }
        rest = &rest[end..];
    }
    programs
}
