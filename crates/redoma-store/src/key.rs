//! Keys: made here, shown once, kept as hashes.

use redoma_model::{AuditedKey, KeyId, Name, Owner, Role, Who};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::StoreError;
use crate::random::{hex, new_key_id, random};

/// What a caller proves who they are with.
#[derive(Clone)]
pub struct Secret(String);

/// Not shown where somebody prints a structure that holds it.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// 256 random bits, recognisable as ours by those who look for leaked keys.
    pub fn generate() -> Result<Self, StoreError> {
        Ok(Self(format!("rdm_{}", hex(&random::<32>()?))))
    }

    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// For the one moment in which it is shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: KeyId,
    pub role: Role,
    /// Whose things it opens. Two keys of one client open the same, so that one can take the other's place.
    pub owner: Owner,
    pub label: Option<String>,
    /// The profile of those who come with it, instead of the default one.
    pub profile: Option<String>,
    pub created_at: i64,
    pub revoked_at: Option<i64>,
    pub(crate) hash: [u8; 32],
}

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    pub role: Role,
    pub owner: Owner,
    pub label: Option<Name>,
    pub profile: Option<String>,
}

impl NewKey {
    pub(crate) fn record(self, secret: &Secret, now: i64) -> Result<KeyRecord, StoreError> {
        let Self { role, owner, label, profile } = self;
        Ok(KeyRecord {
            id: new_key_id()?,
            role,
            owner,
            label: label.map(Name::into_string),
            profile,
            created_at: now,
            revoked_at: None,
            hash: secret.hash(),
        })
    }
}

impl KeyRecord {
    /// What the audit keeps of it; `who` made it or took it back.
    pub fn audited(&self, who: Who) -> AuditedKey {
        AuditedKey {
            who,
            subject: self.id.clone(),
            role: Some(self.role),
            client: Some(self.owner.client.clone()),
            user: self.owner.user.clone(),
            label: self.label.clone(),
        }
    }

    /// Whether this is the record of that secret. Takes as long for a near miss as for any other.
    pub(crate) fn is_of(&self, secret: &Secret) -> bool {
        bool::from(self.hash.ct_eq(&secret.hash()))
    }
}
