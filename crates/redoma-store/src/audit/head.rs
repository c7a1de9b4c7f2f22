//! Two small files beside the segments, each one sealed line.
//!
//! `head` says how far the chain goes: without it nobody would miss the last records. It is written in place with each
//! record, just after it: a chain that goes on beyond the head is what a crash leaves, one that does not reach it was cut.
//! Not all that the kernel has is on disk when the power goes, and `synced` says how much of it is for certain: after the
//! machine was started anew (`boot`), the chain may end between the two.
//!
//! `pruned` says where the chain begins, if what was before has been removed for its age.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use redoma_model::AuditPruning;
use serde::{Deserialize, Serialize};

use super::AuditError;
use super::seal::{AuditKey, Body, Hash, NOTHING, Sealed, Seals, unhex};
use crate::random::hex;

/// Padded to this, so that it is written in one place and never needs more room.
const HEAD_BYTES: usize = 1024;
/// How often a head is read again that its writer was just writing.
const TRIES: u32 = 10;

/// A record, and the chain up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tip {
    pub seq: u64,
    pub hash: Hash,
}

impl Tip {
    pub(super) const BEGINNING: Self = Self { seq: 0, hash: NOTHING };
}

/// `SEQ:HASH`, as it is logged and given to `verify --head`.
impl std::fmt::Display for Tip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.seq, hex(&self.hash))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a head; write a record's number and hash, such as 42:9f86d0…, as the server logs it")]
pub struct NotATip(String);

impl std::str::FromStr for Tip {
    type Err = NotATip;

    fn from_str(text: &str) -> Result<Self, NotATip> {
        let bad = || NotATip(text.to_owned());
        let (seq, hash) = text.trim().split_once(':').ok_or_else(bad)?;
        let (seq, hash) = (seq.parse().map_err(|_| bad())?, unhex(hash.as_bytes()).ok_or_else(bad)?);
        Ok(Self { seq, hash })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    Head,
    PrunedTo,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHead {
    note: Note,
    segment: u64,
    /// Where the segment ends.
    offset: u64,
    tip: String,
    synced: String,
    boot: String,
}

/// How far the chain goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub segment: u64,
    pub offset: u64,
    pub tip: Tip,
    pub synced: Tip,
    pub boot: String,
}

/// How one of these files was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found<T> {
    Missing,
    /// Not as it was written.
    Damaged,
    /// Written by somebody without the key.
    Forged,
    Here(T),
}

impl Head {
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("head")
    }

    pub fn read(folder: &Path, key: Option<&AuditKey>) -> Result<Found<Self>, AuditError> {
        let path = Self::path(folder);
        let mut left = TRIES;
        loop {
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
                Err(source) => return Err(AuditError::files(&path, source)),
            };
            // Made, and never written to.
            let found = if bytes.is_empty() { Found::Missing } else { Self::parse(&bytes, key) };
            left -= 1;
            if matches!(found, Found::Here(_) | Found::Missing) || left == 0 {
                return Ok(found);
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    fn parse(bytes: &[u8], key: Option<&AuditKey>) -> Found<Self> {
        let line = bytes.strip_suffix(b"\n").filter(|_| bytes.len() == HEAD_BYTES);
        let Some(line) = line else { return Found::Damaged };
        let end = line.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        opened::<WrittenHead>(&line[..end], key).and_then(|written| {
            (written.note == Note::Head).then_some(())?;
            let (tip, synced) = (written.tip.parse().ok()?, written.synced.parse().ok()?);
            Some(Self { segment: written.segment, offset: written.offset, tip, synced, boot: written.boot })
        })
    }

    pub fn bytes(&self, key: &AuditKey) -> Result<Vec<u8>, AuditError> {
        let written = WrittenHead {
            note: Note::Head,
            segment: self.segment,
            offset: self.offset,
            tip: self.tip.to_string(),
            synced: self.synced.to_string(),
            boot: self.boot.clone(),
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        Body::new(&written)?.alone(key, &mut bytes);
        bytes.resize(HEAD_BYTES - 1, b' ');
        bytes.push(b'\n');
        Ok(bytes)
    }
}

impl<T> Found<T> {
    pub fn here(&self) -> Option<&T> {
        match self {
            Self::Here(value) => Some(value),
            _ => None,
        }
    }

    fn and_then<U>(self, work: impl FnOnce(T) -> Option<U>) -> Found<U> {
        match self {
            Self::Missing => Found::Missing,
            Self::Damaged => Found::Damaged,
            Self::Forged => Found::Forged,
            Self::Here(value) => work(value).map_or(Found::Damaged, Found::Here),
        }
    }
}

fn opened<T: serde::de::DeserializeOwned>(line: &[u8], key: Option<&AuditKey>) -> Found<T> {
    let Some(sealed) = Sealed::read(line) else { return Found::Damaged };
    match sealed.seals(key) {
        Seals::Edited => Found::Damaged,
        Seals::Forged => Found::Forged,
        Seals::Whole => sealed.says().map_or(Found::Damaged, Found::Here),
    }
}

/// The open head of the one who writes.
#[derive(Debug)]
pub(super) struct HeadFile {
    path: PathBuf,
    file: File,
}

impl HeadFile {
    pub fn open(folder: &Path) -> Result<Self, AuditError> {
        let path = Head::path(folder);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|source| AuditError::files(&path, source))?;
        Ok(Self { path, file })
    }

    pub fn write(&self, head: &Head, key: &AuditKey) -> Result<(), AuditError> {
        let bytes = head.bytes(key)?;
        self.file.write_all_at(&bytes, 0).map_err(|source| AuditError::files(&self.path, source))
    }

    /// Whatever it was before, it is of the right length from now on.
    pub fn trim(&self) -> Result<(), AuditError> {
        self.file.set_len(HEAD_BYTES as u64).map_err(|source| AuditError::files(&self.path, source))
    }

    pub fn sync(&self) -> Result<(), AuditError> {
        self.file.sync_data().map_err(|source| AuditError::files(&self.path, source))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAnchor {
    note: Note,
    up_to: AuditPruning,
}

/// Where the chain begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Anchor {
    /// The newest segment that was removed.
    pub segment: u64,
    /// Its last record.
    pub tip: Tip,
}

impl Anchor {
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("pruned")
    }

    pub fn read(folder: &Path, key: Option<&AuditKey>) -> Result<Found<Self>, AuditError> {
        let path = Self::path(folder);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(source) => return Err(AuditError::files(&path, source)),
        };
        let Some(line) = bytes.strip_suffix(b"\n") else { return Ok(Found::Damaged) };
        Ok(opened::<WrittenAnchor>(line, key).and_then(|WrittenAnchor { note, up_to: pruning }| {
            (note == Note::PrunedTo).then_some(())?;
            let hash = unhex(pruning.last_hash.as_bytes())?;
            Some(Self { segment: pruning.segment, tip: Tip { seq: pruning.last, hash } })
        }))
    }

    pub fn pruning(&self) -> AuditPruning {
        AuditPruning { segment: self.segment, last: self.tip.seq, last_hash: hex(&self.tip.hash) }
    }

    /// Replaces the one before, whole or not at all.
    pub fn write(&self, folder: &Path, key: &AuditKey) -> Result<(), AuditError> {
        let (path, fresh) = (Self::path(folder), folder.join("pruned.new"));
        let mut bytes = Vec::new();
        Body::new(&WrittenAnchor { note: Note::PrunedTo, up_to: self.pruning() })?.alone(key, &mut bytes);
        bytes.push(b'\n');
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&fresh, &path))
            .and_then(|()| sync_folder(folder));
        written.map_err(|source| AuditError::files(&path, source))
    }
}

/// So that a new name in it survives a power cut.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Which start of the machine this is; another one after each.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
