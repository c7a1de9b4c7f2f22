//! What is said about a program before it runs: whether its profile has the language, and what the policy's rules find.
//!
//! Governance, not a wall: it keeps honest programs from what an operator does not want, and tells a model what to do
//! instead. The jail holds whatever is said here.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fmt::Write as _;

use redoma_model::{
    Action, CellReport, Class, Decision, FileName, Finding, Output, Owner, Profile, SessionId, Verdict,
};
use redoma_store::{NewExecution, Outcome};

use super::execution::{Execution, ExecutionRequest, Place, Variables, to_keep};
use super::{GovernedProfile, Interpreter, InterpreterError};
use crate::language::Language;
use crate::meter::Took;
use crate::outcome::denied;
use crate::supervise::Cancel;

/// Longer programs are not read, and so do not run where programs are.
const LONGEST: usize = 1 << 20;

/// A denial that is about a program as a whole, by no rule of the policy's.
fn denial(rule: &str, class: &str, excerpt: String, reason: String, hint: String) -> Verdict {
    let finding = Finding {
        rule: rule.to_owned(),
        class: class.to_owned(),
        decision: Decision::Deny,
        line: None,
        column: None,
        excerpt,
        reason,
        hint: Some(hint),
    };
    Verdict { decision: Decision::Deny, findings: vec![finding] }
}

fn too_long(length: usize) -> Verdict {
    let reason = "a program may have at most 1 MiB: longer ones can't be read before they run".to_owned();
    let hint = "put data into files and read them from the program".to_owned();
    denial("too-long", Class::Opaque.name(), format!("{length} bytes"), reason, hint)
}

impl Interpreter {
    /// What there is to say about a program; nothing, if nothing is. `shown` is the session whose files it sees.
    pub(super) fn judge(
        &self,
        governed: &GovernedProfile,
        language: &Language,
        owner: &Owner,
        request: &ExecutionRequest,
        shown: Option<&SessionId>,
        cancel: &Cancel,
    ) -> Result<Option<Verdict>, InterpreterError> {
        let code = request.code.as_slice();
        if let Some(verdict) = governed.judge_language(language) {
            return Ok(Some(verdict));
        }
        let known = redoma_policy::language_named(language.id).filter(|_| !governed.policy.is_off());
        let Some(known) = known else { return Ok(None) };
        if code.len() > LONGEST {
            return Ok(Some(too_long(code.len())));
        }
        let code = String::from_utf8_lossy(code);
        let facts = match &self.readers {
            Some(readers) => readers.read(owner, known, &code, cancel)?,
            None => redoma_policy::read(known, &code),
        };
        let names = OnceCell::new();
        let is_own =
            |module: &str| names.get_or_init(|| self.own_modules(shown, request, &code)).contains(module);
        Ok(told(governed.policy.judge(&facts, &code, is_own)))
    }
}

impl GovernedProfile {
    fn judge_language(&self, language: &Language) -> Option<Verdict> {
        if self.profile.languages.iter().any(|id| id == language.id) {
            return None;
        }
        let Profile { name, languages, .. } = &self.profile;
        let reason = format!("the profile `{name}` runs {} only", languages.join(", "));
        let hint = format!("write it in {}", languages.join(" or "));
        Some(denial("language", "language", language.id.to_owned(), reason, hint))
    }
}

/// What the policy found, in the words of a report.
fn told(found: redoma_policy::Verdict) -> Option<Verdict> {
    if found.findings.is_empty() {
        return None;
    }
    let findings = found.findings.into_iter().map(|finding| Finding {
        rule: finding.rule,
        class: finding.class.name().to_owned(),
        decision: decision(finding.action),
        line: Some(finding.line),
        column: Some(finding.column),
        excerpt: finding.excerpt,
        reason: finding.reason,
        hint: finding.hint,
    });
    Some(Verdict { decision: decision(found.action), findings: findings.collect() })
}

fn decision(action: Action) -> Decision {
    match action {
        Action::Allow => Decision::Allow,
        Action::Flag => Decision::Flag,
        Action::Deny => Decision::Deny,
    }
}

/// The names that stand before `.py` in a text, found in one pass: a text can have many, and import many others.
fn written_modules(code: &str) -> impl Iterator<Item = String> + '_ {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(".py").filter_map(move |(end, _)| {
        // A longer name is none that anybody imports.
        let start = code.floor_char_boundary(end.saturating_sub(LONGEST_NAME));
        let name = code[start..end].rsplit(|letter| !is_name(letter)).next().unwrap_or_default();
        (!name.is_empty()).then(|| name.to_owned())
    })
}

const LONGEST_NAME: usize = 128;

/// What a model is told about a program that may not run.
fn message(verdict: &Verdict) -> String {
    let mut text = String::from("This program was not run: a rule of this server forbids it.\n");
    for finding in verdict.findings.iter().filter(|finding| finding.decision == Decision::Deny).take(5) {
        let place = finding.line.map_or_else(String::new, |line| format!("line {line}: "));
        let _ = writeln!(text, "- {place}`{}`: {} (rule {})", finding.excerpt, finding.reason, finding.rule);
        if let Some(hint) = &finding.hint {
            let _ = writeln!(text, "  Instead: {hint}");
        }
    }
    text
}

impl Interpreter {
    /// The names under which a program can import files that it sees, or seems to write itself: the guard inside knows what
    /// is really there.
    fn own_modules(
        &self,
        session: Option<&SessionId>,
        request: &ExecutionRequest,
        code: &str,
    ) -> HashSet<String> {
        let files = session.and_then(|id| self.store.current_files(id).ok()).unwrap_or_default();
        let stored = files.iter().map(|(file, _)| &file.name);
        let named = request.files.iter().map(|file| &file.name);
        let first = |name: &FileName| {
            name.as_str().split('/').next().map(|first| first.trim_end_matches(".py").to_owned())
        };
        stored.chain(named).filter_map(first).chain(written_modules(code)).collect()
    }

    /// The answer to a program that may not run: an ordinary one, that a model can act on.
    pub(super) fn answer_denied(
        &self,
        place: Place,
        language: &Language,
        request: ExecutionRequest,
    ) -> Result<Execution, InterpreterError> {
        let Place { session, begins, terms, verdict, .. } = place;
        let verdict = verdict.unwrap_or(Verdict { decision: Decision::Deny, findings: Vec::new() });
        let started_at = self.store.now();
        let text = message(&verdict);
        if let Some(worst) = verdict.findings.first() {
            self.engine.meter().policy_denied(&worst.rule);
        }
        let cell = (request.variables == Variables::Kept).then(|| {
            let traceback = text.lines().map(ToOwned::to_owned).collect();
            let (name, value) = ("PolicyDenied".to_owned(), text.trim_end().to_owned());
            CellReport { outputs: vec![Output::Error { name, value, traceback }], ..CellReport::default() }
        });
        let report = denied(language.id, &terms, verdict, text);
        let execution = Execution::new(request.id.clone(), &session, started_at, report);
        let execution = Execution { cell, ..execution };
        let outcome = Outcome {
            begins: begins && self.store.session(&session.id)?.is_none(),
            is_single_run: begins && request.variables == Variables::Fresh,
            files: Vec::new(),
            gone: Vec::new(),
            all_or_nothing: false,
            execution: Some(NewExecution {
                id: request.id,
                started_at,
                language: language.id.to_owned(),
                result: to_keep(execution.clone()),
            }),
        };
        self.store.commit(&session, outcome)?;
        self.engine.meter().run(language.id, &execution.report, Took::default());
        Ok(execution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_a_text_names_as_files_are_found_in_one_pass() {
        let found = |code: &str| written_modules(code).collect::<Vec<_>>();
        assert_eq!(
            found("open('mine.py', 'w'); p = \"lib/other.py\"; x.pyplot; .py"),
            ["mine", "other", "x"]
        );
        assert_eq!(found("é.py"), ["é"]);
        assert_eq!(found(&format!("{}.py", "a".repeat(1000)))[0].len(), LONGEST_NAME);
    }
}
