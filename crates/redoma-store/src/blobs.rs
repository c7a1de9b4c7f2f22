//! Bytes, at `storage/<user>/<session>/<uuid>.<ext>`. The names that people gave their files are in the metadata only.
//!
//! The server writes a file into `storage/.incoming/<number>` first, under a name that says where it will belong, and syncs
//! it. Then the file gets its place as a second name, and when the metadata know it, it loses the first. A file that is to
//! be removed gets such a mark too, before the metadata forget it. After a crash, only the files in `.incoming` can be
//! wrong: the next start removes those that the metadata don't know.
//!
//! The number follows from the user. A folder has one lock, and ext4 looks for a free inode near the folder: it steps over
//! each inode that was deleted in the last minutes. With one folder for all, a user who makes and loses thousands of files
//! slows down every file of the others.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use redoma_model::{FileName, Owner, SessionId};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::pace::Pace;
use crate::random::{hex, new_uuid};
use crate::sync_order::keeps_order;

const INCOMING: &str = ".incoming";
/// Number of folders in `.incoming`. Users of the same folder slow each other down, more folders make starts slower.
const INCOMING_FOLDERS: u8 = 64;
/// Between the parts of a mark's name, none of which has it.
const SEPARATOR: char = '~';
/// What the name of a mark begins with if it is of something that is to go.
const REMOVAL: char = '~';
/// Maximum number of files that are synced one by one. For more, the server syncs the whole file system.
const MAX_SYNCED_SINGLY: usize = 8;
/// Maximum number of bytes of a file that the server reads and writes at a time.
const FILL_BYTES: usize = 64 << 10;
/// From this many bytes on, a file goes to disk while it is being written.
const MAX_UNSYNCED: u64 = 1 << 20;

/// Where a file's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BlobPath {
    folder: String,
    session: SessionId,
    /// With its extension.
    name: String,
}

impl BlobPath {
    /// A new place for a file of this name.
    pub fn new(owner: &Owner, session: &SessionId, name: &FileName) -> Result<Self, StoreError> {
        let extension = name.extension().unwrap_or_else(|| "bin".to_owned());
        Ok(Self {
            folder: user_folder(owner),
            session: session.clone(),
            name: format!("{}.{extension}", new_uuid()?),
        })
    }

    fn incoming_name(&self) -> String {
        format!("{}{SEPARATOR}{}{SEPARATOR}{}", self.folder, self.session, self.name)
    }

    fn from_parts(parts: &[&str]) -> Option<Self> {
        let [folder, session, name] = parts else { return None };
        let session = session.parse().ok()?;
        (is_plain(folder) && is_plain(name)).then(|| Self {
            folder: (*folder).to_owned(),
            session,
            name: (*name).to_owned(),
        })
    }
}

impl fmt::Display for BlobPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.folder, self.session, self.name)
    }
}

impl FromStr for BlobPath {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let parts: Vec<_> = text.split('/').collect();
        Self::from_parts(&parts).ok_or_else(|| StoreError::Invalid(format!("blob `{text}`")))
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// The folder of a user's files: their id where it can be a folder's name, else a hash of it.
pub(crate) fn user_folder(owner: &Owner) -> String {
    // The metadata don't tell an empty user from none.
    match owner.user.as_deref().filter(|user| !user.is_empty()) {
        None => "_nobody".to_owned(),
        Some(user)
            if (1..=64).contains(&user.len())
                && !user.starts_with('_')
                && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) =>
        {
            user.to_owned()
        }
        Some(user) => format!("_{}", &hex(&Sha256::digest(user.as_bytes()))[..32]),
    }
}

/// A file that is being written. Dropped before it is placed, it is gone.
#[derive(Debug)]
pub struct Incoming {
    path: PathBuf,
    /// `None` once the server has closed it early.
    file: Option<File>,
    hash: Sha256,
    size: u64,
    /// This many bytes went to disk early.
    on_disk: u64,
    blob: BlobPath,
    keeps_mark: bool,
}

impl Incoming {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes all of `content`, which has about `size` bytes.
    pub fn fill(&mut self, content: &mut dyn Read, size: u64, pace: &mut Pace) -> io::Result<()> {
        // Most files are small, and a run can leave thousands of them.
        let length = usize::try_from(size).unwrap_or(FILL_BYTES).clamp(512, FILL_BYTES);
        let mut buffer = vec![0; length];
        loop {
            let count = match content.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.write_all(&buffer[..count])?;
            if self.size - self.on_disk >= MAX_UNSYNCED {
                self.write_back(pace);
            }
            pace.step();
        }
    }

    /// Makes Linux write what came since the last time. Without this, all bytes of a run reach the disk when the run is
    /// synced, and the files of others wait behind them.
    fn write_back(&mut self, pace: &mut Pace) {
        let Some(file) = &self.file else { return };
        let length = std::num::NonZeroU64::new(self.size - self.on_disk);
        // To drop a page from its cache, Linux first has to write it.
        let _ =
            pace.on_disk(|| rustix::fs::fadvise(file, self.on_disk, length, rustix::fs::Advice::DontNeed));
        self.on_disk = self.size;
    }

    /// What the metadata will say.
    pub fn finish(self) -> Written {
        let sha256 = hex(&self.hash.clone().finalize());
        Written { size: self.size, sha256, blob: self.blob.clone(), incoming: self }
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Err(Errno::BADF.into()) };
        let count = file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.keeps_mark {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that is written, but not yet in its place.
#[derive(Debug)]
pub struct Written {
    pub size: u64,
    pub sha256: String,
    pub blob: BlobPath,
    incoming: Incoming,
}

impl Written {
    /// Closes the file if it is the `count`th of many, which are synced without their own descriptors. A run leaves up to ten
    /// thousand files, and the server's descriptors are for all users.
    pub fn close_if_one_of(&mut self, count: usize) {
        if count > MAX_SYNCED_SINGLY {
            self.incoming.file = None;
        }
    }

    /// Nobody can tell now whether the metadata know it: the next start will.
    pub fn leave_to_recovery(mut self) {
        self.incoming.keeps_mark = true;
    }
}

/// The mark of something that is about to be removed. It goes when this is dropped, which must be after the bytes have gone.
#[derive(Debug)]
pub struct RemovalMark {
    path: PathBuf,
    is_kept: bool,
}

impl RemovalMark {
    /// It could not be removed, or nobody can tell: the next start will.
    pub fn leave_to_recovery(mut self) {
        self.is_kept = true;
    }
}

impl Drop for RemovalMark {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What the metadata know, for whoever has to put bytes in order.
#[expect(missing_debug_implementations, reason = "two closures")]
pub struct Known<'a> {
    pub blob: &'a dyn Fn(&BlobPath) -> Result<bool, StoreError>,
    pub session: &'a dyn Fn(&SessionId) -> Result<bool, StoreError>,
}

/// Where bytes are kept.
pub trait Blobs: fmt::Debug + Send + Sync {
    fn begin(&self, blob: BlobPath) -> Result<Incoming, StoreError>;

    /// Brings files to disk and to their places. The marks by which they are found after a crash go when they are dropped,
    /// which must be after the metadata know of them. If it fails, some may be in their places.
    fn place(&self, files: &[Written], pace: &mut Pace) -> Result<(), StoreError>;

    fn open(&self, blob: &BlobPath) -> Result<File, StoreError>;
    /// For whoever needs a path.
    fn path(&self, blob: &BlobPath) -> PathBuf;
    fn remove(&self, blob: &BlobPath) -> Result<(), StoreError>;
    fn remove_session(&self, owner: &Owner, session: &SessionId) -> Result<(), StoreError>;

    /// Before the metadata forget a file: should the end come before its bytes are removed, the next start does it.
    fn mark_file(&self, blob: &BlobPath) -> Result<RemovalMark, StoreError>;
    fn mark_session(&self, owner: &Owner, session: &SessionId) -> Result<RemovalMark, StoreError>;

    /// Removes what a crash has left; how many files and sessions. Only before anything else is done.
    fn recover(&self, known: &Known<'_>) -> Result<usize, StoreError>;

    /// Files that nobody knows. What comes or goes meanwhile is not among them.
    fn strays(&self, known: &Known<'_>) -> Result<Vec<PathBuf>, StoreError>;
}

/// In a folder of this host.
#[derive(Debug)]
pub struct FolderBlobs {
    root: PathBuf,
    /// Whether a synced file brings its name and its folders along.
    keeps_order: bool,
}

impl FolderBlobs {
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        let incoming = root.join(INCOMING);
        make_folder(&incoming)?;
        spread_folders(&incoming);
        for number in 0..INCOMING_FOLDERS {
            make_folder(&incoming.join(incoming_folder_name(number)))?;
        }
        Ok(Self { root: root.to_owned(), keeps_order: keeps_order(&incoming) })
    }

    /// The folder for new files and marks of a user.
    fn incoming(&self, user_folder: &str) -> PathBuf {
        let number = Sha256::digest(user_folder.as_bytes())[0] % INCOMING_FOLDERS;
        self.root.join(INCOMING).join(incoming_folder_name(number))
    }

    fn link(&self, written: &Written) -> Result<PathBuf, StoreError> {
        let path = self.path(&written.blob);
        let folder = path.parent().unwrap_or(&self.root).to_owned();
        let mut tries = 0;
        loop {
            let linked = fs::hard_link(&written.incoming.path, &path);
            match linked {
                Ok(()) => return Ok(folder),
                // Not there yet, or taken away by somebody who found it empty, perhaps while it was being made.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 50 => {
                    tries += 1;
                    match make_folder(&folder) {
                        Err(StoreError::Files { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                        }
                        made => made?,
                    }
                }
                Err(source) => return Err(StoreError::Files { path, source }),
            }
        }
    }

    fn mark(&self, user_folder: &str, name: &str) -> Result<RemovalMark, StoreError> {
        let path = self.incoming(user_folder).join(format!("{REMOVAL}{name}"));
        match OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path) {
            Ok(_) => Ok(RemovalMark { path, is_kept: false }),
            Err(source) => Err(StoreError::Files { path, source }),
        }
    }

    /// Removes what a mark stands for, if nobody knows it.
    fn recover_one(&self, mark: &str, known: &Known<'_>) -> Result<bool, StoreError> {
        let parts: Vec<_> = mark.strip_prefix(REMOVAL).unwrap_or(mark).split(SEPARATOR).collect();
        if let Some(blob) = BlobPath::from_parts(&parts) {
            let is_left = !(known.blob)(&blob)?;
            if is_left {
                self.remove(&blob)?;
            }
            return Ok(is_left);
        }
        if let [folder, session] = parts[..]
            && mark.starts_with(REMOVAL)
            && is_plain(folder)
            && let Ok(session) = session.parse()
        {
            let is_left = !(known.session)(&session)?;
            if is_left {
                self.remove_folder(folder, &session)?;
            }
            return Ok(is_left);
        }
        Ok(false)
    }

    fn remove_folder(&self, user: &str, session: &SessionId) -> Result<(), StoreError> {
        let user = self.root.join(user);
        let path = user.join(session.as_str());
        absent_is_fine(fs::remove_dir_all(&path)).map_err(|source| StoreError::Files { path, source })?;
        // If that was the last of this user's; if not, it stays.
        let _ = fs::remove_dir(&user);
        Ok(())
    }

    /// Whether nobody knows the file at this path.
    fn is_stray(&self, parts: &[&str], path: &Path, known: &Known<'_>) -> Result<bool, StoreError> {
        let Some(blob) = BlobPath::from_parts(parts) else { return Ok(true) };
        let is_marked = || {
            let name = blob.incoming_name();
            let incoming = self.incoming(&blob.folder);
            incoming.join(format!("{REMOVAL}{name}")).exists()
                || incoming.join(format!("{REMOVAL}{}{SEPARATOR}{}", blob.folder, blob.session)).exists()
                || incoming.join(name).exists()
        };
        // One that came meanwhile is known when its mark has gone, and one that went is not there any more.
        Ok(!(known.blob)(&blob)? && !is_marked() && !(known.blob)(&blob)? && path.symlink_metadata().is_ok())
    }
}

impl Blobs for FolderBlobs {
    fn begin(&self, blob: BlobPath) -> Result<Incoming, StoreError> {
        let path = self.incoming(&blob.folder).join(blob.incoming_name());
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| StoreError::Files { path: path.clone(), source })?;
        Ok(Incoming {
            path,
            file: Some(file),
            hash: Sha256::new(),
            size: 0,
            on_disk: 0,
            blob,
            keeps_mark: false,
        })
    }

    fn place(&self, files: &[Written], pace: &mut Pace) -> Result<(), StoreError> {
        let failed = |path: &Path, source: io::Error| StoreError::Files { path: path.to_owned(), source };
        let mut folders = Vec::new();
        for written in files {
            let folder = self.link(written)?;
            if !folders.contains(&folder) {
                folders.push(folder);
            }
            pace.step();
        }
        if files.len() > MAX_SYNCED_SINGLY {
            // By a file that was open while data was written: Linux tells its descriptor of errors since then.
            let file = files.iter().find_map(|written| written.incoming.file.as_ref());
            let synced = pace.on_disk(|| file.map_or(Err(Errno::BADF), rustix::fs::syncfs));
            return synced.map_err(|errno| failed(&self.root, errno.into()));
        }
        for Written { incoming, .. } in files {
            let sync = || incoming.file.as_ref().map_or(Err(Errno::BADF.into()), File::sync_all);
            pace.on_disk(sync).map_err(|source| failed(&incoming.path, source))?;
        }
        if self.keeps_order {
            return Ok(());
        }
        for folder in folders {
            // Its own name is in the folder above, and that one's in the root.
            for level in folder.ancestors().take_while(|level| level.starts_with(&self.root)) {
                let opened = File::open(level).and_then(|opened| opened.sync_all());
                opened.map_err(|source| failed(level, source))?;
            }
        }
        Ok(())
    }

    fn open(&self, blob: &BlobPath) -> Result<File, StoreError> {
        let path = self.path(blob);
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path)
            .map_err(|source| StoreError::Files { path, source })
    }

    fn path(&self, blob: &BlobPath) -> PathBuf {
        self.root.join(&blob.folder).join(blob.session.as_str()).join(&blob.name)
    }

    fn remove(&self, blob: &BlobPath) -> Result<(), StoreError> {
        let path = self.path(blob);
        absent_is_fine(fs::remove_file(&path))
            .map_err(|source| StoreError::Files { path: path.clone(), source })?;
        // If that was the last of its session, or of its user; if not, they stay.
        let _ = path.ancestors().skip(1).take(2).try_for_each(fs::remove_dir);
        Ok(())
    }

    fn remove_session(&self, owner: &Owner, session: &SessionId) -> Result<(), StoreError> {
        self.remove_folder(&user_folder(owner), session)
    }

    fn mark_file(&self, blob: &BlobPath) -> Result<RemovalMark, StoreError> {
        self.mark(&blob.folder, &blob.incoming_name())
    }

    fn mark_session(&self, owner: &Owner, session: &SessionId) -> Result<RemovalMark, StoreError> {
        let folder = user_folder(owner);
        self.mark(&folder, &format!("{folder}{SEPARATOR}{session}"))
    }

    fn recover(&self, known: &Known<'_>) -> Result<usize, StoreError> {
        let incoming = self.root.join(INCOMING);
        // Earlier versions wrote into `.incoming` itself.
        let mut found = entries(&incoming)?;
        for number in 0..INCOMING_FOLDERS {
            found.extend(entries(&incoming.join(incoming_folder_name(number)))?);
        }
        let mut removed = 0;
        for entry in found {
            let path = entry.path();
            // A file of ours is never a folder.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if let Some(name) = entry.file_name().to_str() {
                removed += usize::from(self.recover_one(name, known)?);
            }
            absent_is_fine(fs::remove_file(&path)).map_err(|source| StoreError::Files { path, source })?;
        }
        Ok(removed)
    }

    fn strays(&self, known: &Known<'_>) -> Result<Vec<PathBuf>, StoreError> {
        let mut strays = Vec::new();
        let is_incoming = |entry: &fs::DirEntry| entry.file_name() == INCOMING;
        for user in entries(&self.root)?.into_iter().filter(|user| !is_incoming(user)) {
            if !user.file_type().is_ok_and(|kind| kind.is_dir()) {
                strays.push(user.path());
                continue;
            }
            for session in entries(&user.path())? {
                if !session.file_type().is_ok_and(|kind| kind.is_dir()) {
                    strays.push(session.path());
                    continue;
                }
                for file in entries(&session.path())? {
                    let names = [user.file_name(), session.file_name(), file.file_name()];
                    let parts: Vec<_> = names.iter().map(|name| name.to_str().unwrap_or_default()).collect();
                    if self.is_stray(&parts, &file.path(), known)? {
                        strays.push(file.path());
                    }
                }
            }
        }
        Ok(strays)
    }
}

fn incoming_folder_name(number: u8) -> String {
    format!("{number:02x}")
}

/// Tells ext4 to spread the folders in this one over the disk, with their files. Other file systems have no such flag.
fn spread_folders(folder: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Ok(folder) = File::open(folder) else { return };
    if let Ok(flags) = ioctl_getflags(&folder) {
        let _ = ioctl_setflags(&folder, flags | IFlags::TOPDIR);
    }
}

/// What is in a folder; nothing, if it is not there.
fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    let failed = |source| StoreError::Files { path: folder.to_owned(), source };
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<io::Result<_>>().map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

pub(crate) fn make_folder(folder: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| StoreError::Files { path: folder.to_owned(), source })
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
