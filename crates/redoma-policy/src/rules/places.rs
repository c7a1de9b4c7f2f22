//! Where a path leads, as far as its text tells.

use redoma_model::policy::Place;

const WORKSPACE: &[&str] = &["mnt", "data"];
const HOME: &[&str] = &["home", "sandbox"];
/// Devices that anybody may write to, and the shell's own names for connections.
const HARMLESS: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "fd", "shm", "pts",
    "ptmx", "tcp", "udp",
];
const SYSTEM: &[&str] = &[
    "bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "media", "opt", "proc", "root", "run", "sbin",
    "srv", "sys", "usr", "var", "home", "mnt",
];

/// How much of a path is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Whole,
    /// Something follows that is not known.
    Beginning,
}

/// Whether a path is in a place.
pub(super) fn is_in(path: &str, known: Known, place: Place) -> bool {
    let path = path.trim();
    if path.is_empty() || path.contains("://") || path.len() > 4096 {
        return false;
    }
    let is_absolute = path.starts_with('/');
    let Some(parts) = parts_of(path) else { return false };
    // `folder/*` is everything in it.
    let folder = match parts.split_last() {
        Some((last, folder)) if matches!(*last, "*" | "**" | ".*" | "{*,.*}" | ".[!.]*" | ".??*" | "*.*") => {
            folder
        }
        _ => parts.as_slice(),
    };
    let whole = known == Known::Whole;
    match place {
        Place::Root => whole && is_absolute && folder.is_empty(),
        Place::Home => whole && folder == HOME,
        Place::Workspace => whole && folder == WORKSPACE,
        Place::Above => whole && !is_absolute && !folder.starts_with(WORKSPACE),
        Place::Device => {
            parts.first() == Some(&"dev") && parts.get(1).is_some_and(|device| !HARMLESS.contains(device))
        }
        Place::System => match folder {
            ["mnt" | "home" | "dev"] => whole,
            [] | ["mnt" | "home", ..] | ["var", "tmp", ..] => false,
            [first, ..] => {
                is_absolute && SYSTEM.contains(first) && (whole || folder.len() > 1 || path.ends_with('/'))
            }
        },
    }
}

/// The folders on the way, from the root, without `.` and `..`.
fn parts_of(path: &str) -> Option<Vec<&str>> {
    let mut parts = if path.starts_with('/') { Vec::new() } else { WORKSPACE.to_vec() };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    (parts.len() < 256).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_the_root_is_the_root() {
        for path in ["/", "//", "/.", "/*", "/../", "/etc/..", "/mnt/data/../../*", "/./*"] {
            assert!(is_in(path, Known::Whole, Place::Root), "{path}");
        }
        for path in ["/tmp", "/mnt/data/*", "build", "", "https://host/"] {
            assert!(!is_in(path, Known::Whole, Place::Root), "{path}");
        }
        assert!(!is_in("/", Known::Beginning, Place::Root));
    }

    #[test]
    fn places_are_told_apart() {
        for (path, place) in [
            ("/etc/passwd", Place::System),
            ("/usr/*", Place::System),
            ("/mnt", Place::System),
            (".", Place::Workspace),
            ("*", Place::Workspace),
            ("./*", Place::Workspace),
            ("/mnt/data/", Place::Workspace),
            ("..", Place::Above),
            ("../../x", Place::Above),
            ("/home/sandbox", Place::Home),
            ("/dev/sda", Place::Device),
        ] {
            assert!(is_in(path, Known::Whole, place), "{path}");
        }
        for (path, place) in [
            ("/dev/null", Place::Device),
            ("/tmp/etc", Place::System),
            ("etc", Place::System),
            ("sub/..x", Place::Above),
            ("build/*", Place::Workspace),
            ("/mnt/data/out", Place::System),
        ] {
            assert!(!is_in(path, Known::Whole, place), "{path}");
        }
    }
}
