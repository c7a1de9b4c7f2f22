//! Ids that nobody can guess.

use std::io;

use redoma_model::{ExecutionId, FileId, KeyId, SessionId};

use crate::StoreError;

pub(crate) fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(StoreError::Random(io::Error::from(errno))),
        }
    }
    Ok(bytes)
}

pub fn new_session_id() -> Result<SessionId, StoreError> {
    Ok(SessionId::from_random(random()?))
}

pub fn new_execution_id() -> Result<ExecutionId, StoreError> {
    Ok(ExecutionId::from_random(random()?))
}

pub(crate) fn new_file_id() -> Result<FileId, StoreError> {
    Ok(FileId::from_random(random()?))
}

pub(crate) fn new_key_id() -> Result<KeyId, StoreError> {
    Ok(KeyId::from_random(random()?))
}

/// A random UUID, version 4.
pub(crate) fn new_uuid() -> Result<String, StoreError> {
    let mut bytes: [u8; 16] = random()?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex(&bytes);
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}
