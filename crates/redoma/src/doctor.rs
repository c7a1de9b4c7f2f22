//! `redoma doctor`: what this kernel and host offer, what is missing, how to get it. It tries things instead of reading
//! version numbers, and in the end makes a whole sandbox.

use std::path::Path;
use std::process::ExitCode;

use redoma_engine::{Host, Languages, Place, RunRequest, Runtime, Source, Stdin, Terms};
use redoma_jail::trial::{self, Attempt};
use redoma_model::{Layer, LimitsPatch, Profile, Span};
use serde::Serialize;

use crate::cli::{DoctorArguments, Global};
use crate::config::{Config, data_dir};
use crate::terminal::{harmless_json, harmless_lines};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// Missing, and runs go on without it.
    Warning,
    /// Missing, and runs are refused.
    Missing,
}

#[derive(Debug, Serialize)]
struct Check {
    name: String,
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status: Status::Ok, found: found.into(), fix: None }
    }
    fn missing(name: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status: Status::Missing, found: found.into(), fix: Some(fix.into()) }
    }
    fn warning(name: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Warning, ..Self::missing(name, found, fix) }
    }
    fn tried(name: &str, result: Result<(), rustix::io::Errno>, fix: &str) -> Self {
        match result {
            Ok(()) => Self::ok(name, "works"),
            Err(errno) => Self::missing(name, errno.to_string(), fix),
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    ready: bool,
    mode: &'static str,
    checks: Vec<Check>,
}

pub fn doctor(global: &Global, arguments: &DoctorArguments) -> anyhow::Result<ExitCode> {
    let data_dir = data_dir(global)?;
    let config = Config::load(global, &data_dir)?;
    let waived = config.waived()?;
    let host = Host::detect();
    if host.hierarchy.is_err() && !waived.contains(&Layer::Cgroup) {
        crate::systemd_scope::try_to_enter();
    }
    let mut checks = vec![kernel()];
    checks.extend(namespaces());
    checks.push(cgroup(&host));
    checks.push(landlock(&host));
    checks.push(Check::tried(
        "seccomp",
        trial::seccomp_works(),
        "a kernel with CONFIG_SECCOMP_FILTER; a container runtime may forbid it",
    ));
    for check in &mut checks {
        let is_waived = match check.name.as_str() {
            "cgroup" => waived.contains(&Layer::Cgroup),
            "landlock" => waived.contains(&Layer::Landlock),
            _ => false,
        };
        if check.status == Status::Missing && is_waived {
            check.status = Status::Warning;
            check.found.push_str(" (waived in redoma.toml)");
        }
    }
    checks.push(audit_log());
    checks.push(core_dumps(&sysctl("kernel.core_pattern").unwrap_or_default()));
    checks.push(processor(&vulnerabilities()));
    checks.extend(runtime(&config, &data_dir));
    if checks.iter().all(|check| check.status != Status::Missing) {
        checks.push(whole_sandbox(&host, &config, &waived, &data_dir));
    }
    let report = Report {
        ready: checks.iter().all(|check| check.status != Status::Missing),
        mode: if rustix::process::geteuid().is_root() { "root" } else { "rootless" },
        checks,
    };
    print(&report, arguments.json)?;
    Ok(if report.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The flags of clone, by the names that the manual gives them.
mod libc_flags {
    pub const NEWNS: i32 = 0x0002_0000;
    pub const NEWCGROUP: i32 = 0x0200_0000;
    pub const NEWUTS: i32 = 0x0400_0000;
    pub const NEWIPC: i32 = 0x0800_0000;
    pub const NEWPID: i32 = 0x2000_0000;
    pub const NEWNET: i32 = 0x4000_0000;
}

fn kernel() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if trial::kernel_version() >= (5, 13) {
        Check::ok("kernel", release)
    } else {
        Check::missing("kernel", release, "Linux 5.13 or newer")
    }
}

fn namespaces() -> Vec<Check> {
    let mut checks = Vec::new();
    let user = trial::attempt(0, Attempt::Nothing);
    checks.push(match user {
        Ok(()) => Check::ok("user namespaces", "work"),
        Err(errno) => Check::missing("user namespaces", errno.to_string(), why_no_user_namespaces()),
    });
    if user.is_err() {
        return checks;
    }
    let rights = trial::attempt(libc_flags::NEWNS, Attempt::Mount);
    checks.push(match rights {
        Ok(()) => Check::ok("rights inside them", "real (a mount was made)"),
        Err(errno) => Check::missing("rights inside them", errno.to_string(), why_no_rights()),
    });
    for (name, flag) in [
        ("pid", libc_flags::NEWPID),
        ("mount", libc_flags::NEWNS),
        ("net", libc_flags::NEWNET),
        ("ipc", libc_flags::NEWIPC),
        ("uts", libc_flags::NEWUTS),
        ("cgroup", libc_flags::NEWCGROUP),
    ] {
        let fix = format!("a kernel with {name} namespaces; a container runtime may forbid them");
        checks.push(Check::tried(
            &format!("{name} namespaces"),
            trial::attempt(flag, Attempt::Nothing),
            &fix,
        ));
    }
    checks.push(if trial::has_time_namespaces() {
        Check::ok("time namespaces", "there")
    } else {
        Check::missing("time namespaces", "not there", "Linux 5.6 or newer with CONFIG_TIME_NS")
    });
    checks.push(Check::tried(
        "a /proc of one's own",
        trial::attempt(libc_flags::NEWNS | libc_flags::NEWPID, Attempt::Proc),
        "inside a container, start it with --security-opt systempaths=unconfined",
    ));
    checks
}

fn sysctl(name: &str) -> Option<String> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    std::fs::read_to_string(path).ok().map(|value| value.trim().to_owned())
}

fn why_no_user_namespaces() -> String {
    if sysctl("user.max_user_namespaces").as_deref() == Some("0") {
        return "they are switched off: `sysctl -w user.max_user_namespaces=15000`".to_owned();
    }
    if sysctl("kernel.unprivileged_userns_clone").as_deref() == Some("0") {
        return "they are switched off for plain users: `sysctl -w kernel.unprivileged_userns_clone=1`"
            .to_owned();
    }
    "a kernel with CONFIG_USER_NS; a container runtime may forbid them (seccomp=unconfined)".to_owned()
}

fn why_no_rights() -> String {
    if sysctl("kernel.apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "AppArmor takes rights away inside user namespaces (Ubuntu 23.10 and newer): install deploy/apparmor/redoma \
                as /etc/apparmor.d/redoma and `apparmor_parser -r` it, or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
            .to_owned();
    }
    "a security module (AppArmor, SELinux) or a container runtime forbids mounts inside user namespaces"
        .to_owned()
}

fn cgroup(host: &Host) -> Check {
    match &host.hierarchy {
        Ok(hierarchy) => {
            Check::ok("cgroup", format!("version {}, in {}", hierarchy.version(), hierarchy.place()))
        }
        Err(error) => Check::missing(
            "cgroup",
            error.to_string(),
            format!(
                "{}. Or go without limits for whole process trees: \"cgroup\" in isolation.allow_missing",
                error.advice()
            ),
        ),
    }
}

fn landlock(host: &Host) -> Check {
    match host.landlock_abi {
        Some(abi) if abi >= 6 => Check::ok("landlock", format!("ABI {abi}")),
        Some(abi) => {
            Check::ok("landlock", format!("ABI {abi} (signals and abstract sockets are scoped from 6 on)"))
        }
        None => Check::missing(
            "landlock",
            "not there",
            "Linux 5.13 or newer with `landlock` in the lsm= boot option",
        ),
    }
}

fn audit_log() -> Check {
    let name = "the kernel's audit log";
    match redoma_jail::violations::AuditLog::open() {
        Ok(_) => Check::ok(name, "can be heard: what a filter kills is counted"),
        Err(error) => Check::warning(
            name,
            error.to_string(),
            "not needed: only metrics of what the kernel alone sees are missing (docs/metrics.md)",
        ),
    }
}

/// The limit that sandboxes have on core files keeps a handler behind a pipe from being started, and no file is written. A
/// socket (`@`, Linux 6.16) is connected to whatever the limit says.
fn core_dumps(pattern: &str) -> Check {
    let name = "core dumps";
    if pattern.starts_with('@') {
        return Check::warning(
            name,
            format!(
                "core_pattern is `{pattern}`: each crash in a sandbox is sent to the host's dump handler"
            ),
            "have dumps handled by a pipe: `sysctl -w 'kernel.core_pattern=|/path/to/handler %P'`",
        );
    }
    Check::ok(name, "crashes in sandboxes start no handler and leave no file")
}

/// What the kernel says of the processor's known flaws, by name.
fn vulnerabilities() -> Vec<(String, String)> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let state = std::fs::read_to_string(entry.path()).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), state.trim().to_owned()))
        })
        .collect();
    found.sort();
    found
}

/// Sandboxes share the processor. A flaw that the kernel leaves open can let one read another's memory, and no wall of the
/// jail stands before that.
fn processor(vulnerabilities: &[(String, String)]) -> Check {
    let name = "processor";
    let open: Vec<_> = vulnerabilities
        .iter()
        .filter(|(_, state)| state.starts_with("Vulnerable"))
        .map(|(flaw, _)| flaw.as_str())
        .collect();
    if open.is_empty() {
        return Check::ok(name, "the kernel knows of no flaw that it leaves open");
    }
    Check::warning(
        name,
        format!("the kernel leaves known flaws open: {}", open.join(", ")),
        "boot without `mitigations=off`, with the processor's newest microcode; in a VM, the host decides",
    )
}

fn runtime(config: &Config, data_dir: &Path) -> Vec<Check> {
    let runtime = match config.profile(None).map(|profile| Runtime::find(&profile.runtime, data_dir)) {
        Ok(Ok(runtime)) => runtime,
        Ok(Err(error)) => return vec![Check::missing("runtime", error.to_string(), "`redoma setup`")],
        Err(error) => return vec![Check::missing("runtime", error.to_string(), "mend redoma.toml")],
    };
    let mut checks = vec![Check::ok("runtime", runtime.folder().display().to_string())];
    for language in Languages::built_in().all() {
        let name = format!("language {}", language.id);
        checks.push(match (runtime.program(language), runtime.manifest()) {
            (Ok(program), Some(manifest)) => {
                let version = match language.id {
                    "py" => Some(manifest.python_version.as_str()),
                    "js" | "ts" => manifest.node_version.as_deref(),
                    _ => None,
                };
                Check::ok(&name, format!("{program} {}", version.unwrap_or_default()).trim().to_owned())
            }
            (Ok(program), None) => Check::ok(&name, program),
            (Err(_), _) => Check::warning(
                &name,
                "not there",
                format!("`apt-get install {}`, then `redoma setup`", language.missing),
            ),
        });
    }
    checks
}

/// The proof: a real run.
fn whole_sandbox(host: &Host, config: &Config, waived: &[Layer], data_dir: &Path) -> Check {
    let name = "a whole sandbox";
    let languages = Languages::built_in();
    let run = || -> anyhow::Result<redoma_model::RunReport> {
        let profile: Profile = config.profile(None)?;
        let runtime = Runtime::find(&profile.runtime, data_dir)?;
        let limits = LimitsPatch { wall: Some(Span::secs(20)), ..LimitsPatch::default() };
        let request = RunRequest {
            language: languages.by_name("bash")?,
            source: Source { code: b"echo ready".to_vec(), name: None },
            arguments: Vec::new(),
            stdin: Stdin::Empty,
            inputs: Vec::new(),
            terms: Terms { limits: profile.limits.with(&limits)?, ..Terms::from(&profile) },
            out: None,
            list_files: false,
            live: false,
            last_value: false,
            tools: None,
        };
        Ok(redoma_engine::run(Place { host, data_dir, is_last: false, waived }, &runtime, request, &mut ())?)
    };
    match run() {
        Ok(report) if report.stdout.text == "ready\n" => {
            let layers = report.isolation.layers.len();
            Check::ok(
                name,
                format!("ran a program behind {layers} layers in {} ms", report.usage.wall_ms.used),
            )
        }
        Ok(report) => Check::missing(
            name,
            format!("the program did not run: {}", report.stderr.text.trim()),
            "run `redoma setup --force`",
        ),
        Err(error) => Check::missing(name, format!("{error:#}"), "see there"),
    }
}

#[expect(clippy::print_stdout, reason = "the report is this command's output")]
fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", harmless_json(&serde_json::to_string_pretty(report)?));
        return Ok(());
    }
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &report.checks {
        let mark = match check.status {
            Status::Ok => "ok     ",
            Status::Warning => "warning",
            Status::Missing => "MISSING",
        };
        println!("{mark}  {:width$}  {}", check.name, harmless_lines(&check.found));
        if let Some(fix) = &check.fix {
            println!("         {:width$}  → {}", "", harmless_lines(fix));
        }
    }
    println!();
    if report.ready {
        println!("Ready: programs run isolated ({} mode).", report.mode);
    } else {
        println!("Not ready: runs are refused until what is MISSING is mended.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_handler_at_a_socket_is_warned_of() {
        assert_eq!(core_dumps("@/run/systemd/coredump").status, Status::Warning);
        assert_eq!(core_dumps("@@/run/systemd/coredump").status, Status::Warning);
        assert_eq!(core_dumps("|/usr/lib/systemd/systemd-coredump %P").status, Status::Ok);
        assert_eq!(core_dumps("core").status, Status::Ok);
    }

    #[test]
    fn flaws_that_the_kernel_leaves_open_are_named() {
        let state = |flaw: &str, state: &str| (flaw.to_owned(), state.to_owned());
        let closed = [state("meltdown", "Not affected"), state("spectre_v2", "Mitigation: Retpolines")];
        assert_eq!(processor(&closed).status, Status::Ok);
        let open = processor(&[state("mds", "Vulnerable: Clear CPU buffers attempted, no microcode")]);
        assert_eq!(open.status, Status::Warning);
        assert!(open.found.ends_with(": mds"), "{}", open.found);
    }
}
