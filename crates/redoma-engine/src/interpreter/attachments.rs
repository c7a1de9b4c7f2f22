//! Files that a wire format makes out of what a program showed, such as a picture that is too large for one message.

use std::io::Write;

use redoma_model::{FileName, Origin, Principal, SessionId, StoredFile};
use redoma_store::{FileDetails, Outcome, StoreError};

use super::file_types::content_type;
use super::{Interpreter, InterpreterError, UploadError};

impl Interpreter {
    /// Adds a file to a session of theirs, as something that a program made.
    pub fn attach(
        &self,
        principal: &Principal,
        session: &SessionId,
        name: FileName,
        content: &[u8],
    ) -> Result<StoredFile, UploadError> {
        // Held before it is looked at: from then on it stays.
        let _held = self.store.hold(session);
        let session = self.session(principal, session, None).map_err(|error| match error {
            InterpreterError::Store(error) => UploadError::Store(error),
            _ => UploadError::Store(StoreError::NoSuchSession),
        })?;
        let quota = self.store.quota();
        let room = self.store.room_for_files(&session.owner)?;
        let size = content.len() as u64;
        if session.bytes + size > quota.session_bytes || size > room {
            return Err(UploadError::Quota { name, why: "the quota is used up".to_owned() });
        }
        let mut incoming = self.store.begin_file(&session, &name)?;
        incoming.write_all(content)?;
        let details = FileDetails {
            content_type: content_type(&name),
            name: name.clone(),
            origin: Origin::Artifact,
            read_only: false,
            execution: None,
        };
        let files = vec![(details, incoming.finish())];
        let outcome = Outcome { files, all_or_nothing: true, ..Outcome::default() };
        match self.store.commit(&session, outcome) {
            Err(StoreError::NoRoom { name, reason: why }) => Err(UploadError::Quota { name, why }),
            Err(error) => Err(error.into()),
            Ok(added) => {
                let why = "it was not stored".to_owned();
                added.files.into_iter().next().ok_or(UploadError::Quota { name, why })
            }
        }
    }
}
