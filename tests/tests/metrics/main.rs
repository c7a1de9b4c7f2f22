//! `/metrics` as Prometheus sees it, and what is built on it: the page, who may read it, whether it tells what happened, and
//! whether documentation, alerts and dashboard speak of what is there.
//!
//! | file | subject |
//! |---|---|
//! | `main.rs` | what is promised |
//! | `page.rs` | reading a page strictly |

mod page;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use page::{Format, Page};
use redoma_tests::http::Answer;
use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::{Mode, host};
use serde_json::{Value, json};

const EXECUTIONS: &str = "redoma_sandbox_executions_total";
const VIOLATIONS: &str = "redoma_sandbox_security_violations_total";

/// A server with nothing loaded ahead and little memory for programs.
fn start(config: &str) -> (Home, Server) {
    let home = Home::new(Mode::available()[0]);
    let profile =
        "[profiles.default]\npreload = []\n[profiles.default.limits]\nmemory = \"192MiB\"\npids = 32\n";
    home.configure(&format!("{config}\n{profile}"));
    let server = home.serve();
    server.wait_until_ready();
    (home, server)
}

fn scrape(server: &Server) -> Page {
    let answer = server.get("/metrics").key(ADMIN).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    Page::read(&answer.text(), Format::Prometheus)
}

fn run(server: &Server, body: &Value) -> Value {
    let answer = server.post("/api/v1/executions").key(ADMIN).json(body).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn cell(server: &Server, session: &str, code: &str) -> Value {
    let path = format!("/api/v1/sessions/{session}/executions");
    let answer = server.post(&path).key(ADMIN).json(&json!({ "language": "py", "code": code })).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn executions(page: &Page, language: &str, outcome: &str) -> f64 {
    let (isolation, profile) = (("isolation", "native"), ("profile", "default"));
    page.get(EXECUTIONS, &[isolation, profile, ("language", language), ("outcome", outcome)])
}

fn violations(page: &Page, kind: &str) -> f64 {
    page.get(VIOLATIONS, &[("kind", kind)])
}

#[track_caller]
fn assert_is(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn what_happened_is_what_is_counted() {
    let (_home, server) = start("");
    let before = scrape(&server);
    for name in
        [EXECUTIONS, VIOLATIONS, "redoma_sandbox_cpu_seconds_total", "redoma_execution_failures_total"]
    {
        assert_is(before.sum(name), 0.0);
    }
    let spin = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass";
    run(&server, &json!({ "language": "py", "code": spin }));
    run(&server, &json!({ "language": "bash", "code": "exit 3" }));
    run(&server, &json!({ "language": "js", "code": "process.kill(process.pid, 'SIGKILL')" }));
    let slept = json!({ "language": "py", "code": "import time; time.sleep(9)", "timeout_ms": 300 });
    assert_eq!(run(&server, &slept)["limit"], "wall");
    let hungry = run(&server, &json!({ "language": "py", "code": "x = b'x' * (400 << 20)" }));
    assert_eq!(hungry["limits_hit"], json!(["memory"]), "{hungry}");
    let threads = "import subprocess\nfor _ in range(64): subprocess.Popen(['sleep', '1'])";
    assert_eq!(run(&server, &json!({ "language": "py", "code": threads }))["limits_hit"], json!(["pids"]));
    let links = "import os\nfor n in range(5): os.symlink('/etc/passwd', f'x{n}')";
    run(&server, &json!({ "language": "py", "code": links }));
    let session = server.session(ADMIN);
    cell(&server, &session, "x = 1");
    cell(&server, &session, "x / 0");

    let after = scrape(&server);
    for (language, outcome, count) in [
        ("py", "ok", 3.0), // One that spun, one that left links, one cell.
        ("bash", "error", 1.0),
        ("js", "signaled", 1.0),
        ("py", "timeout", 1.0),
        ("py", "memory", 1.0),
        ("py", "error", 2.0), // One without more processes, one cell.
    ] {
        assert_is(executions(&after, language, outcome), count);
    }
    assert_is(after.sum(EXECUTIONS), 9.0);
    assert_is(after.sum("redoma_sandbox_timeouts_total"), 1.0);
    for (kind, count) in
        [("memory_limit", 1.0), ("pids_limit", 1.0), ("link", 1.0), ("device", 0.0), ("sigsys", 0.0)]
    {
        assert_is(violations(&after, kind), count);
    }
    assert_is(after.get("redoma_sandbox_limits_hit_total", &[("limit", "wall")]), 1.0);
    let cpu = after.sum("redoma_sandbox_cpu_seconds_total");
    assert!((0.2..5.0).contains(&cpu), "{cpu}");
    let memory = after.sum("redoma_sandbox_memory_bytes_max");
    assert!((100e6..=201_326_592.0).contains(&memory), "{memory}");
    let full = after.get("redoma_sandbox_memory_used_ratio_bucket", &[("le", "0.9")]);
    assert_is(after.sum("redoma_sandbox_memory_used_ratio_count") - full, 1.0);
    for (phase, count) in [("queue", 9.0), ("assign", 8.0), ("run", 9.0), ("harvest", 9.0)] {
        assert_is(after.get("redoma_execution_phase_seconds_count", &[("phase", phase)]), count);
    }
    let ran = after.get("redoma_execution_phase_seconds_sum", &[("phase", "run")]);
    assert!((0.5..20.0).contains(&ran), "{ran}");
    assert_is(after.get("redoma_kernels", &[("state", "idle")]), 1.0);
    assert_is(after.sum("redoma_sessions"), 8.0);
    let taken = after.sum("redoma_pool_taken_total") + after.sum("redoma_pool_misses_total");
    assert!(taken >= 8.0, "{taken}");
    let route = [("route", "/api/v1/executions"), ("method", "POST"), ("status", "2xx")];
    assert_is(after.get("redoma_http_requests_total", &route), 7.0);
}

#[test]
fn a_frame_in_anothers_name_is_counted() {
    let (_home, server) = start("");
    let session = server.session(ADMIN);
    cell(&server, &session, "x = 1");
    assert_is(violations(&scrape(&server), "refused_frame"), 0.0);
    let forged = "import gc, os\nkernel = next(t for t in gc.get_objects() if type(t).__name__ == 'Session' and hasattr(t, 'frames'))\n\
                  os.write(1, kernel.frames.start + b'{\"done\": {\"number\": 999, \"status\": \"ok\"}}\\n')";
    cell(&server, &session, forged);
    assert_is(violations(&scrape(&server), "refused_frame"), 1.0);
}

#[test]
fn every_page_is_well_formed_and_nothing_counted_goes_down() {
    let (_home, server) = start("");
    let mut last = scrape(&server);
    for _ in 0..3 {
        run(&server, &json!({ "language": "py", "code": "print(1)" }));
        assert_eq!(server.get("/no/such/page").key(ADMIN).send().status, 404);
        let page = scrape(&server);
        for (series, value) in last.monotone() {
            let now = page.series.get(series).unwrap_or_else(|| panic!("{series:?} is gone"));
            assert!(*now >= value, "{series:?} went from {value} to {now}");
        }
        assert_eq!(page.kinds, last.kinds, "the same metrics from the first page on");
        last = page;
    }
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let answer = server.get("/metrics").key(ADMIN).header("accept", accept).send();
    let kind = answer.header("content-type").unwrap();
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let page = Page::read(&answer.text(), Format::OpenMetrics);
    let names: BTreeSet<_> = page.series.keys().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, last.series.keys().map(|(name, _)| name.clone()).collect());
}

#[test]
fn metrics_are_not_for_everybody() {
    let token = "a-token-for-metrics-only";
    let (_home, server) = start(&format!("[server]\nmetrics_token = \"{token}\""));
    let bearer = |path: &str, token: &str| -> Answer {
        server.get(path).header("authorization", &format!("Bearer {token}")).send()
    };
    assert_eq!(server.get("/metrics").send().status, 401, "being on this host is no reason");
    assert_eq!(server.get("/metrics").header("x-forwarded-for", "127.0.0.1").send().status, 401);
    assert_eq!(bearer("/metrics", "another-token-for-metrics").status, 401);
    for role in ["client", "user"] {
        let key = server.key(role, "somebody");
        assert_eq!(server.get("/metrics").key(&key).send().status, 403, "{role}");
    }
    assert_eq!(server.get("/metrics").key(ADMIN).send().status, 200);
    assert_eq!(bearer("/metrics", token).status, 200);
    assert_eq!(bearer("/api/v1/sessions", token).status, 401, "it opens nothing else");
    assert_eq!(server.post("/metrics").key(ADMIN).send().status, 405);

    let (_home, open) = start("[server]\nmetrics = \"open\"");
    assert_eq!(open.get("/metrics").send().status, 200);
    assert_eq!(open.get("/api/v1/sessions").send().status, 401);
    let (_home, off) = start("[server]\nmetrics = \"off\"");
    assert_eq!(off.get("/metrics").key(ADMIN).send().status, 404);
}

#[test]
fn nobody_is_named_and_nobody_can_make_up_labels() {
    let (_home, server) = start("");
    let key = server.key("client", "the-client-of-this-test");
    let before = scrape(&server);
    for number in 0..300 {
        let path = format!("/made/up/{number}");
        server.request(&format!("MADE{number}"), &path).key(&key).send();
    }
    let session = server.session(ADMIN);
    let body = json!({ "lang": "py", "code": "print(1)", "user_id": "the-user-of-this-test" });
    assert_eq!(server.exec(&key, &body).status, 200);
    let body = json!({ "language": "no-such-language", "code": "" });
    assert_eq!(server.post("/api/v1/executions").key(ADMIN).json(&body).send().status, 400);
    server.get(&format!("/api/v1/sessions/{session}")).key(ADMIN).send();
    let answer = server.get("/metrics").key(ADMIN).send().text();
    for word in ["of-this-test", &session, "made", "MADE", "no-such-language", "127.0.0.1"] {
        assert!(!answer.contains(word), "{word}");
    }
    let after = Page::read(&answer, Format::Prometheus);
    let other = [("route", "other"), ("method", "other"), ("status", "4xx")];
    assert_is(after.get("redoma_http_requests_total", &other), 300.0);
    let more = after.series.len() - before.series.len();
    assert!(more < 150, "{more} series more");
}

/// The forbidden call is one that a filter answers with death: of the x32 kind, whose numbers alias others.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn the_kernel_tells_of_a_process_that_its_filter_killed() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("skipped: the call is one of x86-64");
        return;
    }
    let (_home, server) = start("");
    let call = "import ctypes; ctypes.CDLL(None).syscall(0x40000027)";
    let died = run(&server, &json!({ "language": "py", "code": call }));
    assert_eq!(died["signal"], "SIGSYS", "{died}");
    assert_is(violations(&scrape(&server), "sigsys"), 1.0);
    // The program itself ends well; only the kernel sees what became of its children.
    let children =
        format!("import subprocess\nfor _ in range(3): subprocess.run(['python3', '-c', '{call}'])");
    assert_eq!(run(&server, &json!({ "language": "py", "code": children }))["exit_code"], 0);
    // One that is refused with an error number is told to nobody: see docs/metrics.md.
    let refused = "import ctypes; assert ctypes.CDLL(None).syscall(163, 0) == -1";
    assert_eq!(run(&server, &json!({ "language": "py", "code": refused }))["exit_code"], 0);
    let page = scrape(&server);
    assert_is(violations(&page, "sigsys"), 1.0);
    if page.get("redoma_violations_source", &[("source", "audit")]) < 1.0 {
        eprintln!("skipped: the kernel's audit log can't be heard here (CAP_AUDIT_READ)");
        return;
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while violations(&scrape(&server), "seccomp") < 4.0 {
        let page = scrape(&server);
        assert!(Instant::now() < deadline, "{} of 4 were told", violations(&page, "seccomp"));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_is(violations(&scrape(&server), "seccomp"), 4.0);
}

#[test]
fn what_happens_on_another_server_of_this_host_is_not_counted_here() {
    let ((_home, server), (_other_home, other)) = (start(""), start(""));
    let call = "import ctypes; ctypes.CDLL(None).syscall(0x40000027)";
    run(&other, &json!({ "language": "py", "code": call }));
    std::thread::sleep(Duration::from_millis(300));
    assert_is(violations(&scrape(&other), "sigsys"), 1.0);
    assert_is(scrape(&server).sum(VIOLATIONS), 0.0);
}

/// The server's zygotes: interpreters in the nursery's own PID namespace, one below the host's; their copies are in others.
fn zygotes(server: &Server) -> Vec<i32> {
    let inside = host::processes_in_groups_of(server.pid());
    let pids = inside.iter().filter_map(|process| process.split(':').next()?.parse().ok());
    let is_zygote = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("zygote.py") && numbers.split_whitespace().count() == 2
    };
    pids.filter(is_zygote).collect()
}

#[test]
fn a_zygote_that_dies_is_counted() {
    let (_home, server) = start("");
    let died = |server: &Server| scrape(server).get("redoma_zygote_restarts_total", &[("reason", "died")]);
    assert_is(died(&server), 0.0);
    let victims = zygotes(&server);
    assert!(!victims.is_empty(), "there are none");
    for victim in &victims {
        let pid = rustix::process::Pid::from_raw(*victim).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while died(&server) < 1.0 || zygotes(&server).is_empty() {
        assert!(Instant::now() < deadline, "{victims:?} are dead and not counted");
        std::thread::sleep(Duration::from_millis(50));
    }
    let count = u32::try_from(victims.len()).unwrap();
    assert_is(died(&server), f64::from(count));
    assert_is(scrape(&server).get("redoma_zygote_restarts_total", &[("reason", "worn")]), 0.0);
    run(&server, &json!({ "language": "py", "code": "print(1)" }));
}

fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Words in a text that look like the name of a metric.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_metric = |word: &&str| word.starts_with("redoma_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

#[test]
fn documentation_lists_exactly_what_is_there_and_alerts_and_dashboard_use_nothing_else() {
    let (_home, server) = start("");
    let page = scrape(&server);
    let there: BTreeSet<String> = page.kinds.keys().cloned().collect();

    let documentation = std::fs::read_to_string(in_repository("docs/metrics.md")).unwrap();
    let rows = documentation.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: Vec<_> =
        rows.map(|(name, _)| name.to_owned()).filter(|name| names(name).len() == 1).collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), there);
    assert_eq!(listed.len(), there.len(), "each once");

    let is_there = |name: &str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        there.contains(name)
            || base.is_some_and(|base| page.kinds.get(base).is_some_and(|kind| kind == "histogram"))
    };
    let alerts = std::fs::read_to_string(in_repository("deploy/prometheus/alerts.yml")).unwrap();
    let in_alerts = names(&alerts);
    assert!(in_alerts.len() > 10, "{in_alerts:?}");
    let dashboard = std::fs::read_to_string(in_repository("deploy/grafana/redoma.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut in_dashboard = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            assert!(!names(expression).is_empty(), "{expression}");
            in_dashboard.extend(names(expression));
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{expression}");
        }
    }
    for name in in_alerts.iter().chain(&in_dashboard) {
        assert!(is_there(name), "{name} is on no page");
    }
    // And what is there is shown.
    let base = |name: &String| {
        let suffixes = ["_bucket", "_sum", "_count"];
        suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name).to_owned()
    };
    let shown: BTreeSet<String> = in_dashboard.iter().flat_map(|name| [name.clone(), base(name)]).collect();
    let hidden: Vec<_> =
        there.iter().filter(|name| name.starts_with("redoma_") && !shown.contains(*name)).collect();
    assert!(hidden.is_empty(), "on no panel: {hidden:?}");
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn alerts_come_when_they_should_and_only_then() {
    let promtool = |arguments: &[&str]| {
        let mut command = std::process::Command::new("promtool");
        command.args(arguments).current_dir(in_repository("deploy/prometheus")).output()
    };
    if promtool(&["--version"]).is_err() {
        eprintln!("skipped: promtool is not installed (Debian: prometheus)");
        return;
    }
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts-test.yml"]] {
        let output = promtool(&arguments).unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
    }
}

/// Generous, since others run too; it prints what it measured.
#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn a_scrape_is_cheap() {
    let (_home, server) = start("");
    for _ in 0..20 {
        run(&server, &json!({ "language": "py", "code": "print(1)" }));
    }
    let mut times: Vec<Duration> = (0..100)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(server.get("/metrics").key(ADMIN).send().status, 200);
            start.elapsed()
        })
        .collect();
    times.sort();
    let answer = server.get("/metrics").key(ADMIN).send();
    let inside = Page::read(&answer.text(), Format::Prometheus).sum("redoma_scrape_seconds");
    let (median, bytes) = (times[50], answer.body.len());
    eprintln!("a scrape: {median:?} of {bytes} bytes, the page itself {:.2} ms", inside * 1e3);
    assert!(median < Duration::from_millis(250), "{median:?}");
}
