//! Who may come in: keys, and a record of those who had none.

use redoma_model::KeyId;
use redoma_store::{KeyRecord, NewKey, Secret, StoreError};

use super::Interpreter;

impl Interpreter {
    /// Whose key this is, if anybody's.
    pub fn key(&self, secret: &Secret) -> Result<Option<KeyRecord>, StoreError> {
        self.store.key(secret)
    }

    pub fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.store.keys()
    }

    pub fn add_key(&self, new: NewKey) -> Result<(KeyRecord, Secret), StoreError> {
        self.store.add_key(new)
    }

    /// Whether there was one.
    pub fn revoke_key(&self, id: &KeyId) -> Result<bool, StoreError> {
        self.store.revoke_key(id)
    }

    pub fn note_failed_login(&self, address: String, way: String, reason: String) -> Result<(), StoreError> {
        self.store.note_failed_login(address, way, reason)
    }
}
