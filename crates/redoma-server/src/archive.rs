//! Many files as one ZIP archive, made while it is sent: no more of it is ever in memory than a piece, and no more than one file
//! open.
//!
//! Files are stored as they are, without compression, so that the archive's length is known beforehand and a client sees when
//! it is cut short. What the format needs 64-bit numbers for is refused.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use redoma_model::{Principal, StoredFile};
use tokio::sync::mpsc::Sender;

use crate::App;
use crate::download::{DOWNLOAD_BYTES, Pieces, attachment, send_pieces};
use crate::executing::blocking;
use crate::failure::Failure;

/// Names are UTF-8, and sizes follow the data.
const FLAGS: u16 = 0x0808;
/// The first of January 1980, the earliest there is: an archive of the same files is the same archive.
const DATE: u16 = 0x0021;

const LOCAL: u64 = 30;
const DESCRIPTOR: u64 = 16;
const CENTRAL: u64 = 46;
const END: u64 = 22;

/// What the directory at the end says of a file.
struct Entry {
    name: String,
    crc: u32,
    size: u32,
    offset: u32,
}

/// All these files of one session.
pub fn archive(
    app: Arc<App>,
    principal: Principal,
    name: &str,
    files: Vec<StoredFile>,
) -> Result<Response, Failure> {
    let of_one = |file: &StoredFile| {
        let name = archive_name(file).len() as u64;
        LOCAL + name + file.size + DESCRIPTOR + CENTRAL + name
    };
    let length = files.iter().map(of_one).sum::<u64>() + END;
    if length > u64::from(u32::MAX) || files.len() >= usize::from(u16::MAX) {
        return Err(Failure::too_large(
            "the session is too large for one archive; download its files one by one",
        ));
    }
    let bytes = DOWNLOAD_BYTES + files.iter().map(entry_bytes).sum::<usize>();
    let (sender, pieces) = Pieces::counted(&app, &principal.owner, bytes)?;
    tokio::spawn(async move {
        if let Err(error) = write(&app, &principal, files, &sender).await {
            // The answer ends before its length: the client sees that it is not complete.
            tracing::warn!(%error, "an archive could not be sent");
            let _ = sender.send(Err(error)).await;
        }
    });
    let mut response = Body::new(pieces).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let disposition =
        HeaderValue::from_str(&attachment(name)).unwrap_or(HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    Ok(response)
}

/// Bytes of memory that a file takes while its archive is sent: what is known of it, and its entry in the directory.
fn entry_bytes(file: &StoredFile) -> usize {
    let texts = 2 * file.name.as_str().len() + file.sha256.len() + file.content_type.len();
    size_of::<StoredFile>() + size_of::<Entry>() + texts
}

/// Elsewhere a backslash is a slash and a colon follows a drive's letter: such a name would be unpacked somewhere else.
fn archive_name(file: &StoredFile) -> String {
    file.name.as_str().replace(['\\', ':'], "_")
}

async fn write(
    app: &Arc<App>,
    principal: &Principal,
    files: Vec<StoredFile>,
    sender: &Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let too_large = |_| io::Error::other("the archive is too large");
    let mut entries: Vec<Entry> = Vec::with_capacity(files.len());
    let mut offset: u64 = 0;
    for file in files {
        let name = archive_name(&file);
        let at = u32::try_from(offset).map_err(too_large)?;
        let head = local_header(&name);
        offset += head.len() as u64 + file.size + DESCRIPTOR;
        send(sender, head).await?;
        let (owner, app) = (principal.clone(), Arc::clone(app));
        let opened = blocking(move || app.interpreter.open_file(&owner, &file.session, &file.id, None));
        let (stored, content) = opened.await.map_err(|failure| io::Error::other(failure.detail))?;
        let mut crc = crc32fast::Hasher::new();
        send_pieces(content, stored.size, sender, |piece| crc.update(piece)).await?;
        let size = u32::try_from(stored.size).map_err(too_large)?;
        let entry = Entry { name, crc: crc.finalize(), size, offset: at };
        send(sender, descriptor(&entry)).await?;
        entries.push(entry);
    }
    let mut directory: Vec<u8> = entries.iter().flat_map(central_header).collect();
    let length = u32::try_from(directory.len()).map_err(too_large)?;
    let count = u16::try_from(entries.len()).map_err(too_large)?;
    directory.extend(end(count, length, u32::try_from(offset).map_err(too_large)?));
    send(sender, directory).await
}

async fn send(sender: &Sender<io::Result<Bytes>>, bytes: Vec<u8>) -> io::Result<()> {
    let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone");
    sender.send(Ok(bytes.into())).await.map_err(gone)
}

/// Numbers one after the other, the way the format wants them.
struct Record(Vec<u8>);

impl Record {
    fn new(signature: u32) -> Self {
        Self(signature.to_le_bytes().to_vec())
    }

    fn short(mut self, number: u16) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn long(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn name(mut self, name: &str) -> Vec<u8> {
        self.0.extend(name.as_bytes());
        self.0
    }
}

/// A name's length: a thousand bytes at most, as file names are checked.
fn length(name: &str) -> u16 {
    u16::try_from(name.len()).unwrap_or(u16::MAX)
}

fn local_header(name: &str) -> Vec<u8> {
    let record = Record::new(0x0403_4b50).short(20).short(FLAGS).short(0).short(0).short(DATE);
    record.long(0).long(0).long(0).short(length(name)).short(0).name(name)
}

fn descriptor(entry: &Entry) -> Vec<u8> {
    Record::new(0x0807_4b50).long(entry.crc).long(entry.size).long(entry.size).0
}

fn central_header(entry: &Entry) -> Vec<u8> {
    // Made on Unix, a plain file with mode 644.
    let record = Record::new(0x0201_4b50).short(0x0314).short(20).short(FLAGS).short(0).short(0).short(DATE);
    let record = record.long(entry.crc).long(entry.size).long(entry.size).short(length(&entry.name));
    let record = record.short(0).short(0).short(0).short(0).long(0o100_644 << 16).long(entry.offset);
    record.name(&entry.name)
}

fn end(count: u16, length: u32, offset: u32) -> Vec<u8> {
    Record::new(0x0605_4b50).short(0).short(0).short(count).short(count).long(length).long(offset).short(0).0
}
