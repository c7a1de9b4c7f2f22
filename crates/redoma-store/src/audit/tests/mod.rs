//! The audit's promises, each tried against its breaking.

mod asking;
mod crashes;
mod tampering;

use std::fs;
use std::path::Path;

use redoma_model::{
    AuditEvent, AuditQuery, AuditSettings, AuditedAction, AuditedEnd, AuditedStart, ByteSize, ExecutionId,
    Role, SessionId, Who,
};
use tempfile::TempDir;

use super::*;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn small_segments(bytes: u64) -> AuditSettings {
    AuditSettings { segment: ByteSize(bytes), ..AuditSettings::default() }
}

fn who(user: &str) -> Who {
    let client = Some("chat".to_owned());
    Who { client, user: Some(user.to_owned()), role: Some(Role::Client), ..Who::default() }
}

fn admin(user: &str, what: &str) -> AuditEvent {
    AuditEvent::Admin(AuditedAction { who: who(user), what: what.to_owned(), note: None })
}

fn started(audit: &Audit, user: &str, number: u8) -> AuditEvent {
    AuditEvent::ExecutionStarted(Box::new(AuditedStart {
        who: who(user),
        execution: ExecutionId::from_random([number; 21]),
        session: Some(SessionId::from_random([number % 4; 21])),
        profile: "default".to_owned(),
        language: "python".to_owned(),
        code: audit.code("print(6 * 7)"),
        verdict: None,
        note: None,
    }))
}

fn ended(user: &str, number: u8) -> AuditEvent {
    let session = Some(SessionId::from_random([number % 4; 21]));
    let end = AuditedEnd::of(who(user), ExecutionId::from_random([number; 21]), session);
    AuditEvent::ExecutionEnded(Box::new(AuditedEnd { exit_code: Some(0), ..end }))
}

fn sound(folder: &Path) -> Sound {
    match verify(folder, VerifyOptions::default()) {
        Ok(sound) => sound,
        Err(unsound) => panic!("{unsound:#?}"),
    }
}

fn flaws(folder: &Path) -> Vec<Flaw> {
    match verify(folder, VerifyOptions::default()) {
        Ok(_) => Vec::new(),
        Err(Unsound::Flaws(flaws)) => flaws,
        Err(Unsound::Unreadable(error)) => panic!("{error}"),
    }
}

/// A copy to be tampered with.
fn copy(from: &Path) -> TempDir {
    let to = folder();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Several segments, several kinds, closed.
fn example() -> TempDir {
    let folder = folder();
    let audit = Audit::open(folder.path(), small_segments(1500)).unwrap();
    for number in 1..=4 {
        audit.append(&started(&audit, "ana", number)).unwrap();
        audit.append(&ended("ana", number)).unwrap();
    }
    audit.append(&admin("ben \"\n\u{202e}é", "reload")).unwrap();
    folder
}

fn all() -> AuditQuery {
    AuditQuery { limit: usize::MAX, ..AuditQuery::default() }
}
