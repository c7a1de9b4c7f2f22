//! A canary: a folder on the host, open to everybody as far as file modes go, that code in a sandbox must neither read
//! nor change. Only the jail stands before it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A planted folder with a secret in it. Removed when dropped.
#[derive(Debug)]
pub struct Canary {
    folder: tempfile::TempDir,
    token: String,
    before: Vec<String>,
}

impl Canary {
    pub fn plant() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("redoma-canary-")
            .tempdir_in("/var/tmp")
            .expect("/var/tmp is writable");
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("the kernel gives uuids");
        let token = format!("CANARY{}", random.trim().replace('-', ""));
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the canary is ours");
        };
        open(folder.path(), 0o777);
        for name in ["secret.txt", "victim.txt"] {
            let path = folder.path().join(name);
            fs::write(&path, format!("{token} in {name}\n")).expect("the canary can be written");
            open(&path, 0o666);
        }
        let mut canary = Self { folder, token, before: Vec::new() };
        canary.before = canary.look();
        canary
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// What nobody inside may ever print.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Name, mode, owner, links, size, time and content of everything in it.
    fn look(&self) -> Vec<String> {
        let mut seen = Vec::new();
        for entry in fs::read_dir(self.folder.path()).expect("the canary is there").flatten() {
            let meta = entry.path().symlink_metadata().expect("an entry has metadata");
            let content = fs::read_to_string(entry.path()).unwrap_or_default();
            seen.push(format!(
                "{} {:o} {} {} {} {}.{} {content}",
                entry.file_name().display(),
                meta.mode(),
                meta.uid(),
                meta.nlink(),
                meta.size(),
                meta.mtime(),
                meta.mtime_nsec()
            ));
        }
        seen.sort();
        seen
    }

    /// What has changed, if anything.
    pub fn changes(&self) -> Option<String> {
        let now = self.look();
        (now != self.before).then(|| format!("before: {:?}\nnow: {now:?}", self.before))
    }
}
