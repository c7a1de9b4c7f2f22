//! An engine that lives longer than a run, driven over its pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::{Mode, redoma};

/// `redoma bench --stdio`. Dropping it ends it.
#[derive(Debug)]
pub struct Engine {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    next: u64,
}

impl Engine {
    pub fn start(mode: Mode) -> Self {
        Self::start_with(mode, |command| command)
    }

    /// With further arguments or variables.
    pub fn start_with(mode: Mode, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = redoma(mode, ["bench", "--stdio"]);
        change(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("redoma starts");
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut engine = Self { child, requests, answers, next: 0 };
        assert_eq!(engine.answer()["ready"], true);
        engine
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request, without waiting for the answer; its number.
    pub fn send(&mut self, mut request: Value) -> u64 {
        self.next += 1;
        request["id"] = self.next.into();
        let requests = self.requests.as_mut().expect("it has not been ended");
        writeln!(requests, "{request}").expect("it takes requests");
        self.next
    }

    /// The next answer, whichever it is.
    pub fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub fn ask(&mut self, request: Value) -> Value {
        let id = self.send(request);
        let answer = self.answer();
        assert_eq!(answer["id"], id);
        answer
    }

    pub fn run(&mut self, language: &str, code: &str) -> Value {
        self.run_with(language, code, &json!({}))
    }

    pub fn run_with(&mut self, language: &str, code: &str, more: &Value) -> Value {
        let mut request = json!({ "op": "run", "lang": language, "code": code });
        for (key, value) in more.as_object().into_iter().flatten() {
            request[key] = value.clone();
        }
        self.ask(request)
    }

    /// What a program that must succeed prints.
    pub fn output(&mut self, language: &str, code: &str) -> String {
        let answer = self.run(language, code);
        assert_eq!(answer["exit_code"], 0, "{answer}");
        answer["stdout"].as_str().unwrap_or_default().to_owned()
    }

    /// `(hits, misses)` of a pool.
    pub fn pool(&mut self, name: &str) -> (u64, u64) {
        let stats = self.ask(json!({ "op": "stats" }));
        let pools = stats["pools"].as_array().cloned().unwrap_or_default();
        let pool = pools.into_iter().find(|pool| pool["name"] == name).expect("there is such a pool");
        (pool["hits"].as_u64().unwrap_or_default(), pool["misses"].as_u64().unwrap_or_default())
    }

    /// Everything below the engine's process.
    pub fn processes(&mut self) -> Vec<u32> {
        let stats = self.ask(json!({ "op": "stats" }));
        let pids = stats["pids"].as_array().cloned().unwrap_or_default();
        pids.iter().filter_map(Value::as_u64).filter_map(|pid| u32::try_from(pid).ok()).collect()
    }

    /// SIGKILL, as an unlucky operator would.
    pub fn kill(mut self) -> u32 {
        let pid = self.pid();
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
        pid
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.child.wait();
    }
}
