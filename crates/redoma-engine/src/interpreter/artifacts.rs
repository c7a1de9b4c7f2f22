//! Stores the files that a program leaves. A file that the program touched without changing it is not stored, and neither is a
//! read-only input.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use redoma_model::{ExecutionId, FileName, Origin, Session, StoredFile};
use redoma_store::{FileDetails, Pace, Room, Store, Written};

use super::file_types::content_type;
use crate::outlet::{Outlet, Put};

#[derive(Debug)]
pub(super) struct Artifacts<'a> {
    store: &'a Store,
    session: &'a Session,
    execution: ExecutionId,
    /// The program's input files, by name.
    inputs: HashMap<&'a str, &'a StoredFile>,
    /// Bytes and files that the quotas leave. The store is asked at the first file.
    room: Option<Room>,
    /// The CPU time of this harvest. It counts from the first directory entry on.
    pub(super) pace: Option<Pace>,
    pub(super) files: Vec<(FileDetails, Written)>,
    /// Names of files that the quotas have no room for, with the reason.
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

    fn pace(&mut self) -> &mut Pace {
        self.pace.get_or_insert_with(|| self.store.pace(&self.session.owner))
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
        let room = match self.room {
            Some(room) => room,
            None => self.store.room(self.session).map_err(io::Error::other)?,
        };
        self.room = Some(room);
        if let Some(why) = room.refusal(size) {
            self.refused.push((name.as_str().to_owned(), why.to_owned()));
            return Ok(Put::Skipped(why.to_owned()));
        }
        let mut incoming = self.store.begin_file(self.session, &name).map_err(io::Error::other)?;
        incoming.fill(content, size, self.pace())?;
        let mut written = incoming.finish();
        if input.is_some_and(|input| input.sha256 == written.sha256 && input.size == written.size) {
            return Ok(Put::Unchanged);
        }
        self.room = Some(room.without(written.size));
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
