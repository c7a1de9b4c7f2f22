//! Which inputs the code deleted.
//!
//! Inputs lie below the workspace as the lower layer of an overlay; what the code did is in the upper one. There a device
//! with the number 0 says that what has its name below is gone, and a folder marked as opaque that all that is below it is:
//! it was removed and made anew. Whatever else has the name of an input's folder, or of an input without being a plain file,
//! is in its place. Each input is looked for name by name, and nothing that the code made is followed.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::harvest::open_beneath;
use crate::staging::Input;

/// The names of those inputs that are no longer there. `upper` is the code's own layer.
pub(crate) fn deleted(upper: BorrowedFd<'_>, inputs: &[Input]) -> Result<Vec<String>, Errno> {
    // The code may have taken its own rights away: they are given back, here and on the way.
    let _ = rustix::fs::fchmod(upper, Mode::from_raw_mode(0o700));
    let mut gone = Vec::new();
    for input in inputs {
        if is_deleted(upper, Path::new(&input.name))? {
            gone.push(input.name.to_string_lossy().into_owned());
        }
    }
    gone.sort();
    Ok(gone)
}

fn is_deleted(upper: BorrowedFd<'_>, name: &Path) -> Result<bool, Errno> {
    let mut folder = rustix::io::fcntl_dupfd_cloexec(upper, 3)?;
    // Whether what is below can't be seen through the folder that was come to.
    let mut is_opaque = false;
    let mut components = name.components().peekable();
    while let Some(Component::Normal(component)) = components.next() {
        let is_last = components.peek().is_none();
        let kind = match rustix::fs::statat(&folder, component, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            // Not touched, unless its folder is another one.
            Err(Errno::NOENT) => return Ok(is_opaque),
            Err(errno) => return Err(errno),
        };
        match kind {
            FileType::RegularFile if is_last => return Ok(false),
            FileType::Directory if !is_last => {
                folder = open_folder(&folder, component)?;
                is_opaque |= is_marked_opaque(&folder);
            }
            _ => return Ok(true),
        }
    }
    Ok(false)
}

fn open_folder(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let opened = open_beneath(folder, name, OFlags::DIRECTORY)?;
    let _ = rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o700));
    Ok(opened)
}

/// The mark is under one name where the overlay was mounted by a user, and under another by root.
fn is_marked_opaque(folder: &OwnedFd) -> bool {
    ["user.overlay.opaque", "trusted.overlay.opaque"].into_iter().any(|attribute| {
        let mut value = [0u8; 4];
        matches!(rustix::fs::fgetxattr(folder, attribute, &mut value), Ok(1) if value[0] == b'y')
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// What is deleted of these, where `prepare` makes the upper layer.
    fn deleted_of(names: &[&str], prepare: impl FnOnce(&Path)) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let inputs: Vec<_> =
            names.iter().map(|name| Input { path: "/nowhere".into(), name: (*name).into() }).collect();
        let upper = std::fs::File::open(folder.path()).unwrap();
        deleted(upper.as_fd(), &inputs).unwrap()
    }

    #[test]
    fn what_was_not_touched_or_changed_in_place_is_not_deleted() {
        let names = ["a", "folder/b", "folder/below/c"];
        assert_eq!(deleted_of(&names, |_| {}), Vec::<String>::new());
        let gone = deleted_of(&names, |upper| {
            std::fs::create_dir(upper.join("folder")).unwrap();
            std::fs::write(upper.join("a"), "changed").unwrap();
            std::fs::write(upper.join("folder/new"), "beside it").unwrap();
        });
        assert_eq!(gone, Vec::<String>::new());
    }

    #[test]
    fn what_is_replaced_by_something_else_is_deleted() {
        let gone = deleted_of(&["a", "b", "folder/c", "other/d"], |upper| {
            std::fs::create_dir(upper.join("a")).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", upper.join("b")).unwrap();
            std::fs::write(upper.join("folder"), "a file").unwrap();
            std::os::unix::fs::symlink("/", upper.join("other")).unwrap();
        });
        assert_eq!(gone, ["a", "b", "folder/c", "other/d"]);
    }

    #[test]
    fn a_folder_made_anew_hides_what_was_below_it() {
        let gone = deleted_of(&["folder/a", "folder/below/b", "folder/kept"], |upper| {
            let folder = upper.join("folder");
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("kept"), "written again").unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&folder, "user.overlay.opaque", b"y", flags).unwrap();
        });
        assert_eq!(gone, ["folder/a", "folder/below/b"]);
    }
}
