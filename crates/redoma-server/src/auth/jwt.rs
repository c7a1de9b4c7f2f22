//! LibreChat's tokens: short-lived, signed with its private key, and naming its user on every call.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use jsonwebtoken::jwk::{AlgorithmParameters, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use redoma_model::{Owner, Principal, Role};
use serde::Deserialize;

use super::valid_user;

const ISSUER: &str = "librechat";
const AUDIENCE: &str = "codeapi";
/// Seconds that a token may live. LibreChat's live 300.
const LONGEST_LIFE: u64 = 600;
/// Seconds that clocks may differ.
const LEEWAY: u64 = 30;

#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    #[error("can't read the public key {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} holds no public key: a PEM file (Ed25519 or RSA) or a JWKS is needed", .0.display())]
    NotAKey(PathBuf),
}

/// Whoever checks tokens. The file is read again when it has changed.
#[derive(Debug)]
pub struct Jwt {
    path: PathBuf,
    keys: Mutex<(Option<SystemTime>, Vec<PublicKey>)>,
}

#[derive(Clone)]
struct PublicKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize)]
struct Claims {
    sub: String,
    exp: u64,
    iat: u64,
    tenant_id: Option<String>,
}

/// Whether it has the three parts of one.
pub(super) fn looks_like_one(token: &str) -> bool {
    token.split('.').count() == 3 && token.starts_with("ey")
}

impl Jwt {
    pub(super) fn open(path: PathBuf) -> Result<Self, JwtError> {
        let keys = read(&path)?;
        Ok(Self { keys: Mutex::new((changed(&path), keys)), path })
    }

    /// Who the token is about, or why it does not count.
    pub(super) fn verify(&self, token: &str) -> Result<Principal, String> {
        let header = decode_header(token).map_err(|error| error.to_string())?;
        let keys = self.current();
        let mut why = "no key for this kind of token".to_owned();
        // By its id where both have one; the algorithm is the key's, never the token's choice.
        let fits = |key: &&PublicKey| {
            key.algorithm == header.alg && (key.id.is_none() || header.kid.is_none() || key.id == header.kid)
        };
        for key in keys.iter().filter(fits) {
            let mut validation = Validation::new(key.algorithm);
            validation.set_issuer(&[ISSUER]);
            validation.set_audience(&[AUDIENCE]);
            validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
            validation.validate_nbf = true;
            validation.leeway = LEEWAY;
            match decode::<Claims>(token, &key.key, &validation) {
                Ok(token) => return principal(&token.claims),
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    fn current(&self) -> Vec<PublicKey> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let now = changed(&self.path);
        if now != keys.0 {
            match read(&self.path) {
                Ok(read) => *keys = (now, read),
                // A bad file never replaces a good one.
                Err(error) => {
                    tracing::error!(%error, "the public key could not be read again; the old one stays");
                    keys.0 = now;
                }
            }
        }
        keys.1.clone()
    }
}

fn principal(claims: &Claims) -> Result<Principal, String> {
    if claims.exp.saturating_sub(claims.iat) > LONGEST_LIFE {
        return Err("the token lives too long".to_owned());
    }
    let user = valid_user(&claims.sub).ok_or("the token names no user")?;
    let tenant =
        valid_user(claims.tenant_id.as_deref().unwrap_or("legacy")).ok_or("the token's tenant is no name")?;
    let owner = Owner { client: format!("librechat-jwt:{tenant}"), user: Some(user) };
    Ok(Principal::without_key(Role::User, owner, true))
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn read(path: &Path) -> Result<Vec<PublicKey>, JwtError> {
    let bytes = std::fs::read(path).map_err(|source| JwtError::Read { path: path.to_owned(), source })?;
    let keys = if bytes.trim_ascii_start().starts_with(b"{") { from_jwks(&bytes) } else { from_pem(&bytes) };
    if keys.is_empty() { Err(JwtError::NotAKey(path.to_owned())) } else { Ok(keys) }
}

fn from_pem(bytes: &[u8]) -> Vec<PublicKey> {
    let ed25519 = DecodingKey::from_ed_pem(bytes).map(|key| (Algorithm::EdDSA, key));
    let found = ed25519.or_else(|_| DecodingKey::from_rsa_pem(bytes).map(|key| (Algorithm::RS256, key)));
    found.into_iter().map(|(algorithm, key)| PublicKey { id: None, algorithm, key }).collect()
}

fn from_jwks(bytes: &[u8]) -> Vec<PublicKey> {
    let set: JwkSet = serde_json::from_slice(bytes).unwrap_or(JwkSet { keys: Vec::new() });
    let one = |jwk: &jsonwebtoken::jwk::Jwk| {
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::OctetKeyPair(_) => Algorithm::EdDSA,
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            _ => return None,
        };
        let key = DecodingKey::from_jwk(jwk).ok()?;
        Some(PublicKey { id: jwk.common.key_id.clone(), algorithm, key })
    };
    set.keys.iter().filter_map(one).collect()
}
