//! A cgroup of one's own, for users without root on a systemd host.
//!
//! A login session's processes sit in a group that belongs to root. systemd's user manager gives anybody a delegated
//! one on request: a transient scope. `redoma` asks for it by becoming `systemd-run`, which becomes `redoma` again,
//! now inside the scope.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Set in the second life, so that there is no third.
const MARK: &str = "REDOMA_IN_SCOPE";

/// Starts this program again inside a scope, if that may help. Comes back if it can't.
pub fn try_to_enter() -> Option<Infallible> {
    let has_manager = std::env::var_os("XDG_RUNTIME_DIR")
        .is_some_and(|folder| Path::new(&folder).join("systemd/private").exists());
    let is_plain_user = !rustix::process::geteuid().is_root();
    if !has_manager || !is_plain_user || std::env::var_os(MARK).is_some() {
        return None;
    }
    let program = std::env::current_exe().ok()?;
    let _failed = Command::new("systemd-run")
        .args(["--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .exec();
    None
}
