//! The programs and the further code that a call runs.

use super::Reader;
use super::known_calls::{Code, Takes, code_argument, runs_program};
use crate::commands;
use crate::facts::{Call, Import, Language, Opaque, Value, What, Why};
use crate::folding;
use crate::nested;

impl Reader<'_> {
    /// Writes down what a call runs, if it runs something.
    pub(super) fn runs(&mut self, call: &Call, offset: u32, is_decoded: bool, is_text: bool) {
        let name = call.name.as_str();
        if let Some(takes) = runs_program(name) {
            self.program(call, takes, offset);
        } else if let Some(which) = code_argument(name) {
            let code = match which {
                Code::First => call.positional(0),
                Code::Last => call
                    .arguments
                    .iter()
                    .rfind(|argument| argument.name.is_none())
                    .map(|argument| &argument.value),
                // A function mostly; a text is code.
                Code::FirstIfText => call
                    .positional(0)
                    .filter(|value| is_text || matches!(value, Value::Known(_) | Value::Begins(..))),
            };
            if let Some(code) = code {
                self.code(name, code, offset, is_decoded);
            }
        } else if matches!(
            name,
            "require"
                | "module.require"
                | "process.mainModule.require"
                | "process.getBuiltinModule"
                | "require.main.require"
        ) {
            if let Some(module) = call.positional(0).cloned() {
                self.note(What::Import(Import { module }), offset);
            }
        } else if name == "worker_threads.Worker"
            && call.named("eval").is_some_and(|eval| eval.known() != Some("false"))
            && let Some(code) = call.positional(0)
        {
            self.code(name, code, offset, is_decoded);
        }
    }

    fn code(&mut self, name: &str, code: &Value, offset: u32, is_decoded: bool) {
        if let Value::Known(code) = code {
            let at = self.places.of(usize::try_from(offset).unwrap_or(usize::MAX));
            self.facts.extend(nested::read_inside(Language::JavaScript, code, at));
        } else {
            let why = if is_decoded { Why::Decoded } else { Why::Computed };
            self.note(What::Opaque(Opaque { by: name.to_owned(), why }), offset);
        }
    }

    fn program(&mut self, call: &Call, takes: Takes, offset: u32) {
        let at = self.places.of(usize::try_from(offset).unwrap_or(usize::MAX));
        let Some(first) = call.positional(0).or_else(|| call.named("cmd")) else { return };
        let words = || {
            let mut words = vec![first.clone()];
            match call.positional(1).or_else(|| call.named("args")) {
                Some(Value::List(more)) => words.extend(more.iter().cloned()),
                Some(Value::Known(_)) | None => {}
                Some(other) => words.push(folding::made_of([other])),
            }
            words
        };
        let facts = match takes {
            Takes::ShellLine => commands::line(&call.name, first, at),
            Takes::ProgramAndList if call.is_through_shell() => {
                let space = || Value::Known(" ".into());
                let mut words = words().into_iter();
                let program = words.next().unwrap_or_else(space);
                let line =
                    words.fold(program, |line, word| folding::joined(folding::joined(line, space()), word));
                commands::line(&call.name, &line, at)
            }
            Takes::ProgramAndList => commands::list(&call.name, &words(), at),
            Takes::List => match first {
                Value::List(words) => commands::list(&call.name, words, at),
                other => commands::line(&call.name, other, at),
            },
            Takes::Script => {
                if self.scope().loops > 0
                    && call.positional(0).is_some_and(|script| script.known() == Some("__filename"))
                {
                    self.note(What::Multiplies, offset);
                }
                let mut script = words();
                script.insert(0, Value::Known("node".into()));
                commands::list(&call.name, &script, at)
            }
        };
        self.facts.extend(facts);
    }
}
