//! Files on their way in: a multipart body, written to disk as it comes. A piece that has not been written yet is all that is
//! in memory of it, and a thread is taken only while there is one to write: those who send slowly cost nobody else anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use redoma_engine::interpreter::{Added, InterpreterError, Upload, UploadError, UploadedFile};
use redoma_model::{FileName, Principal, Resource, SessionId, StoredFile};

use crate::App;
use crate::body::no_room;
use crate::executing::blocking;
use crate::failure::Failure;
use crate::multipart::{Multipart, Part};
use crate::rates::{Permit, Wanted};

/// How long the next piece may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long all of it may take.
const LONGEST: Duration = Duration::from_mins(30);
const MOST_FILES: usize = 500;
const MOST_FIELDS: usize = 32;
const LONGEST_FIELD: usize = 8 << 10;
/// Maximum number of bytes of all fields together.
const MAX_FIELD_BYTES: usize = 16 << 10;
/// So much is collected before it is written.
const PIECE: usize = 64 << 10;
/// Bytes of memory that an upload takes: a piece that is collected and one that is written.
const UPLOAD_BYTES: usize = 2 * PIECE;

/// Where the files go.
#[derive(Debug)]
pub enum Destination {
    New { principal: Principal, resource: Option<Resource>, read_only: bool },
    Session { principal: Principal, id: SessionId },
}

/// What one bad file means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Nothing is stored.
    AllOrNothing,
    /// They are stored.
    EachByItself,
}

/// What came of an upload.
#[derive(Debug)]
pub struct Received {
    pub session: SessionId,
    pub files: Vec<ReceivedFile>,
}

#[derive(Debug)]
pub struct ReceivedFile {
    /// As the client wrote it.
    pub name: String,
    pub result: Result<StoredFile, Failure>,
}

/// Reads a multipart body to its end. `destination` is asked at the first file, with the fields that came before it; whether
/// one more upload is permitted is its to say.
pub async fn receive(
    app: &Arc<App>,
    multipart: Multipart,
    strictness: Strictness,
    destination: impl FnOnce(&HashMap<String, String>) -> Result<(Destination, Permit), Failure>,
) -> Result<Received, Failure> {
    let received = tokio::time::timeout(LONGEST, receive_all(app, multipart, strictness, destination));
    received.await.unwrap_or_else(|_| Err(too_slow()))
}

/// Whether they may upload one more time.
pub fn permit(app: &App, principal: &Principal) -> Result<Permit, Failure> {
    let permit = app.permit(principal, Wanted::Upload)?;
    let memory = app.memory.waiting.take(&principal.owner, UPLOAD_BYTES).map_err(|_| no_room())?;
    Ok(permit.holding(memory))
}

async fn receive_all(
    app: &Arc<App>,
    mut multipart: Multipart,
    strictness: Strictness,
    destination: impl FnOnce(&HashMap<String, String>) -> Result<(Destination, Permit), Failure>,
) -> Result<Received, Failure> {
    let mut fields = HashMap::new();
    let mut destination = Some(destination);
    let mut writer: Option<(Writer, Permit)> = None;
    let (mut count, mut field_bytes) = (0, 0);
    while let Some(part) = in_time(multipart.next_part()).await?? {
        if part.file_name().is_none() {
            if fields.len() >= MOST_FIELDS {
                return Err(Failure::bad_request("the upload has too many fields"));
            }
            let (name, value) = (part.name().to_owned(), text(part).await?);
            field_bytes += name.len() + value.len();
            if field_bytes > MAX_FIELD_BYTES {
                return Err(Failure::bad_request(
                    "the fields of the upload are too long; files go into `file`",
                ));
            }
            fields.insert(name, value);
            continue;
        }
        count += 1;
        if count > MOST_FILES {
            return Err(Failure::bad_request(format!("at most {MOST_FILES} files can be uploaded at once")));
        }
        let (current, permit) = match (writer.take(), destination.take()) {
            (Some(current), _) => current,
            (None, Some(ask)) => {
                let (place, permit) = ask(&fields)?;
                (Writer::begin(app, place, strictness).await?, permit)
            }
            (None, None) => return Err(Failure::bad_request("the upload is malformed")),
        };
        writer = Some((take_file(current, part, &permit).await?, permit));
    }
    let Some((writer, _permit)) = writer else {
        return Err(Failure::bad_request("the upload has no file; send it as the multipart field `file`"));
    };
    writer.step(Writer::commit).await
}

/// One file, to its end.
async fn take_file(mut writer: Writer, mut part: Part, permit: &Permit) -> Result<Writer, Failure> {
    let name = part.file_name().unwrap_or_default().to_owned();
    writer = writer.step(move |writer| writer.start_file(name)).await?;
    let mut piece = Vec::new();
    while let Some(bytes) = in_time(part.next_piece()).await?? {
        piece.extend_from_slice(&bytes);
        if piece.len() >= PIECE {
            permit.take_bytes(piece.len() as u64)?;
            let full = std::mem::take(&mut piece);
            writer = writer.step(move |writer| writer.write(&full)).await?;
        }
    }
    permit.take_bytes(piece.len() as u64)?;
    writer.step(move |writer| writer.write(&piece)?.end_file()).await
}

async fn in_time<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| too_slow())
}

fn too_slow() -> Failure {
    Failure::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the upload stood still or took too long")
}

async fn text(mut part: Part) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    while let Some(more) = in_time(part.next_piece()).await?? {
        if bytes.len() + more.len() > LONGEST_FIELD {
            return Err(Failure::bad_request("a field of the upload is too long; files go into `file`"));
        }
        bytes.extend_from_slice(&more);
    }
    String::from_utf8(bytes).map_err(|_| Failure::bad_request("a field of the upload is not UTF-8"))
}

/// Whoever writes to disk. What was not committed when it is dropped is not kept.
struct Writer {
    upload: Upload,
    strictness: Strictness,
    /// What became of each file so far.
    files: Vec<(String, Result<(), Failure>)>,
    /// The one that is being written, if it has not been refused.
    current: Option<UploadedFile>,
}

impl Writer {
    async fn begin(
        app: &Arc<App>,
        destination: Destination,
        strictness: Strictness,
    ) -> Result<Self, Failure> {
        let app = Arc::clone(app);
        blocking(move || {
            let interpreter = &app.interpreter;
            let upload = match destination {
                Destination::New { principal, resource, read_only } => {
                    interpreter.upload_to_new(&principal, resource, read_only)
                }
                Destination::Session { principal, id } => interpreter.upload_to(&principal, &id),
            }?;
            Ok::<_, InterpreterError>(Self { upload, strictness, files: Vec::new(), current: None })
        })
        .await
    }

    /// Does something that may wait for the disk.
    async fn step<T: Send + 'static>(
        self,
        work: impl FnOnce(Self) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        blocking(move || work(self)).await
    }

    fn start_file(mut self, name: String) -> Result<Self, Failure> {
        let begun = name
            .parse::<FileName>()
            .map_err(|why| Failure::bad_request(format!("`{}`: {why}", name.escape_debug())))
            .and_then(|name| self.upload.begin(name).map_err(Failure::from));
        self.files.push((name, Ok(())));
        match begun {
            Ok(file) => self.current = Some(file),
            Err(failure) => self.refuse(failure)?,
        }
        Ok(self)
    }

    fn write(mut self, bytes: &[u8]) -> Result<Self, Failure> {
        // What is left of a file that was refused is passed over.
        if let Some(file) = &mut self.current
            && let Err(error) = self.upload.write(file, bytes)
        {
            self.refuse(error.into())?;
        }
        Ok(self)
    }

    fn end_file(mut self) -> Result<Self, Failure> {
        if let Some(file) = self.current.take()
            && let Err(error) = self.upload.end(file)
        {
            self.refuse(error.into())?;
        }
        Ok(self)
    }

    /// The current file is not taken: the end of the whole upload, or of that file only.
    fn refuse(&mut self, failure: Failure) -> Result<(), Failure> {
        self.current = None;
        match (self.strictness, self.files.last_mut()) {
            (Strictness::EachByItself, Some((_, result)))
                if !matches!(failure.code, "internal" | "no_space") =>
            {
                *result = Err(failure);
                Ok(())
            }
            _ => Err(failure),
        }
    }

    fn commit(self) -> Result<Received, Failure> {
        let Self { upload, files, strictness, .. } = self;
        let session = upload.session().clone();
        if !files.iter().any(|(_, result)| result.is_ok()) {
            // Nothing to keep, and no session for it.
            let files = files.into_iter().map(|(name, result)| ReceivedFile {
                name,
                result: result.and(Err(Failure::bad_request("it was not stored"))),
            });
            return Ok(Received { session, files: files.collect() });
        }
        let all_or_nothing = strictness == Strictness::AllOrNothing;
        let Added { files: added, refused } = upload.commit(all_or_nothing)?;
        let (mut added, mut refused) = (added.into_iter().peekable(), refused.into_iter());
        let files = files.into_iter().map(|(name, result)| {
            let result = result.and_then(|()| {
                // Both are in the order of the upload.
                if let Some(file) = added.next_if(|file| file.name.as_str() == name) {
                    return Ok(file);
                }
                let why =
                    refused.next().map_or_else(|| "it was not stored".to_owned(), |refused| refused.reason);
                let error = name.parse().map(|name| UploadError::Quota { name, why });
                Err(error.map_or_else(|_| Failure::bad_request("it was not stored"), Failure::from))
            });
            ReceivedFile { name, result }
        });
        Ok(Received { session, files: files.collect() })
    }
}

impl Received {
    /// The files, or why the first that was not stored was not.
    pub fn all(self) -> Result<(SessionId, Vec<StoredFile>), Failure> {
        let files: Result<Vec<_>, _> = self.files.into_iter().map(|file| file.result).collect();
        Ok((self.session, files?))
    }
}
