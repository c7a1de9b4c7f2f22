//! The sandboxes' `/etc`: synthesised, the same for all, nothing in it about this host but where its tools are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context;

const FILES: [(&str, &str); 8] = [
    (
        "passwd",
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1\tlocalhost redoma\n::1\tlocalhost\n"),
    ("hostname", "redoma\n"),
    // Names are looked up in these files only: there is no network to ask.
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"),
    ("resolv.conf", ""),
    ("os-release", "NAME=\"Redoma sandbox\"\nID=redoma\nPRETTY_NAME=\"Redoma sandbox\"\n"),
    ("timezone", "Etc/UTC\n"),
];

/// Copied as they are: the dynamic linker's list of libraries, and the names of protocols, services and file types.
const COPIED: [&str; 4] = ["ld.so.cache", "protocols", "services", "mime.types"];

/// Writes the whole folder. Safe on one that is in use: files are replaced by renaming.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    write_all(folder).with_context(|| format!("can't write {}", folder.display()))
}

fn write_all(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, content) in FILES {
        replace(folder, name, content.as_bytes())?;
    }
    for name in COPIED {
        if let Ok(content) = fs::read(Path::new("/etc").join(name)) {
            replace(folder, name, &content)?;
        }
    }
    link(&folder.join("mtab"), Path::new("/proc/self/mounts"))?;
    link(&folder.join("localtime"), Path::new("/usr/share/zoneinfo/UTC"))?;
    // Debian's tools are reached through links here (awk, which libblas, …). Only those that lead into /usr.
    let alternatives = folder.join("alternatives");
    fs::create_dir_all(&alternatives)?;
    let Ok(entries) = fs::read_dir("/etc/alternatives") else { return Ok(()) };
    for entry in entries.flatten() {
        if let Ok(target) = fs::read_link(entry.path())
            && target.starts_with("/usr")
        {
            link(&alternatives.join(entry.file_name()), &target)?;
        }
    }
    Ok(())
}

fn replace(folder: &Path, name: &str, content: &[u8]) -> std::io::Result<()> {
    let new = folder.join(format!(".{name}.new"));
    fs::write(&new, content)?;
    fs::rename(new, folder.join(name))
}

fn link(path: &Path, target: &Path) -> std::io::Result<()> {
    match symlink(target, path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
