//! Lines that can't be changed unnoticed.
//!
//! Everything that the audit writes is a line of JSON that ends in two seals, in this order:
//!
//! ```text
//! {…what it says…,"mac":"<HMAC-SHA256>","hash":"<SHA-256>"}
//! ```
//!
//! The hash is that of the exact bytes before it, the mac included; whoever verifies never writes JSON anew. The mac is over
//! the SHA-256 of the bytes before *it* and takes the key to make: without the key the hashes can be checked, and only with
//! it can they be made again. A record's line names its place just before the seals:
//!
//! ```text
//! {"kind":…,"at":1763240000000,"seq":42,"prev":"<hash of 41>","mac":"…","hash":"…"}
//! ```
//!
//! What is long comes first, so that it is hashed by the thread that brings it, before that thread waits for its turn.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::AuditError;
use crate::random::{hex, random};

pub(super) type Hash = [u8; 32];

/// What the first record names as the one before it.
pub(super) const NOTHING: Hash = [0; 32];

const PREV: &[u8] = b",\"prev\":\"";
const MAC: &[u8] = b",\"mac\":\"";
const HASH: &[u8] = b",\"hash\":\"";
const HEX: usize = 64;
const KEY_FILE: &str = "key";

/// What seals are made with.
#[derive(Clone)]
pub struct AuditKey {
    mac: Hmac<Sha256>,
    id: String,
}

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuditKey({})", self.id)
    }
}

impl AuditKey {
    fn new(bytes: &[u8; 32]) -> Self {
        let mac = Hmac::new_from_slice(bytes).expect("HMAC takes keys of any length");
        let id = Sha256::new_with_prefix(b"redoma audit key\n").chain_update(bytes).finalize();
        Self { mac, id: hex(&id[..8]) }
    }

    /// The beginning of its hash: tells keys apart, and nothing about them.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn file(folder: &Path) -> PathBuf {
        folder.join(KEY_FILE)
    }

    /// The key in this file; nothing if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>, AuditError> {
        let mut text = String::new();
        match File::open(path).and_then(|file| file.take(1024).read_to_string(&mut text)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AuditError::files(path, source)),
        }
        let bytes = unhex(text.trim_end().as_bytes());
        bytes.map(|bytes| Some(Self::new(&bytes))).ok_or_else(|| AuditError::NoKey { path: path.to_owned() })
    }

    /// Makes one, on disk before it is used.
    pub(super) fn make(folder: &Path) -> Result<Self, AuditError> {
        let path = Self::file(folder);
        let bytes: [u8; 32] = random().map_err(|error| AuditError::Random(error.to_string()))?;
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| writeln!(file, "{}", hex(&bytes)).and_then(|()| file.sync_all()));
        written.map_err(|source| AuditError::files(&path, source))?;
        Ok(Self::new(&bytes))
    }

    fn seal(&self, digest: &[u8]) -> Hash {
        self.mac.clone().chain_update(digest).finalize().into_bytes().into()
    }

    fn is_seal(&self, digest: &[u8], seal: &Hash) -> bool {
        self.mac.clone().chain_update(digest).verify(seal.into()).is_ok()
    }
}

/// Something to be sealed: a JSON object without its closing brace, hashed as far as it goes.
#[derive(Debug, Clone)]
pub(super) struct Body {
    bytes: Vec<u8>,
    state: Sha256,
}

impl Body {
    pub fn new(value: &impl Serialize) -> Result<Self, AuditError> {
        let mut bytes = Vec::with_capacity(512);
        serde_json::to_writer(&mut bytes, value)
            .map_err(|error| AuditError::Unwritable(error.to_string()))?;
        bytes.pop();
        let state = Sha256::new_with_prefix(&bytes);
        Ok(Self { bytes, state })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes it as the record of this place; its hash.
    pub fn place(&self, place: &Place, key: &AuditKey, out: &mut Vec<u8>) -> Hash {
        let Place { at, seq, prev } = place;
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let _ = write!(out, ",\"at\":{at},\"seq\":{seq}");
        out.extend_from_slice(PREV);
        push_hex(out, prev);
        out.push(b'"');
        let state = self.state.clone().chain_update(&out[start + self.bytes.len()..]);
        let hash = finish(state, key, out);
        out.push(b'\n');
        hash
    }

    /// Writes it as a line by itself.
    pub fn alone(&self, key: &AuditKey, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
        finish(self.state.clone(), key, out);
    }
}

fn finish(state: Sha256, key: &AuditKey, out: &mut Vec<u8>) -> Hash {
    let start = out.len();
    let mac = key.seal(&state.clone().finalize());
    out.extend_from_slice(MAC);
    push_hex(out, &mac);
    out.push(b'"');
    let hash: Hash = state.chain_update(&out[start..]).finalize().into();
    out.extend_from_slice(HASH);
    push_hex(out, &hash);
    out.extend_from_slice(b"\"}");
    hash
}

fn push_hex(out: &mut Vec<u8>, hash: &Hash) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(hash.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

/// Lowercase only: each hash has one way to be written.
pub(super) fn unhex(text: &[u8]) -> Option<Hash> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != HEX {
        return None;
    }
    let mut hash = NOTHING;
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

/// Where a record is in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub at: i64,
    pub seq: u64,
    pub prev: Hash,
}

/// How a sealed line was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seals {
    Whole,
    /// It is not what it was when its hash was made.
    Edited,
    /// Its hash is right, and whoever made it did not have the key.
    Forged,
}

/// A line taken apart. Nothing in it is believed before `seals` has been asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sealed<'a> {
    /// What it says, without the seals and the closing brace.
    pub body: &'a [u8],
    before_hash: &'a [u8],
    mac: Hash,
    pub hash: Hash,
}

impl<'a> Sealed<'a> {
    /// Without its line end. Nothing if it does not have the shape of a sealed line.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let (before_hash, hash) = last_hash(line.strip_suffix(b"}")?, HASH)?;
        let (body, mac) = last_hash(before_hash, MAC)?;
        Some(Self { body, before_hash, mac, hash })
    }

    pub fn seals(&self, key: Option<&AuditKey>) -> Seals {
        let state = Sha256::new_with_prefix(self.body);
        let whole = state.clone().chain_update(&self.before_hash[self.body.len()..]).finalize();
        if whole[..] != self.hash {
            return Seals::Edited;
        }
        match key {
            Some(key) if !key.is_seal(&state.finalize(), &self.mac) => Seals::Forged,
            _ => Seals::Whole,
        }
    }

    /// The place that it names.
    pub fn place(&self) -> Option<Place> {
        let (rest, prev) = last_hash(self.body, PREV)?;
        let (rest, seq) = last_number(rest, b",\"seq\":")?;
        let (_, at) = last_number(rest, b",\"at\":")?;
        Some(Place { at, seq: u64::try_from(seq).ok()?, prev })
    }

    /// What it says, as JSON.
    pub fn says<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        let mut text = self.body.to_vec();
        text.push(b'}');
        serde_json::from_slice(&text).ok()
    }
}

/// Splits `…,"name":"<hex>"` at its last field.
fn last_hash<'a>(text: &'a [u8], name: &[u8]) -> Option<(&'a [u8], Hash)> {
    let text = text.strip_suffix(b"\"")?;
    let (rest, digits) = text.split_at(text.len().checked_sub(HEX)?);
    Some((rest.strip_suffix(name)?, unhex(digits)?))
}

/// Splits `…,"name":123` at its last field.
fn last_number<'a>(text: &'a [u8], name: &[u8]) -> Option<(&'a [u8], i64)> {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
    let (rest, digits) = text.split_at(text.len() - digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((rest.strip_suffix(name)?, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(key: &AuditKey) -> Vec<u8> {
        let body = Body::new(&json!({ "kind": "admin", "what": "a \"quoted\"\n,\"seq\":9" })).unwrap();
        let mut out = Vec::new();
        let hash = body.place(&Place { at: -5, seq: 42, prev: [7; 32] }, key, &mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        assert_eq!(Sealed::read(&out).unwrap().hash, hash);
        out
    }

    #[test]
    fn a_line_tells_its_place_and_is_whole() {
        let key = AuditKey::new(&[1; 32]);
        let line = line(&key);
        let sealed = Sealed::read(&line).unwrap();
        assert_eq!(sealed.place(), Some(Place { at: -5, seq: 42, prev: [7; 32] }));
        assert_eq!(sealed.seals(Some(&key)), Seals::Whole);
        assert_eq!(sealed.seals(None), Seals::Whole);
        let says: serde_json::Value = sealed.says().unwrap();
        assert_eq!(says["what"], "a \"quoted\"\n,\"seq\":9");
        assert!(serde_json::from_slice::<redoma_model::AuditRecord>(&line).is_err(), "who is missing");
    }

    #[test]
    fn no_bit_of_a_line_can_be_changed() {
        let key = AuditKey::new(&[1; 32]);
        let line = line(&key);
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.clone();
                changed[at] ^= 1 << bit;
                let is_found =
                    |key| Sealed::read(&changed).is_none_or(|sealed| sealed.seals(key) != Seals::Whole);
                assert!(is_found(Some(&key)) && is_found(None), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn without_the_key_no_line_can_be_made() {
        let (key, other) = (AuditKey::new(&[1; 32]), AuditKey::new(&[2; 32]));
        let line = line(&other);
        let sealed = Sealed::read(&line).unwrap();
        assert_eq!(sealed.seals(Some(&key)), Seals::Forged);
        assert_eq!(sealed.seals(None), Seals::Whole);
    }
}
