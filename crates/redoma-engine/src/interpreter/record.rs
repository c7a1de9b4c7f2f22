//! What happens here, for the audit. A program's record is written before it runs, and one that can't be written keeps it
//! from running.

use std::sync::Arc;

use redoma_model::{
    AuditEvent, AuditedAction, AuditedEnd, AuditedStart, AuditedVerdict, Decision, ExecutionId, Principal,
    SessionId, Verdict, Who,
};
use redoma_store::Audit;

use super::execution::{Execution, ExecutionRequest, Place};
use super::{Interpreter, InterpreterError};
use crate::language::Language;

/// A program whose start has been written down.
#[derive(Debug)]
pub(super) struct Record<'a> {
    interpreter: &'a Interpreter,
    who: Who,
    execution: ExecutionId,
    session: SessionId,
    is_denied: bool,
}

impl Interpreter {
    /// Where it is written down who did what, if it is.
    pub fn audit(&self) -> Option<&Arc<Audit>> {
        self.audit.as_ref()
    }

    /// Writes something down that must not happen without.
    pub(super) fn record(&self, event: impl FnOnce() -> AuditEvent) -> Result<(), InterpreterError> {
        if let Some(audit) = self.audit() {
            audit.append(&event())?;
        }
        Ok(())
    }

    /// Writes something down that has happened already, or is not theirs to prevent.
    pub fn note(&self, event: impl FnOnce() -> AuditEvent) {
        if let Some(Err(error)) = self.audit().map(|audit| audit.append(&event())) {
            (self.tell)(&error);
        }
    }

    /// Writes down what an admin is about to do.
    pub fn record_admin(&self, principal: Option<&Principal>, what: &str) -> Result<(), InterpreterError> {
        self.record(|| {
            let who = principal.map_or_else(Who::server, Who::from);
            AuditEvent::Admin(AuditedAction { who, what: what.to_owned(), note: None })
        })
    }

    pub(super) fn record_start(
        &self,
        principal: &Principal,
        place: &Place,
        language: &Language,
        request: &ExecutionRequest,
    ) -> Result<Record<'_>, InterpreterError> {
        let (who, execution, session) = (Who::from(principal), request.id.clone(), place.session.id.clone());
        let is_denied = place.verdict.as_ref().is_some_and(|verdict| verdict.decision == Decision::Deny);
        if let Some(audit) = self.audit() {
            let start = Box::new(AuditedStart {
                who: who.clone(),
                execution: execution.clone(),
                session: Some(session.clone()),
                profile: place.terms.profile.clone(),
                language: language.id.to_owned(),
                code: audit.code(&String::from_utf8_lossy(&request.code)),
                verdict: place.verdict.as_ref().map(audited),
                note: None,
            });
            let started = |start| AuditEvent::ExecutionStarted(start);
            audit.append(&if is_denied { AuditEvent::ExecutionDenied(start) } else { started(start) })?;
        }
        Ok(Record { interpreter: self, who, execution, session, is_denied })
    }
}

fn audited(verdict: &Verdict) -> AuditedVerdict {
    AuditedVerdict {
        decision: verdict.decision,
        rules: verdict.findings.iter().map(|finding| finding.rule.clone()).collect(),
        reason: verdict.findings.first().map(|finding| finding.reason.clone()),
    }
}

impl Record<'_> {
    /// Completes it with what came of the program.
    pub(super) fn end(self, result: &Result<Execution, InterpreterError>) {
        let Self { interpreter, who, execution, session, is_denied } = self;
        if is_denied {
            return;
        }
        let Some(audit) = interpreter.audit() else { return };
        let end = AuditedEnd::of(who, execution, Some(session));
        let end = match result {
            Ok(execution) => {
                let report = &execution.report;
                AuditedEnd {
                    ending: Some(report.ending),
                    exit_code: report.exit_code,
                    signal: report.signal.clone(),
                    limits_hit: report.limits_hit.iter().map(ToString::to_string).collect(),
                    isolation: Some(report.isolation.clone()),
                    usage: serde_json::to_value(&report.usage).ok(),
                    stdout: audit.output(&report.stdout.text),
                    stderr: audit.output(&report.stderr.text),
                    ..end
                }
                .with_artifacts(&execution.files)
                .with_more_artifacts(execution.more_files)
            }
            Err(error) => AuditedEnd { note: Some(error.to_string()), ..end },
        };
        interpreter.note(|| AuditEvent::ExecutionEnded(Box::new(end)));
    }
}
