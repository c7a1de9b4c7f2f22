//! What is inside sandboxes.
//!
//! Two kinds, one result: a list of [`TreeEntry`]s. A *prepared* runtime lies in the data folder, made by `redoma
//! setup`: a Python environment and a synthesised `/etc`, laid over the host's own `/usr`. A *root file system* is any
//! folder that looks like one (an unpacked image, a debootstrap). Neither ever shows the host's `/root`, `/home`, `/var`
//! or `/etc`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use redoma_jail::{PlanError, TreeEntry};
use serde::{Deserialize, Serialize};

use crate::language::Language;

/// Raised when what `redoma setup` makes changes in a way that older results don't fit.
pub const FORMAT: u32 = 1;
/// Where a system-wide runtime is, for users who have prepared none of their own.
pub const SYSTEM_DATA: &str = "/var/lib/redoma";
/// The mount point of the Python environment inside.
pub const PYTHON: &str = "opt/python";
/// The file of matplotlib's backend that `redoma setup` puts among the Python environment's packages.
pub const PLOTS_MODULE: &str = "redoma_plots.py";
/// The mount point of this program inside, for languages with a stage before the program.
/// In a folder that no image has a say in.
pub const INSIDE: &str = ".redoma/inside";

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("the runtime `{name}` is not prepared; run `redoma setup` (looked in {looked_in})")]
    NotPrepared { name: String, looked_in: String },
    #[error("{}: {reason}; run `redoma setup` again", path.display())]
    Unsound { path: PathBuf, reason: String },
    #[error("{}: {source}", path.display())]
    RootFolder { path: PathBuf, source: io::Error },
    #[error("{} is not a root file system: it has no usr or bin folder", .0.display())]
    NotARoot(PathBuf),
    #[error("the runtime has no {language} ({tried}); install {missing} and run `redoma setup` again")]
    NoProgram { language: String, tried: String, missing: String },
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// What `redoma setup` found and made, kept beside it as `manifest.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Changes when anything that went into the runtime changes.
    pub fingerprint: String,
    pub python: PathBuf,
    pub python_version: String,
    pub node: Option<PathBuf>,
    pub node_version: Option<String>,
    /// Files to link into the sandbox's home folder: where, and to what inside.
    #[serde(default)]
    pub home_links: BTreeMap<String, String>,
}

/// A runtime, found and read.
#[derive(Debug)]
pub struct Runtime {
    folder: PathBuf,
    kind: Kind,
    /// The folder, locked while it is in use: `redoma setup` does not remove a runtime that anybody holds. The folder and
    /// not a file in it, since files there are replaced and the folder is only ever renamed.
    in_use: Option<File>,
    has_plots: bool,
}

#[derive(Debug)]
enum Kind {
    /// Over the host's `/usr`.
    Prepared(Manifest),
    RootFolder,
}

impl Runtime {
    /// `name` is a prepared runtime's, or the path of a root file system folder (anything with a slash in it).
    pub fn find(name: &str, data_dir: &Path) -> Result<Self, RuntimeError> {
        if name.contains('/') {
            return Self::root_folder(Path::new(name));
        }
        let candidates =
            [data_dir.join("runtimes").join(name), Path::new(SYSTEM_DATA).join("runtimes").join(name)];
        for folder in &candidates {
            let path = folder.join("manifest.toml");
            match fs::read_to_string(&path) {
                Ok(text) => return Self::prepared(folder, &path, &text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(RuntimeError::Unsound { path, reason: error.to_string() }),
            }
        }
        let looked_in: Vec<_> = candidates.iter().map(|folder| folder.display().to_string()).collect();
        Err(RuntimeError::NotPrepared { name: name.to_owned(), looked_in: looked_in.join(" and ") })
    }

    fn prepared(folder: &Path, path: &Path, text: &str) -> Result<Self, RuntimeError> {
        let unsound = |reason: String| RuntimeError::Unsound { path: path.to_owned(), reason };
        let in_use = File::open(folder).map_err(|error| unsound(error.to_string()))?;
        in_use.try_lock_shared().map_err(|error| unsound(error.to_string()))?;
        let manifest: Manifest = toml::from_str(text).map_err(|error| unsound(error.message().to_owned()))?;
        if manifest.format != FORMAT {
            return Err(unsound(format!("made by another version of redoma (format {})", manifest.format)));
        }
        let versions = fs::read_dir(folder.join("python/lib")).into_iter().flatten().flatten();
        let has_plots = versions
            .map(|version| version.path().join("site-packages").join(PLOTS_MODULE))
            .any(|path| path.exists());
        let kind = Kind::Prepared(manifest);
        Ok(Self { folder: folder.to_owned(), kind, in_use: Some(in_use), has_plots })
    }

    fn root_folder(path: &Path) -> Result<Self, RuntimeError> {
        let failed = |source| RuntimeError::RootFolder { path: path.to_owned(), source };
        let folder = path.canonicalize().map_err(failed)?;
        if !folder.join("usr").is_dir() && !folder.join("bin").is_dir() {
            return Err(RuntimeError::NotARoot(folder));
        }
        Ok(Self { folder, kind: Kind::RootFolder, in_use: None, has_plots: false })
    }

    /// Whether what was found is still what is there: `redoma setup` replaces a runtime as a whole.
    pub fn is_current(&self) -> bool {
        match (&self.kind, &self.in_use) {
            (Kind::Prepared(_), Some(folder)) => {
                let same = |now: &fs::Metadata, then: &fs::Metadata| {
                    now.ino() == then.ino() && now.dev() == then.dev()
                };
                match (fs::metadata(&self.folder), folder.metadata()) {
                    (Ok(now), Ok(then)) => same(&now, &then),
                    _ => false,
                }
            }
            _ => self.folder.is_dir(),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.kind {
            Kind::Prepared(manifest) => Some(manifest),
            Kind::RootFolder => None,
        }
    }

    /// The block device that the runtime is read from, as `major:minor` of the whole disk.
    pub fn block_device(&self) -> Option<String> {
        let device = fs::metadata(&self.folder).ok()?.dev();
        let number = |device| format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let entry = PathBuf::from(format!("/sys/dev/block/{}", number(device))).canonicalize().ok()?;
        if entry.join("partition").exists() {
            return fs::read_to_string(entry.parent()?.join("dev")).ok().map(|text| text.trim().to_owned());
        }
        Some(number(device))
    }

    /// Everything in the sandbox's root.
    pub fn tree(&self) -> Result<Vec<TreeEntry>, RuntimeError> {
        match &self.kind {
            Kind::Prepared(manifest) => self.prepared_tree(manifest),
            Kind::RootFolder => self.root_folder_tree(),
        }
    }

    /// What is put into the sandbox's home folder.
    pub fn home(&self) -> Result<Vec<TreeEntry>, PlanError> {
        let mut entries = Vec::new();
        for (path, target) in self.manifest().into_iter().flat_map(|manifest| &manifest.home_links) {
            for folder in Path::new(path).ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
                if !folder.as_os_str().is_empty() {
                    entries.push(TreeEntry::folder(folder)?);
                }
            }
            entries.push(TreeEntry::link(path, target)?);
        }
        Ok(entries)
    }

    fn prepared_tree(&self, manifest: &Manifest) -> Result<Vec<TreeEntry>, RuntimeError> {
        let mut tree = vec![TreeEntry::bind_folder(Path::new("/usr"), "usr")?];
        // On a merged system these are links into /usr; elsewhere they are folders of their own.
        for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
            let path = Path::new("/").join(name);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_symlink() => {
                    let target =
                        fs::read_link(&path).map_err(|source| RuntimeError::RootFolder { path, source })?;
                    tree.push(TreeEntry::link(name, target)?);
                }
                Ok(meta) if meta.is_dir() => tree.push(TreeEntry::bind_folder(&path, name)?),
                _ => {}
            }
        }
        // What an administrator put into /usr/local is theirs, unless the interpreters are there.
        let in_local = |path: &Path| path.starts_with("/usr/local");
        if !in_local(&manifest.python) && !manifest.node.as_deref().is_some_and(in_local) {
            tree.push(TreeEntry::cover("usr/local")?);
        }
        tree.push(TreeEntry::bind_folder(&self.folder.join("etc"), "etc")?);
        tree.push(TreeEntry::folder("opt")?);
        tree.push(TreeEntry::bind_folder(&self.folder.join("python"), PYTHON)?);
        Ok(tree)
    }

    /// Each top-level folder by itself, so that our own mount points need not exist in the image.
    fn root_folder_tree(&self) -> Result<Vec<TreeEntry>, RuntimeError> {
        const OURS: [&str; 9] = ["proc", "sys", "dev", "tmp", "mnt", "home", "root", "run", ".redoma"];
        let failed = |source| RuntimeError::RootFolder { path: self.folder.clone(), source };
        let mut tree = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if OURS.iter().any(|ours| name == *ours) {
                continue;
            }
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_symlink() {
                tree.push(TreeEntry::link(&name, fs::read_link(entry.path()).map_err(failed)?)?);
            } else if kind.is_dir() {
                tree.push(TreeEntry::bind_folder(&entry.path(), &name)?);
            }
        }
        Ok(tree)
    }

    /// What matplotlib draws with: a backend whose `show` leaves pictures, where it is there.
    pub(crate) fn plot_backend(&self) -> &'static str {
        if self.has_plots { "module://redoma_plots" } else { "Agg" }
    }

    /// Where inside the sandbox this language's program is.
    pub fn program<'a>(&self, language: &'a Language) -> Result<&'a str, RuntimeError> {
        language.programs.iter().copied().find(|path| self.has(path)).ok_or_else(|| RuntimeError::NoProgram {
            language: language.id.to_owned(),
            tried: language.programs.join(", "),
            missing: language.missing.to_owned(),
        })
    }

    /// Whether a path inside the sandbox leads to something.
    fn has(&self, path: &str) -> bool {
        match &self.kind {
            Kind::Prepared(_) => match path.strip_prefix("/opt/python") {
                Some(rest) => {
                    fs::symlink_metadata(self.folder.join("python").join(rest.trim_start_matches('/')))
                }
                None => fs::metadata(path),
            }
            .is_ok(),
            // A link in an image points into the image, so it is not followed from here.
            Kind::RootFolder => fs::symlink_metadata(self.folder.join(path.trim_start_matches('/'))).is_ok(),
        }
    }
}
