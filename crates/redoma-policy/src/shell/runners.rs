//! Running a command: what it does itself, what it runs in turn, and which code it is given.

use compact_str::format_compact;
use smallvec::smallvec;

use super::expand::Line;
use super::tree::Offset;
use super::walk::{Extent, Flow, Input, Walker, plain_command};
use super::wrappers::{self, Inner};
use crate::facts::{Command, Language, Redirect, Source, Text, Value, Why};

/// Programs around programs beyond these are not taken off.
const MOST_WRAPPERS: usize = 12;

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish"];
/// What turns unreadable text into readable text.
const DECODERS: &[&str] = &[
    "base64", "base32", "basenc", "xxd", "od", "openssl", "gzip", "gunzip", "zcat", "bzip2", "bunzip2",
    "bzcat", "xz", "unxz", "xzcat", "zstd", "zstdcat", "uudecode", "rev", "tr", "gpg", "tac", "hexdump",
];
/// Languages that are not read, and what in them would matter.
const OTHER_LANGUAGES: &[&str] =
    &["perl", "ruby", "php", "lua", "awk", "gawk", "mawk", "tclsh", "Rscript", "osascript"];
const TELLING: &[&str] =
    &["system", "exec", "fork", "unlink", "rmtree", "popen", "socket", "spawn", "`", "qx", "| \"", "rm_r"];

impl Walker<'_> {
    pub(super) fn run(
        &mut self,
        line: Line,
        redirects: Vec<Redirect>,
        input: &Input,
        substituted: &[Text],
        at: Offset,
    ) -> Flow {
        let Line { fields: mut arguments, is_glob } = line;
        if arguments.is_empty() {
            return Flow::nothing();
        }
        let program = arguments.remove(0);
        if is_glob && program.known().is_some_and(|text| !matches!(text, "[" | "[[")) {
            self.opaque(at, &program.shown(), Why::Computed);
        }
        let folder = self.variables.folder.as_str();
        if folder != super::expand::WORKSPACE {
            for argument in &mut arguments {
                move_to_folder(argument, folder);
            }
        }
        let mut command =
            Command { arguments, redirects, reads_from: input.programs.to_vec(), ..plain_command(program) };
        loop {
            if let Some(name) = command.name().map(Text::from) {
                self.builtin(&name, &command.arguments);
                let flow = self.one(&name, &command, input, substituted, at);
                let mut inner = wrappers::inner(&name, &command.arguments);
                let last = inner.pop();
                for other in inner {
                    self.inner(&name, &command, other, input, at);
                }
                let Some(last) = last else {
                    self.note_command(at, command);
                    return flow;
                };
                match self.inner(&name, &command, last, input, at) {
                    Some(next) if next.wrappers.len() < MOST_WRAPPERS => {
                        self.note_command(at, command);
                        command = next;
                    }
                    Some(_) => {
                        self.opaque(at, &name, Why::TooDeep);
                        return flow;
                    }
                    None => {
                        self.note_command(at, command);
                        return flow;
                    }
                }
            } else {
                let decoded = substituted.iter().any(|program| DECODERS.contains(&program.as_str()));
                let why = if decoded { Why::Decoded } else { Why::Computed };
                self.opaque(at, &command.program.shown(), why);
                command.reads_from.extend(substituted.iter().cloned());
                self.note_command(at, command);
                return Flow { output: Value::Unknown(Source::Variable), programs: substituted.into() };
            }
        }
    }

    /// What a wrapper runs: text is read, the last program is looked at next, the ones before it are written down.
    fn inner(
        &mut self,
        name: &str,
        outer: &Command,
        inner: Inner,
        input: &Input,
        at: Offset,
    ) -> Option<Command> {
        match inner {
            Inner::Shell(text) => {
                self.shell_code(name, text, &outer.reads_from, at);
                None
            }
            Inner::Program(mut words) => {
                let program = words.remove(0);
                let mut wrappers = outer.wrappers.clone();
                wrappers.push(name.into());
                let reads_from = input.programs.to_vec();
                let redirects = outer.redirects.clone();
                let mut command = Command { program, arguments: words, wrappers, redirects, reads_from };
                if name == "xargs" {
                    // What is constant on the way in are further arguments.
                    if let Some(Value::Known(text)) = &input.text {
                        self.pay(text.len());
                        command.arguments.pop();
                        let words = text.split_whitespace().map(|word| Value::Known(word.into()));
                        command.arguments.extend(words);
                        command.arguments.push(Value::Unknown(Source::Input));
                    }
                }
                if name == "find" && command.name().is_some() {
                    self.note_command(at, command.clone());
                }
                Some(command)
            }
        }
    }

    /// What a program does by itself, and what comes out of it.
    fn one(
        &mut self,
        name: &str,
        command: &Command,
        input: &Input,
        substituted: &[Text],
        at: Offset,
    ) -> Flow {
        let from_code = || [command.reads_from.as_slice(), substituted].concat();
        let arguments = &command.arguments;
        let version = name.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
        match version {
            "eval" => {
                if let Some(code) = wrappers::joined(arguments) {
                    self.shell_code(name, code, &from_code(), at);
                }
                self.variables.complete = false;
                self.note_sources(command, substituted, at);
            }
            "source" | "." => {
                self.variables.complete = false;
                self.note_sources(command, substituted, at);
                let file = arguments.first().and_then(Value::known).unwrap_or_default();
                if matches!(file, "/dev/stdin" | "-") {
                    self.given_code(name, Language::Bash, input, &from_code(), at);
                } else if substituted.iter().any(|program| DECODERS.contains(&program.as_str())) {
                    self.opaque(at, name, Why::Decoded);
                }
            }
            "trap" | "alias" => {
                for argument in arguments.iter().take(if name == "trap" { 1 } else { usize::MAX }) {
                    if let Value::Known(text) = argument {
                        let code = if name == "alias" {
                            text.split_once('=').map(|(_, code)| code)
                        } else {
                            Some(text.as_str())
                        };
                        if let Some(code) = code.filter(|code| !code.is_empty() && *code != "-") {
                            self.code(at, Language::Bash, code.into(), Extent::Whole);
                        }
                    }
                }
            }
            _ if SHELLS.contains(&version) => {
                self.note_sources(command, substituted, at);
                self.interpreter(name, command, input, &from_code(), Interpreter::SHELL, at);
            }
            "python" | "pypy" | "ipython" => {
                self.note_sources(command, substituted, at);
                if let Some(module) = module_of(arguments) {
                    self.note_command(at, Command { wrappers: wrapped(command, name), ..module });
                } else {
                    self.interpreter(name, command, input, &from_code(), Interpreter::PYTHON, at);
                }
            }
            "node" | "nodejs" | "deno" | "bun" => {
                self.note_sources(command, substituted, at);
                self.interpreter(name, command, input, &from_code(), Interpreter::NODE, at);
            }
            _ if OTHER_LANGUAGES.contains(&version) => {
                let tells = |text: &str| TELLING.iter().any(|word| text.contains(word));
                if arguments.iter().filter_map(Value::known).any(tells) {
                    self.opaque(at, name, Why::Computed);
                }
            }
            _ => {}
        }
        Flow { output: output(name, arguments, input), programs: smallvec![name.into()] }
    }

    /// Says again what a code-running command is, with the programs that had a hand in its code.
    fn note_sources(&mut self, command: &Command, substituted: &[Text], at: Offset) {
        if !substituted.is_empty() {
            let mut command = command.clone();
            command.reads_from.extend(substituted.iter().cloned());
            self.note_command(at, command);
        }
    }

    /// `sh -c CODE`, `python3 -c CODE`, `node -e CODE`, or code on standard input.
    fn interpreter(
        &mut self,
        name: &str,
        command: &Command,
        input: &Input,
        from: &[Text],
        interpreter: Interpreter,
        at: Offset,
    ) {
        let arguments = &command.arguments;
        let mut index = 0;
        while let Some(argument) = arguments.get(index) {
            let Some(text) = argument.known() else { return };
            if interpreter.is_code(text) {
                let code = match text.split_once('=') {
                    Some((_, code)) if text.starts_with("--") => Some(Value::Known(code.into())),
                    _ => arguments.get(index + 1).cloned(),
                };
                if let Some(code) = code {
                    self.code_value(name, interpreter.language, code, from, at);
                }
                return;
            }
            if text == "-" || text == "-s" || text == "/dev/stdin" {
                break;
            }
            if !text.starts_with(['-', '+']) {
                return;
            }
            index += if interpreter.with_value.contains(&text) { 2 } else { 1 };
        }
        self.given_code(name, interpreter.language, input, from, at);
    }

    /// Code that comes on standard input.
    fn given_code(&mut self, name: &str, language: Language, input: &Input, from: &[Text], at: Offset) {
        match &input.text {
            Some(text) => self.code_value(name, language, text.clone(), from, at),
            None if from.is_empty() => {}
            None => self.code_value(name, language, Value::Unknown(Source::Input), from, at),
        }
    }

    fn shell_code(&mut self, name: &str, code: Value, from: &[Text], at: Offset) {
        self.code_value(name, Language::Bash, code, from, at);
    }

    fn code_value(&mut self, name: &str, language: Language, code: Value, from: &[Text], at: Offset) {
        let decoded = from.iter().any(|program| DECODERS.contains(&program.as_str()));
        let why = if decoded { Why::Decoded } else { Why::Computed };
        match code {
            Value::Known(code) => self.code(at, language, code, Extent::Whole),
            Value::Begins(code, _) => {
                self.opaque(at, name, why);
                self.code(at, language, code, Extent::Beginning);
            }
            _ => self.opaque(at, name, why),
        }
    }

    /// What changes the shell itself.
    fn builtin(&mut self, name: &str, arguments: &[Value]) {
        let unknown = || Value::Unknown(Source::Input);
        match name {
            "export" | "local" | "declare" | "readonly" | "typeset" => {
                for argument in arguments {
                    let (text, rest) = match argument {
                        Value::Known(text) => (text, None),
                        Value::Begins(text, source) => (text, Some(*source)),
                        _ => continue,
                    };
                    if let Some((variable, value)) = text.split_once('=') {
                        let value = match rest {
                            None => Value::Known(value.into()),
                            Some(source) if value.is_empty() => Value::Unknown(source),
                            Some(source) => Value::Begins(value.into(), source),
                        };
                        self.set(variable, value);
                    }
                }
            }
            "read" | "mapfile" | "readarray" | "getopts" => {
                for variable in
                    arguments.iter().filter_map(Value::known).filter(|text| !text.starts_with('-'))
                {
                    self.set(variable, unknown());
                }
                self.set("REPLY", unknown());
            }
            "printf" => {
                if let [flag, variable, printing @ ..] = arguments
                    && let (Some("-v"), Some(variable)) = (flag.known(), variable.known())
                {
                    let value = printed(printing).map_or_else(unknown, Value::Known);
                    self.set(variable, value);
                }
            }
            "unset" => {
                for variable in arguments.iter().filter_map(Value::known) {
                    self.variables.values.remove(variable);
                    self.variables.each.remove(variable);
                }
            }
            "set" => {
                let mark = arguments.iter().position(|argument| argument.known() == Some("--"));
                if let Some(mark) = mark {
                    let values = arguments[mark + 1..].to_vec();
                    for (index, value) in values.iter().enumerate().take(9) {
                        self.set(&(index + 1).to_string(), value.clone());
                    }
                    self.pay(values.iter().map(|value| value.known().map_or(1, str::len)).sum());
                    self.set("*", Value::List(values.clone()));
                    self.set("@", Value::List(values));
                }
            }
            "cd" | "pushd" => {
                let to = arguments.iter().find(|argument| {
                    argument.known().is_none_or(|text| !text.starts_with('-') || text == "-")
                });
                self.change_folder(to);
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy)]
struct Interpreter {
    language: Language,
    /// Options whose value is the next argument.
    with_value: &'static [&'static str],
    /// Whether an option is followed by code.
    takes_code: fn(&str) -> bool,
}

impl Interpreter {
    const SHELL: Self = Self {
        language: Language::Bash,
        with_value: &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"],
        takes_code: |option| option.starts_with('-') && !option.starts_with("--") && option.contains('c'),
    };
    const PYTHON: Self = Self {
        language: Language::Python,
        with_value: &["-W", "-X", "--check-hash-based-pycs"],
        takes_code: |option| option.starts_with('-') && !option.starts_with("--") && option.ends_with('c'),
    };
    const NODE: Self = Self {
        language: Language::JavaScript,
        with_value: &["-r", "--require", "--import", "--input-type"],
        takes_code: |option| {
            matches!(option, "-e" | "-p" | "-pe" | "-ep" | "--eval" | "--print" | "eval")
                || option.starts_with("--eval=")
                || option.starts_with("--print=")
        },
    };

    fn is_code(self, option: &str) -> bool {
        (self.takes_code)(option)
    }
}

fn wrapped(command: &Command, name: &str) -> Vec<Text> {
    command.wrappers.iter().cloned().chain([name.into()]).collect()
}

/// `python3 -m pip install x` is `pip install x`.
fn module_of(arguments: &[Value]) -> Option<Command> {
    let at = arguments.iter().position(|argument| argument.known() == Some("-m"))?;
    if !arguments[..at]
        .iter()
        .all(|argument| argument.known().is_some_and(|text| text.starts_with('-') && !text.ends_with('c')))
    {
        return None;
    }
    let program = arguments.get(at + 1)?.clone();
    Some(Command { arguments: arguments[at + 2..].to_vec(), ..plain_command(program) })
}

/// Names of files in another folder than the workspace, where they stand for all of it.
fn move_to_folder(value: &mut Value, folder: &str) {
    let Value::Known(text) = value else { return };
    if matches!(text.as_str(), "*" | "." | "./" | "./*" | ".*" | ".." | "../" | "../*" | ".[!.]*") {
        *text = format_compact!("{}/{text}", folder.trim_end_matches('/'));
    }
}

/// What a command prints, where that is constant.
fn output(name: &str, arguments: &[Value], input: &Input) -> Value {
    match name {
        "echo" => echoed(arguments),
        "printf" => printed(arguments).map_or(Value::Unknown(Source::Variable), Value::Known),
        "cat" | "tee" if arguments.iter().all(|argument| argument.known() == Some("-")) || name == "tee" => {
            input.text.clone().unwrap_or(Value::Unknown(Source::Input))
        }
        ":" | "true" | "false" | "cd" | "export" | "set" | "local" | "declare" | "mkdir" | "[" | "[["
        | "test" => Value::EMPTY,
        "cat" | "curl" | "wget" | "nc" | "ncat" | "head" | "tail" => Value::Unknown(Source::Input),
        _ => Value::Unknown(Source::Variable),
    }
}

fn echoed(arguments: &[Value]) -> Value {
    let is_option = |argument: &&Value| {
        argument.known().is_some_and(|text| {
            text.len() > 1 && text.starts_with('-') && text[1..].bytes().all(|byte| b"neE".contains(&byte))
        })
    };
    let options = arguments.iter().take_while(is_option).count();
    let interpreted =
        arguments[..options].iter().any(|option| option.known().is_some_and(|text| text.contains('e')));
    let text = wrappers::joined(&arguments[options..]).unwrap_or(Value::EMPTY);
    match text {
        Value::Known(text) => Value::Known((if interpreted { unescaped(&text) } else { text }) + "\n"),
        value => value,
    }
}

/// `printf` with `%s`, `%d` and `%b` only.
fn printed(arguments: &[Value]) -> Option<Text> {
    let (format, values) = arguments.split_first()?;
    let format = unescaped(format.known()?);
    let mut values = values.iter();
    let mut text = Text::default();
    let mut rounds = 0;
    loop {
        let before = values.len();
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                text.push(character);
                continue;
            }
            match characters.next() {
                Some('%') => text.push('%'),
                Some('s' | 'd' | 'c') => text.push_str(values.next().map_or(Some(""), Value::known)?),
                Some('b') => text.push_str(&unescaped(values.next().map_or(Some(""), Value::known)?)),
                _ => return None,
            }
        }
        rounds += 1;
        if values.len() == 0 || values.len() == before || rounds > 64 || text.len() > 64 << 10 {
            return Some(text);
        }
    }
}

/// Backslashes as `echo -e` and `printf` read them.
fn unescaped(text: &str) -> Text {
    if !text.contains('\\') {
        return text.into();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let code = text.as_bytes();
    let mut at = 0;
    while at < code.len() {
        if code[at] != b'\\' || at + 1 == code.len() {
            bytes.push(code[at]);
            at += 1;
            continue;
        }
        let digits = |from: usize, most: usize, radix: u32| {
            code[from.min(code.len())..]
                .iter()
                .take(most)
                .take_while(|byte| char::from(**byte).is_digit(radix))
                .count()
        };
        let (start, length, radix) = match code[at + 1] {
            b'x' => (at + 2, digits(at + 2, 2, 16), 16),
            b'0' => (at + 1, digits(at + 1, 4, 8), 8),
            b'1'..=b'7' => (at + 1, digits(at + 1, 3, 8), 8),
            _ => (at + 2, 0, 0),
        };
        if length > 0 {
            let number = u32::from_str_radix(&text[start..start + length], radix).unwrap_or_default();
            bytes.push(u8::try_from(number & 0xff).unwrap_or_default());
            at = start + length;
            continue;
        }
        match code[at + 1] {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'\\' => bytes.push(b'\\'),
            other => bytes.extend([b'\\', other]),
        }
        at += 2;
    }
    String::from_utf8_lossy(&bytes).into()
}
