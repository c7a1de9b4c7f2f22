//! What a program leaves, into the store. What it merely touched is not a result, and what may not be changed is not one
//! either.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use redoma_model::{ExecutionId, FileName, Origin, Session, StoredFile};
use redoma_store::{FileDetails, Pace, Store, StoreError, Written};

use super::file_types::content_type;
use crate::outlet::{Outlet, Put};

/// What quotas leave for further files.
#[derive(Debug, Clone, Copy)]
struct Room {
    bytes: u64,
    files: u64,
}

#[derive(Debug)]
pub(super) struct Artifacts<'a> {
    store: &'a Store,
    session: &'a Session,
    execution: ExecutionId,
    /// What went in, by name.
    inputs: HashMap<&'a str, &'a StoredFile>,
    /// What the quotas leave, once somebody has asked.
    room: Option<Room>,
    /// Since the first file.
    pub(super) pace: Option<Pace>,
    pub(super) files: Vec<(FileDetails, Written)>,
    /// What there was no room for.
    pub(super) refused: Vec<(String, String)>,
}

impl<'a> Artifacts<'a> {
    pub(super) fn new(
        store: &'a Store,
        session: &'a Session,
        execution: ExecutionId,
        inputs: &'a [StoredFile],
    ) -> Self {
        let inputs = inputs.iter().map(|file| (file.name.as_str(), file)).collect();
        Self {
            store,
            session,
            execution,
            inputs,
            room: None,
            pace: None,
            files: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// The work of storing, which began with the first file.
    fn pace(&mut self) -> &mut Pace {
        self.pace.get_or_insert_with(|| self.store.pace(&self.session.owner))
    }

    fn room(&self) -> Result<Room, StoreError> {
        if let Some(room) = self.room {
            return Ok(room);
        }
        let quota = self.store.quota();
        let owner = self.store.owner_usage(&self.session.owner)?;
        // As it is now: others may have stored something meanwhile.
        let stored = self.store.session(&self.session.id)?;
        let session = stored.as_ref().unwrap_or(self.session);
        let left = |quota: u64, used: u64| quota.saturating_sub(used);
        Ok(Room {
            bytes: left(quota.session_bytes, session.bytes).min(left(quota.owner_bytes, owner.files)),
            files: left(quota.session_files, session.files).min(left(quota.owner_files, owner.file_count)),
        })
    }
}

impl Outlet for Artifacts<'_> {
    fn rest(&mut self) {
        self.pace().step();
    }

    fn put(&mut self, path: &Path, content: File, size: u64) -> io::Result<Put> {
        self.store(path, &mut content.take(size), size)
    }
}

impl Artifacts<'_> {
    /// Stores something under a name, if there is room for it and it is not what is there already.
    pub(super) fn store(&mut self, path: &Path, content: &mut dyn Read, size: u64) -> io::Result<Put> {
        let Some(name) = path.to_str() else {
            return Ok(Put::Skipped("its name is not UTF-8".to_owned()));
        };
        let name: FileName = match name.parse() {
            Ok(name) => name,
            Err(why) => return Ok(Put::Skipped(format!("{why}"))),
        };
        let input = self.inputs.get(name.as_str()).copied();
        if input.is_some_and(|input| input.read_only) {
            return Ok(Put::Unchanged);
        }
        let room = self.room().map_err(io::Error::other)?;
        self.room = Some(room);
        let why = if size > room.bytes {
            Some("the quota is used up")
        } else {
            (room.files == 0).then_some("there are too many files already")
        };
        if let Some(why) = why {
            self.refused.push((name.as_str().to_owned(), why.to_owned()));
            return Ok(Put::Skipped(why.to_owned()));
        }
        let mut incoming = self.store.begin_file(self.session, &name).map_err(io::Error::other)?;
        incoming.fill(content, self.pace())?;
        let mut written = incoming.finish();
        if input.is_some_and(|input| input.sha256 == written.sha256 && input.size == written.size) {
            return Ok(Put::Unchanged);
        }
        self.room = Some(Room {
            bytes: room.bytes.saturating_sub(written.size),
            files: room.files.saturating_sub(1),
        });
        let details = FileDetails {
            content_type: content_type(&name),
            name,
            origin: Origin::Artifact,
            read_only: false,
            execution: Some(self.execution.clone()),
        };
        written.close_if_one_of(self.files.len() + 1);
        self.files.push((details, written));
        Ok(Put::Kept)
    }
}
