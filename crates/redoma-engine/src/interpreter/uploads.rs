//! Files that come in, piece by piece: never whole in memory, refused as soon as it is known that they will be.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use redoma_model::{
    AuditEvent, AuditedFile, FileName, Origin, Owner, Principal, Resource, Session, SessionId, Who,
};
use redoma_store::{Added, FileDetails, InUse, Incoming, Outcome, StoreError, Written};

use super::file_types::{BadFileType, HEAD, content_type};
use super::{Interpreter, InterpreterError};

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("`{name}` is larger than the {most} bytes that one file may have")]
    TooLarge { name: FileName, most: u64 },
    #[error("`{name}`: {why}")]
    Type { name: FileName, why: BadFileType },
    #[error("`{name}`: {why}")]
    Quota { name: FileName, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("could not be written: {0}")]
    Write(#[from] std::io::Error),
}

impl UploadError {
    /// Whether the host has no room.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Store(error) => error.is_full(),
            Self::Write(error) => {
                matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

/// Bytes that are on their way, by owner: a quota counts them before they are there.
pub(super) type IncomingBytes = Arc<Mutex<HashMap<Owner, u64>>>;

/// The part of them that is one upload's. Given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    all: IncomingBytes,
    owner: Owner,
    bytes: u64,
}

impl Share {
    pub(super) fn new(all: &IncomingBytes, owner: &Owner) -> Self {
        Self { all: Arc::clone(all), owner: owner.clone(), bytes: 0 }
    }

    /// Counts more bytes, unless all together would be more than this.
    pub(super) fn grow(&mut self, more: u64, most: u64) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let of_owner = all.entry(self.owner.clone()).or_default();
        let is_possible = *of_owner + more <= most;
        if is_possible {
            *of_owner += more;
            self.bytes += more;
        }
        is_possible
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_owner) = all.get_mut(&self.owner) {
            *of_owner = of_owner.saturating_sub(self.bytes);
            if *of_owner == 0 {
                all.remove(&self.owner);
            }
        }
    }
}

/// One or more files on their way into a session. What is not committed was never there.
#[derive(Debug)]
pub struct Upload {
    interpreter: Arc<Interpreter>,
    who: Who,
    session: Session,
    begins: bool,
    read_only: bool,
    files: Vec<(FileDetails, Written)>,
    /// Of those that are complete.
    bytes: u64,
    /// Bytes that the owner's quota leaves for all that is on its way.
    room: u64,
    /// Further files that the quotas have room for.
    file_room: u64,
    share: Share,
    _in_use: InUse,
}

/// The file that is being written.
#[derive(Debug)]
pub struct UploadedFile {
    name: FileName,
    incoming: Incoming,
    /// The first bytes, until there are enough of them to tell what it is.
    head: Vec<u8>,
    is_checked: bool,
}

impl Interpreter {
    /// Begins an upload into a new session.
    pub fn upload_to_new(
        self: &Arc<Self>,
        principal: &Principal,
        resource: Option<Resource>,
        read_only: bool,
    ) -> Result<Upload, InterpreterError> {
        let session = self.draft_session(principal, resource)?;
        self.upload(principal, session, true, read_only)
    }

    /// Begins an upload into a session of theirs.
    pub fn upload_to(
        self: &Arc<Self>,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<Upload, InterpreterError> {
        // Held before it is looked at: from then on it stays.
        let _held = self.store.hold(session);
        let session = self.session(principal, session, None)?;
        self.upload(principal, session, false, false)
    }

    fn upload(
        self: &Arc<Self>,
        principal: &Principal,
        session: Session,
        begins: bool,
        read_only: bool,
    ) -> Result<Upload, InterpreterError> {
        let in_use = self.store.hold(&session.id);
        let (room, file_room) =
            (self.store.room_for_files(&session.owner)?, self.store.room(&session)?.files);
        let share = Share::new(&self.incoming, &session.owner);
        Ok(Upload {
            interpreter: Arc::clone(self),
            who: principal.into(),
            session,
            begins,
            read_only,
            files: Vec::new(),
            bytes: 0,
            room,
            file_room,
            share,
            _in_use: in_use,
        })
    }
}

impl Upload {
    pub fn session(&self) -> &SessionId {
        &self.session.id
    }

    pub fn begin(&self, name: FileName) -> Result<UploadedFile, UploadError> {
        // Refused by its name before a byte of it is taken.
        let by_name = self.interpreter.file_types.check(&name, b"");
        by_name.map_err(|why| UploadError::Type { name: name.clone(), why })?;
        if self.files.len() as u64 >= self.file_room {
            let why = "there are too many files already; remove some first".to_owned();
            return Err(UploadError::Quota { name, why });
        }
        let incoming = self.interpreter.store.begin_file(&self.session, &name)?;
        Ok(UploadedFile { name, incoming, head: Vec::new(), is_checked: false })
    }

    pub fn write(&mut self, file: &mut UploadedFile, bytes: &[u8]) -> Result<(), UploadError> {
        let most = self.interpreter.most_upload;
        if file.incoming.size() + bytes.len() as u64 > most {
            return Err(UploadError::TooLarge { name: file.name.clone(), most });
        }
        let quota = self.interpreter.store.quota();
        let held = self.session.bytes + self.bytes + file.incoming.size() + bytes.len() as u64;
        if held > quota.session_bytes {
            let why = "the session's quota is used up".to_owned();
            return Err(UploadError::Quota { name: file.name.clone(), why });
        }
        if !self.share.grow(bytes.len() as u64, self.room) {
            let why = "the user's quota is used up".to_owned();
            return Err(UploadError::Quota { name: file.name.clone(), why });
        }
        if !file.is_checked {
            let missing = HEAD - file.head.len();
            file.head.extend_from_slice(&bytes[..missing.min(bytes.len())]);
            if file.head.len() == HEAD {
                self.check(file)?;
            }
        }
        // Each piece may be another thread's: the work is counted piece by piece.
        let _pace = self.interpreter.store.pace(&self.session.owner);
        file.incoming.write_all(bytes)?;
        Ok(())
    }

    fn check(&self, file: &mut UploadedFile) -> Result<(), UploadError> {
        file.is_checked = true;
        let head = std::mem::take(&mut file.head);
        let checked = self.interpreter.file_types.check(&file.name, &head);
        checked.map_err(|why| UploadError::Type { name: file.name.clone(), why })
    }

    /// The file is complete.
    pub fn end(&mut self, mut file: UploadedFile) -> Result<(), UploadError> {
        if !file.is_checked {
            self.check(&mut file)?;
        }
        let details = FileDetails {
            content_type: content_type(&file.name),
            name: file.name,
            origin: Origin::Upload,
            read_only: self.read_only,
            execution: None,
        };
        self.bytes += file.incoming.size();
        let mut written = file.incoming.finish();
        written.close_if_one_of(self.files.len() + 1);
        self.files.push((details, written));
        Ok(())
    }

    /// Everything that came is there for good; what the quota has no room for is told, and if it is to be all or nothing,
    /// keeps all of it out.
    pub fn commit(self, all_or_nothing: bool) -> Result<Added, UploadError> {
        let outcome =
            Outcome { begins: self.begins, files: self.files, all_or_nothing, ..Outcome::default() };
        match self.interpreter.store.commit(&self.session, outcome) {
            Err(StoreError::NoRoom { name, reason: why }) => Err(UploadError::Quota { name, why }),
            other => {
                let added = other?;
                for file in &added.files {
                    self.interpreter
                        .note(|| AuditEvent::FileUploaded(AuditedFile::new(self.who.clone(), file)));
                }
                Ok(added)
            }
        }
    }
}
