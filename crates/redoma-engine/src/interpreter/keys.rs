//! Who may come in: keys, and a record of those who had none.

use std::net::IpAddr;

use redoma_model::{AuditEvent, AuditedAction, KeyId, Principal, Who, one_line};
use redoma_store::{KeyRecord, NewKey, Secret, StoreError};

use super::{Interpreter, InterpreterError};

/// Why a login failed, at most so long: parts of it may come from the request.
const MAX_REASON_BYTES: usize = 256;

impl Interpreter {
    /// Whose key this is, if anybody's.
    pub fn key(&self, secret: &Secret) -> Result<Option<KeyRecord>, StoreError> {
        self.store.key(secret)
    }

    pub fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.store.keys()
    }

    pub fn add_key(&self, admin: &Principal, new: NewKey) -> Result<(KeyRecord, Secret), InterpreterError> {
        let (record, secret) = self.store.add_key(new)?;
        if let Err(error) = self.record(|| AuditEvent::KeyCreated(record.audited(admin.into()))) {
            // One that nobody can see was made must not be.
            self.store.revoke_key(&record.id)?;
            return Err(error);
        }
        Ok((record, secret))
    }

    /// Whether there was one.
    pub fn revoke_key(&self, admin: &Principal, id: &KeyId) -> Result<bool, StoreError> {
        let was_there = self.store.revoke_key(id)?;
        if let Some(record) = self.store.keys()?.iter().find(|record| was_there && record.id == *id) {
            self.note(|| AuditEvent::KeyRevoked(record.audited(admin.into())));
        }
        Ok(was_there)
    }

    pub fn note_failed_login(&self, address: IpAddr, way: &str, reason: &str) -> Result<(), StoreError> {
        let reason = one_line(reason, MAX_REASON_BYTES);
        self.note(|| {
            let (who, what) = (Who::at(Some(address)), way.to_owned());
            AuditEvent::LoginFailed(AuditedAction { who, what, note: Some(reason.clone()) })
        });
        self.store.note_failed_login(address.to_string(), way.to_owned(), reason)
    }
}
