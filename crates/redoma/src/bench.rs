//! `redoma bench`: how fast it is on this machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use redoma_engine::backend::{PoolStatus, Status};
use redoma_engine::base64::base64;
use redoma_engine::{
    AnswerError, Answers, Assigned, Backend, Cancel, Concurrency, Engine, FolderOutlet, Input, Kernel,
    KernelRequest, Languages, Native, Observer, Outlet, Pressure, RunError, RunRequest, Runtime, Sharing,
    Source, Stdin, Stream, Terms, ToolAnswer, ToolCall, ToolFunction, Tools,
};
use redoma_model::{LimitsPatch, Profile};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{BenchArguments, Global};
use crate::config::{Config, data_dir};
use crate::engine;
use crate::terminal::Progress;

pub fn bench(global: &Global, arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let data_dir = data_dir(global)?;
    let config = Config::load(global, &data_dir)?;
    let profile = config.profile(None)?;
    let supply = engine::supply(config.engine())?;
    let concurrency = Concurrency { sharing: Sharing::FirstCome, ..engine::concurrency(config.engine())? };
    let native = Arc::new(engine::native(&config, &data_dir, &profile, supply, &[])?);
    let engine = Engine::new(Box::new(Handle(Arc::clone(&native))), concurrency);
    let progress = Progress::start("starting interpreters and filling pools");
    engine.prepare()?;
    progress.finish();
    let bench = Bench {
        engine,
        native,
        languages: Languages::built_in(),
        profile,
        data_dir,
        answers: Mutex::default(),
    };
    if arguments.stdio {
        bench.serve()?;
    } else {
        bench.show(arguments.rounds.max(1))?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Bench {
    engine: Engine,
    native: Arc<Native>,
    languages: Languages,
    profile: Profile,
    data_dir: PathBuf,
    /// Where the calls of running programs are answered.
    answers: Mutex<BTreeMap<u64, Answers>>,
}

/// The backend, for the engine and for whoever looks at it from the side.
#[derive(Debug)]
struct Handle(Arc<Native>);

impl Backend for Handle {
    fn prepare(&self) -> Result<(), RunError> {
        self.0.prepare()
    }
    fn assign<'a, 'r: 'a>(&'a self, request: RunRequest<'r>) -> Result<Box<dyn Assigned + 'a>, RunError> {
        self.0.assign(request)
    }
    fn start_kernel(&self, request: &KernelRequest<'_>) -> Result<Box<dyn Kernel>, RunError> {
        self.0.start_kernel(request)
    }

    fn status(&self) -> Status {
        self.0.status()
    }

    fn pressure(&self) -> Option<&Arc<Pressure>> {
        self.0.pressure()
    }
}

/// A program that people can relate to.
struct Sample {
    title: &'static str,
    language: &'static str,
    code: &'static str,
    /// What to run without isolation: the program, and the argument before the code.
    bare: [&'static str; 2],
}

const SAMPLES: [Sample; 4] = [
    Sample {
        title: "Python: print(1)",
        language: "py",
        code: "print(1)",
        bare: ["/opt/python/bin/python3", "-c"],
    },
    Sample {
        title: "Python: table, groupby, plot",
        language: "py",
        code: "\
import pandas as pd, matplotlib.pyplot as plt
frame = pd.DataFrame({'group': ['a', 'b', 'c', 'd'] * 250, 'value': range(1000)})
sums = frame.groupby('group')['value'].sum()
sums.plot.bar()
plt.savefig('plot.png')
print(len(sums))",
        bare: ["/opt/python/bin/python3", "-c"],
    },
    Sample {
        title: "Node: console.log(1)",
        language: "js",
        code: "console.log(1)",
        bare: ["/usr/bin/node", "-e"],
    },
    Sample { title: "bash: echo 1", language: "bash", code: "echo 1", bare: ["/usr/bin/bash", "-c"] },
];

impl Bench {
    fn request(&self, language: &str, code: &str) -> anyhow::Result<RunRequest<'_>> {
        Ok(RunRequest {
            language: self.languages.by_name(language)?,
            source: Source { code: code.as_bytes().to_vec(), name: None },
            arguments: Vec::new(),
            stdin: Stdin::Empty,
            inputs: Vec::new(),
            terms: Terms::from(&self.profile),
            out: None,
            list_files: true,
            live: false,
            last_value: false,
            tools: None,
        })
    }

    /// A table for a person.
    fn show(&self, rounds: usize) -> anyhow::Result<()> {
        let runtime = Runtime::find(&self.profile.runtime, &self.data_dir)?;
        let scratch = std::env::temp_dir().join(format!("redoma-bench-{}", std::process::id()));
        std::fs::create_dir_all(&scratch)?;
        let mut rows = Vec::new();
        let progress = Progress::start("measuring");
        for sample in &SAMPLES {
            let (mut bare, mut isolated) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                progress.update(&format!("{} ({}/{rounds})", sample.title, round + 1));
                bare.extend(run_bare(sample, &runtime, &scratch)?);
                let start = Instant::now();
                let request = self.request(sample.language, sample.code)?;
                let report = self.engine.execute(request, &mut (), &Cancel::new()?)?;
                isolated.push(start.elapsed());
                if report.exit_code != Some(0) {
                    anyhow::bail!("{} failed: {}", sample.title, report.stderr.text.trim());
                }
            }
            rows.push((sample.title, bare, isolated));
        }
        progress.finish();
        std::fs::remove_dir_all(&scratch)?;
        let mut text = format!(
            "{:<30} {:>12} {:>12} {:>12} {:>8}\n",
            "fresh sandbox for each run", "bare p50", "redoma p50", "redoma p99", "ratio"
        );
        for (title, mut bare, mut isolated) in rows {
            let (slow, fast) = (percentile(&mut bare, 50), percentile(&mut isolated, 50));
            let worst = percentile(&mut isolated, 99);
            let ratio = slow.map_or_else(
                || "-".to_owned(),
                |slow| format!("{:.2}", millis(fast.unwrap_or_default()) / millis(slow)),
            );
            let (slow, fast, worst) = (shown(slow), shown(fast), shown(worst));
            let _ = writeln!(text, "{title:<30} {slow:>12} {fast:>12} {worst:>12} {ratio:>8}");
        }
        std::io::stdout().lock().write_all(text.as_bytes()).context("can't write the table")
    }

    /// Answers requests until there are no more.
    fn serve(&self) -> anyhow::Result<()> {
        answer(&json!({ "ready": true }));
        let (sender, requests) = std::sync::mpsc::channel::<Ask>();
        let requests = Mutex::new(requests);
        std::thread::scope(|scope| {
            for _ in 0..SERVERS {
                scope.spawn(|| {
                    loop {
                        let next = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(ask) = next else { return };
                        let mut value = self
                            .answer(&ask)
                            .unwrap_or_else(|error| json!({ "ok": false, "error": format!("{error:#}") }));
                        value["id"] = ask.id.into();
                        answer(&value);
                    }
                });
            }
            for line in std::io::stdin().lock().lines() {
                let line = line.context("can't read requests")?;
                match serde_json::from_str::<Ask>(&line) {
                    // Whoever runs waits for it: not behind others.
                    Ok(ask) if ask.op == "answer" => {
                        let mut value = self.answer_call(&ask);
                        value["id"] = ask.id.into();
                        answer(&value);
                    }
                    Ok(ask) => sender.send(ask).context("nobody serves")?,
                    Err(error) => answer(&json!({ "ok": false, "error": error.to_string() })),
                }
            }
            drop(sender);
            Ok(())
        })
    }

    fn answer(&self, ask: &Ask) -> anyhow::Result<Value> {
        match ask.op.as_str() {
            "run" => self.run(ask),
            "fill" => {
                self.native.fill(&ask.pool, ask.count)?;
                Ok(json!({ "ok": true }))
            }
            "stats" => {
                let status = self.engine.status();
                let pools: Vec<_> = status.pools.iter().map(pool_as_json).collect();
                Ok(
                    json!({ "ok": true, "pools": pools, "pids": below(std::process::id()), "left_out": status.left_out }),
                )
            }
            other => anyhow::bail!("there is no op {other}"),
        }
    }

    /// Passes an answer on to the program that called for it.
    fn answer_call(&self, ask: &Ask) -> Value {
        let answers = lock(&self.answers).get(&ask.run).cloned();
        let answer = ToolAnswer {
            call_id: ask.call_id.clone(),
            result: ask.error.clone().map_or_else(|| Ok(ask.result.to_string()), Err),
        };
        match answers.ok_or(AnswerError::Over).and_then(|answers| answers.send(&answer)) {
            Ok(()) => json!({ "ok": true }),
            Err(error) => json!({ "ok": false, "error": error.to_string() }),
        }
    }

    fn run(&self, ask: &Ask) -> anyhow::Result<Value> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("redoma-bench-{}-{number}", std::process::id()));
        let start = Instant::now();
        let mut outlet = ask.out.then(|| FolderOutlet::new(folder.clone()));
        let mut request = self.request(&ask.lang, &ask.code)?;
        request.out = outlet.as_mut().map(|outlet| outlet as &mut dyn Outlet);
        request.source.name.clone_from(&ask.name);
        request.inputs = ask.inputs.iter().cloned().map(Input::new).collect::<Result<_, _>>()?;
        let named = |(name, path): (&String, &PathBuf)| Input { path: path.clone(), name: name.into() };
        request.inputs.extend(ask.named_inputs.iter().map(named));
        request.terms.limits = request.terms.limits.with(&ask.limits)?;
        request.last_value = ask.last_value;
        if !ask.tools.is_empty() {
            let functions = ask
                .tools
                .iter()
                .map(|(function, tool)| ToolFunction { function: function.clone(), tool: tool.clone() });
            let patience = Duration::from_millis(ask.patience_ms.unwrap_or(30_000));
            let (tools, answers) = Tools::new(functions.collect(), patience)?;
            request.tools = Some(tools);
            lock(&self.answers).insert(ask.id, answers);
        }
        let cancel = Cancel::new()?;
        let report = match ask.cancel_after_ms {
            None => self.engine.execute(request, &mut Caller(ask.id), &cancel),
            Some(after) => std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(after));
                    cancel.cancel();
                });
                self.engine.execute(request, &mut Caller(ask.id), &cancel)
            }),
        };
        lock(&self.answers).remove(&ask.id);
        let report = report?;
        let elapsed = start.elapsed();
        let mut files = Vec::new();
        for file in &report.files {
            let data = if ask.out { Some(base64(&std::fs::read(folder.join(&file.name))?)) } else { None };
            files.push(json!({ "name": file.name, "size": file.size, "data": data }));
        }
        if ask.out {
            let _ = std::fs::remove_dir_all(&folder);
        }
        Ok(json!({
            "ok": true, "warm": true, "exit_code": report.exit_code, "stdout": report.stdout.text,
            "stderr": report.stderr.text, "files": files, "engine_ms": millis(elapsed), "ending": report.ending,
            "limit": report.limit, "host_uid": report.isolation.host_uid,
            "deleted_files": report.deleted_files, "value": report.value,
            "tool_wait_exceeded": report.tool_wait_exceeded, "too_many_tool_calls": report.too_many_tool_calls,
            "wall_ms": report.usage.wall_ms.used,
        }))
    }
}

/// Tells the calls of a run's program.
struct Caller(u64);

impl Observer for Caller {
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) {}

    fn tool_call(&mut self, call: ToolCall) {
        let call = json!({ "id": call.id, "tool": call.tool, "input": call.input });
        answer(&json!({ "run": self.0, "call": call }));
    }
}

/// Writes a line, whole, whoever else does.
fn answer(value: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests that are served at the same time; how many of them run is the engine's to say.
const SERVERS: usize = 256;

/// A request of `make bench`.
#[derive(Debug, Deserialize)]
struct Ask {
    id: u64,
    op: String,
    #[serde(default)]
    lang: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    out: bool,
    #[serde(default)]
    inputs: Vec<PathBuf>,
    /// Inputs by their paths below the workspace.
    #[serde(default)]
    named_inputs: BTreeMap<String, PathBuf>,
    /// The script's name.
    name: Option<String>,
    #[serde(default)]
    limits: LimitsPatch,
    /// Ends the run after so many milliseconds, whatever it is doing.
    cancel_after_ms: Option<u64>,
    #[serde(default)]
    last_value: bool,
    /// Functions for the program, and the tools that they are.
    #[serde(default)]
    tools: BTreeMap<String, String>,
    patience_ms: Option<u64>,
    /// Of an answer: the run's request, the call, and what to say.
    #[serde(default)]
    run: u64,
    #[serde(default)]
    call_id: String,
    #[serde(default)]
    result: Value,
    error: Option<String>,
    #[serde(default)]
    pool: String,
    #[serde(default)]
    count: usize,
}

fn pool_as_json(pool: &PoolStatus) -> Value {
    let pids: Vec<Vec<u32>> = pool.pids.iter().map(|init| below(*init)).collect();
    json!({ "name": pool.name, "idle": pool.idle, "wanted": pool.wanted, "hits": pool.hits, "misses": pool.misses, "pids": pids })
}

/// A process and everything below it.
fn below(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    all
}

/// The same without isolation, if this machine has the program.
fn run_bare(sample: &Sample, runtime: &Runtime, folder: &Path) -> anyhow::Result<Option<Duration>> {
    let [program, flag] = sample.bare;
    let path = match program.strip_prefix("/opt/python/") {
        Some(rest) => runtime.folder().join("python").join(rest),
        None => PathBuf::from(program),
    };
    if !path.exists() {
        return Ok(None);
    }
    let start = Instant::now();
    let done = Command::new(&path)
        .args([flag, sample.code])
        .current_dir(folder)
        .env("MPLBACKEND", "Agg")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("can't start {}", path.display()))?;
    let elapsed = start.elapsed();
    if !done.status.success() {
        anyhow::bail!(
            "{} failed without isolation: {}",
            sample.title,
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(Some(elapsed))
}

fn percentile(times: &mut [Duration], percent: usize) -> Option<Duration> {
    times.sort_unstable();
    times.get((times.len().checked_sub(1)? * percent).div_ceil(100)).copied()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn shown(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "not here".to_owned(), |duration| format!("{:.2} ms", millis(duration)))
}
