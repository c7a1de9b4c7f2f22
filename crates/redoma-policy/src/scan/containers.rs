//! Descriptions of containers that give away the host: Compose files, Kubernetes manifests, Dockerfiles.

use super::LineFound;
use super::kinds::{self, Level};

/// Goes by lines: what matters here is one key and one value, whatever is around it.
pub(super) fn find(text: &str) -> Vec<LineFound> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let line = line.split(" #").next().unwrap_or(line).trim();
        if line.starts_with('#') {
            continue;
        }
        let setting =
            line.trim_start_matches("- ").split_once(':').map(|(key, value)| (key.trim(), plain(value)));
        let (kind, level) = match setting {
            Some(("privileged", "true" | "yes")) => (&kinds::CONTAINER_PRIVILEGED, Level::High),
            Some(
                ("pid" | "network_mode" | "ipc" | "userns_mode", "host")
                | ("hostPID" | "hostNetwork" | "hostIPC", "true"),
            ) => (&kinds::CONTAINER_HOST, Level::Medium),
            Some(("allowPrivilegeEscalation", "true")) => (&kinds::CONTAINER_HOST, Level::Low),
            _ if line.contains("docker.sock")
                || line.contains("containerd.sock")
                || line.contains("podman.sock") =>
            {
                (&kinds::CONTAINER_SOCKET, Level::High)
            }
            _ if line.starts_with("- ")
                && matches!(plain(&line[2..]), "SYS_ADMIN" | "ALL" | "CAP_SYS_ADMIN") =>
            {
                let keys = lines[..number].iter().rev().take(8).map(|line| line.trim().trim_end_matches(':'));
                let key =
                    keys.into_iter().find(|key| matches!(*key, "cap_add" | "add" | "cap_drop" | "drop"));
                if !matches!(key, Some("cap_add" | "add")) {
                    continue;
                }
                (&kinds::CONTAINER_HOST, Level::High)
            }
            _ => continue,
        };
        found.push(LineFound { line: u32::try_from(number + 1).unwrap_or(u32::MAX), kind, level });
    }
    found
}

fn plain(value: &str) -> &str {
    value.trim().trim_matches(['"', '\''])
}

/// The scripts of a Dockerfile's `RUN` lines, and where they begin.
pub(super) fn run_lines(text: &str) -> Vec<(u32, String)> {
    let mut scripts = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(command) = line.trim_start().strip_prefix("RUN ") else { continue };
        let mut script = command.to_owned();
        while script.ends_with('\\') {
            script.push('\n');
            match lines.next() {
                Some((_, next)) => script.push_str(next),
                None => break,
            }
        }
        scripts.push((u32::try_from(number + 1).unwrap_or(u32::MAX), script));
    }
    scripts
}
