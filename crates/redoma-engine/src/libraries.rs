//! Which libraries a prepared runtime has, by the names under which they are imported, and in which versions: as they were
//! installed, from the lock.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::runtime::Runtime;

/// A list of files that is longer is not read to its end: what can be imported is in it long before.
const LONGEST_RECORD: usize = 8 << 20;

/// Import names and versions. Empty for a root file system of somebody else's making.
pub fn libraries(runtime: &Runtime) -> BTreeMap<String, String> {
    let versions = fs::read_dir(runtime.folder().join("python/lib")).into_iter().flatten().flatten();
    let mut all = BTreeMap::new();
    for folder in versions.map(|version| version.path().join("site-packages")) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(package) = name.to_str().and_then(|name| name.strip_suffix(".dist-info")) else {
                continue;
            };
            let Some((_, version)) = package.rsplit_once('-') else { continue };
            for import in imports(&entry.path()) {
                all.insert(import, version.to_owned());
            }
        }
    }
    all
}

/// What a package lets one import, by the list of its files.
fn imports(information: &Path) -> Vec<String> {
    let record = fs::read(information.join("RECORD")).unwrap_or_default();
    let record = String::from_utf8_lossy(&record[..record.len().min(LONGEST_RECORD)]);
    let mut names: Vec<_> = record.lines().filter_map(|line| import_name(line.split(',').next()?)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The module that a file belongs to, if it is one's: `numpy/linalg/x.py`, `six.py`, `_cffi_backend.cpython-311.so`.
fn import_name(path: &str) -> Option<String> {
    let ends = |text: &str, ends: &[&str]| ends.iter().any(|end| text.ends_with(end));
    let name = if let Some((first, rest)) = path.split_once('/') {
        ends(rest, &[".py", ".so", ".pyi"]).then_some(first)?
    } else {
        ends(path, &[".py", ".so"]).then_some(path)?.split('.').next()?
    };
    let is_name = name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') && !name.is_empty();
    (is_name && name != "__pycache__").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_told_from_the_files_of_their_packages() {
        for (path, name) in [
            ("numpy/linalg/x.py", Some("numpy")),
            ("six.py", Some("six")),
            ("_cffi_backend.cpython-311-x86_64-linux-gnu.so", Some("_cffi_backend")),
            ("numpy.libs/libgfortran.so.5", None),
            ("../../../bin/f2py", None),
            ("__pycache__/six.cpython-311.pyc", None),
            ("numpy-2.4.6.dist-info/METADATA", None),
        ] {
            assert_eq!(import_name(path).as_deref(), name, "{path}");
        }
    }
}
