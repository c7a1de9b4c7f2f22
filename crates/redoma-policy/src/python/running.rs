//! The programs and the further code that a call runs.

use super::Reader;
use super::known_calls::{Takes, runs_code, runs_program};
use crate::commands;
use crate::facts::{Argument, Call, Import, Language, Opaque, Value, What, Why};
use crate::nested;

impl Reader<'_> {
    /// Writes down what a call runs, if it runs something.
    pub(super) fn runs(&mut self, call: &Call, offset: usize, is_decoded: bool) {
        let name = call.name.as_str();
        if let Some(takes) = runs_program(name) {
            self.program(call, takes, offset);
        } else if runs_code(name) {
            self.code(call, offset, is_decoded);
        } else if matches!(name, "__import__" | "importlib.import_module" | "importlib.__import__") {
            let module = call.positional(0).cloned();
            if let Some(module) = module {
                self.note(What::Import(Import { module }), offset);
            }
        } else if matches!(name, "os.fork" | "os.forkpty" | "pty.fork") {
            self.scope().has_forked = true;
            if self.scope().loops > 0 {
                self.note(What::Multiplies, offset);
            }
        } else if matches!(name, "os.startfile") {
            self.note(What::Opaque(Opaque { by: name.to_owned(), why: Why::Computed }), offset);
        }
    }

    fn code(&mut self, call: &Call, offset: usize, is_decoded: bool) {
        let name = call.name.as_str();
        let Some(code) = call.positional(0).or_else(|| call.named("source")).or_else(|| call.named("stmt"))
        else {
            return;
        };
        match code {
            Value::Known(code) if !name.starts_with("runpy") && name != "execfile" => {
                let at = self.places.of(offset);
                self.facts.extend(nested::read_inside(Language::Python, code, at));
            }
            _ => {
                let why = if is_decoded { Why::Decoded } else { Why::Computed };
                self.note(What::Opaque(Opaque { by: name.to_owned(), why }), offset);
            }
        }
    }

    fn program(&mut self, call: &Call, takes: Takes, offset: usize) {
        let at = self.places.of(offset);
        let positional: Vec<Value> = call
            .arguments
            .iter()
            .filter(|argument| argument.name.is_none())
            .map(|argument| argument.value.clone())
            .collect();
        let first = |names: &[&str]| {
            positional.first().or_else(|| names.iter().find_map(|name| call.named(name))).cloned()
        };
        let facts = match takes {
            Takes::ShellLine => first(&["cmd", "command"]).map(|line| commands::line(&call.name, &line, at)),
            Takes::ListOrLine => first(&["args", "cmd", "argv", "command"]).map(|command| match &command {
                Value::List(words) if call.is_through_shell() => {
                    // Only the first word is the shell's line; the rest are its parameters.
                    words.first().map_or_else(Vec::new, |line| commands::line(&call.name, line, at))
                }
                Value::List(words) => commands::list(&call.name, words, at),
                line => commands::line(&call.name, line, at),
            }),
            Takes::ProgramAndList { skip } => positional.get(skip).map(|program| {
                let arguments = match positional.get(skip + 1) {
                    Some(Value::List(words)) => words.get(1..).unwrap_or_default().to_vec(),
                    Some(other) => vec![crate::folding::made_of([other])],
                    None => Vec::new(),
                };
                commands::list(&call.name, &with(program, arguments), at)
            }),
            Takes::ProgramNameAndEach { skip } => positional.get(skip).map(|program| {
                let arguments = positional.get(skip + 2..).unwrap_or_default().to_vec();
                commands::list(&call.name, &with(program, arguments), at)
            }),
            Takes::Each => Some(commands::list(&call.name, &positional, at)),
        };
        self.facts.extend(facts.unwrap_or_default());
    }
}

fn with(program: &Value, arguments: Vec<Value>) -> Vec<Value> {
    std::iter::once(program.clone()).chain(arguments).collect()
}

impl Call {
    /// The positional argument of that number.
    pub fn positional(&self, at: usize) -> Option<&Value> {
        self.arguments
            .iter()
            .filter(|argument| argument.name.is_none())
            .nth(at)
            .map(|argument| &argument.value)
    }

    /// The argument, or the option, of that name.
    pub fn named(&self, name: &str) -> Option<&Value> {
        let is_it = |argument: &&Argument| argument.name.as_deref() == Some(name);
        self.arguments.iter().find(is_it).map(|argument| &argument.value)
    }

    /// Whether it says `shell=True` or `{ shell: … }`, or something that can't be told.
    pub(crate) fn is_through_shell(&self) -> bool {
        self.named("shell").is_some_and(|shell| {
            !matches!(shell.known(), Some("False" | "false" | "None" | "0" | "undefined"))
        })
    }
}
