//! The probe: a program that reports what it sees inside, checked fact by fact, in both modes, of sandboxes made on the
//! spot and of those that waited.

use redoma_tests::{Mode, Way, run_json};
use serde_json::Value;

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/probe/probe.py");

/// What the probe saw, and what it could be compared with on the host.
fn probe(mode: Mode, way: Way) -> Value {
    let arguments = way.flags().iter().copied().chain(["--nofile", "512", "--disk", "32MiB", PROBE]);
    let report = run_json(mode, arguments);
    serde_json::from_str(&report.stdout.text)
        .unwrap_or_else(|error| panic!("{error}: {}", report.stderr.text))
}

fn for_each_mode(check: impl Fn(Mode, &Value)) {
    for mode in Mode::available() {
        for way in Way::BOTH {
            check(mode, &probe(mode, way));
        }
    }
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn it_is_uid_1000_without_groups_capabilities_or_ways_to_get_any() {
    for_each_mode(|mode, seen| {
        let status = &seen["status"];
        assert_eq!(words(&status["Uid"]), ["1000"; 4]);
        assert_eq!(words(&status["Gid"]), ["1000"; 4]);
        if mode == Mode::Root {
            assert!(words(&status["Groups"]).is_empty());
        }
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(words(&status[set]), ["0000000000000000"], "{set}");
        }
        assert_eq!(words(&status["NoNewPrivs"]), ["1"]);
        assert_eq!(words(&status["Seccomp"]), ["2"]);
    });
}

#[test]
fn every_namespace_is_its_own() {
    for_each_mode(|_, seen| {
        for kind in ["user", "pid", "ipc", "uts", "net", "mnt", "cgroup", "time"] {
            let outside = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
            let inside = seen["namespaces"][kind].as_str().unwrap();
            assert!(inside.starts_with(kind), "{kind}: {inside}");
            assert_ne!(inside, outside.to_str().unwrap(), "{kind} is shared with the host");
        }
        assert_eq!(seen["hostname"], "redoma");
        assert_eq!(words(&seen["interfaces"]), ["lo"]);
    });
}

#[test]
fn nothing_of_the_hosts_cgroups_shows() {
    for_each_mode(|_, seen| {
        for line in seen["cgroup"].as_str().unwrap().lines() {
            assert!(line.ends_with(":/"), "{line}");
        }
    });
}

#[test]
fn it_has_three_descriptors_and_sees_its_own_processes_only() {
    for_each_mode(|_, seen| {
        assert_eq!(seen["fds"], serde_json::json!([0, 1, 2]));
        assert_ne!(seen["pid"], 1);
        assert_eq!(seen["visible_pids"], serde_json::json!([seen["pid"]]), "init is not to be seen");
        assert_eq!(seen["session_leader"], true);
    });
}

#[test]
fn the_environment_is_the_one_we_wrote() {
    for_each_mode(|_, seen| {
        let environment = seen["environment"].as_object().unwrap();
        let known = [
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "PWD",
            "TMPDIR",
            "LANG",
            "TZ",
            "TERM",
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "PYTHONUNBUFFERED",
            "PYTHONDONTWRITEBYTECODE",
            "MPLBACKEND",
            "MPLCONFIGDIR",
        ];
        for key in environment.keys() {
            assert!(known.contains(&key.as_str()), "{key} came in from outside");
        }
        assert_eq!(environment["HOME"], "/home/sandbox");
    });
}

#[test]
fn the_root_holds_what_it_should_and_only_four_places_are_writable() {
    for_each_mode(|_, seen| {
        let top_level = seen["top_level"].as_object().unwrap();
        for name in ["root", "var", "run", "sys", "boot", "srv", "media", ".redoma"] {
            assert!(!top_level.contains_key(name), "/{name} is there");
        }
        for (path, writable) in seen["writable"].as_object().unwrap() {
            let should = ["/mnt/data", "/tmp", "/home/sandbox", "/dev/shm"].contains(&path.as_str());
            assert_eq!(writable, should, "{path}");
        }
    });
}

#[test]
fn every_mount_is_nosuid_and_the_hosts_are_read_only() {
    for_each_mode(|_, seen| {
        for (path, mount) in seen["mounts"].as_object().unwrap() {
            let options = words(&mount["options"]);
            assert!(options.contains(&"nosuid"), "{path} {options:?}");
            let is_device = mount["type"] == "devtmpfs" || mount["type"] == "devpts";
            assert!(options.contains(&"nodev") || is_device, "{path} {options:?}");
            let writable = ["/mnt/data", "/tmp", "/home/sandbox", "/dev/shm", "/dev/pts", "/proc"];
            assert!(options.contains(&"ro") || writable.contains(&path.as_str()), "{path} {options:?}");
        }
    });
}

#[test]
fn dangerous_calls_are_refused_and_unknown_ones_are_unknown() {
    for_each_mode(|_, seen| {
        for call in ["ptrace", "unshare_user", "mount", "bpf", "keyctl", "io_uring_setup"] {
            assert_eq!(seen["calls"][call], "EPERM", "{call}");
        }
        for call in ["clone3", "openat2", "unknown"] {
            assert_eq!(seen["calls"][call], "ENOSYS", "{call}");
        }
        let sockets = &seen["sockets"];
        assert_eq!((&sockets["unix"], &sockets["inet"]), (&"ok".into(), &"ok".into()));
        for kind in ["netlink", "packet", "raw"] {
            assert_eq!(sockets[kind], "EPERM", "{kind}");
        }
    });
}

#[test]
fn limits_per_process_are_set() {
    for_each_mode(|_, seen| {
        // Not 0: see credentials.rs.
        assert_eq!(seen["rlimits"]["core"], serde_json::json!([1, 1]));
        assert_eq!(seen["rlimits"]["nofile"], serde_json::json!([512, 512]));
        assert_eq!(seen["rlimits"]["fsize"], serde_json::json!([32 << 20, 32 << 20]));
        assert_eq!(seen["umask"], 0o022);
    });
}
