//! Whether a file system brings changes of folders to disk in the order in which they were made.
//!
//! ext4 with a journal and XFS do. There, syncing a file that already has its name also brings that name to disk, and the
//! folders that were made for it before. Elsewhere, each folder has to be synced too. Each of those syncs makes the disk
//! empty its cache, which takes milliseconds while another user writes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// False where it is unknown.
pub(crate) fn keeps_order(folder: &Path) -> bool {
    let Ok(device) = fs::metadata(folder).map(|metadata| metadata.dev()) else { return false };
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let journals: Vec<_> = fs::read_dir("/proc/fs/jbd2")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    mounts_keep_order(&mounts, &device, &journals)
}

/// `journals` are the names in `/proc/fs/jbd2`, such as `sda1-8`: the disk's name and the number of the journal's inode.
fn mounts_keep_order(mounts: &str, device: &str, journals: &[String]) -> bool {
    mounts.lines().any(|line| {
        let Some((before, after)) = line.split_once(" - ") else { return false };
        let mut after = after.split(' ');
        let (kind, source) = (after.next(), after.next().and_then(|source| source.rsplit('/').next()));
        let has_journal = || {
            let is_of = |journal: &String| journal.rsplit_once('-').map(|(disk, _)| disk) == source;
            source.is_some_and(|source| !source.is_empty()) && journals.iter().any(is_of)
        };
        before.split(' ').nth(2) == Some(device)
            && match kind {
                Some("xfs") => true,
                Some("ext4") => has_journal(),
                _ => false,
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 254:1 / /old rw - ext2 /dev/vdb rw
24 22 254:2 / /fast rw - xfs /dev/vdc rw
25 22 254:3 / /plain rw - ext4 /dev/vdd rw
26 22 0:30 / /run rw,nosuid - tmpfs tmpfs rw
27 22 0:31 /@ /b rw - btrfs /dev/vda rw
28 22 broken
";

    #[test]
    fn only_file_systems_that_are_known_to_keep_the_order_count() {
        let journals = ["vda-8".to_owned(), "vdb-8".to_owned()];
        let keeps = |device| mounts_keep_order(MOUNTS, device, &journals);
        assert!(keeps("254:0") && keeps("254:2"));
        // ext2; ext4 without a journal; memory; others; not mounted.
        for device in ["254:1", "254:3", "0:30", "0:31", "9:9", ""] {
            assert!(!keeps(device), "{device}");
        }
        assert!(!mounts_keep_order(MOUNTS, "254:0", &[]), "no list of journals");
    }

    #[test]
    fn what_can_not_be_read_keeps_no_order() {
        assert!(!keeps_order(Path::new("/nowhere/at/all")));
        assert!(!keeps_order(Path::new("/proc/self")));
    }
}
