//! A live session, its cells and their answers.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{ADMIN, Server};
use serde_json::{Value, json};

/// A session of somebody's.
pub struct Session<'a> {
    pub server: &'a Server,
    pub key: String,
    pub id: String,
}

impl<'a> Session<'a> {
    pub fn new(server: &'a Server) -> Self {
        Self::of(server, ADMIN)
    }

    pub fn of(server: &'a Server, key: &str) -> Self {
        Self { server, key: key.to_owned(), id: server.session(key) }
    }

    #[track_caller]
    pub fn with_profile(server: &'a Server, profile: &str) -> Self {
        let body = json!({ "profile": profile });
        let answer = server.post("/api/v1/sessions").key(ADMIN).json(&body).send();
        assert_eq!(answer.status, 201, "{}", answer.text());
        Self { server, key: ADMIN.to_owned(), id: answer.json()["id"].as_str().unwrap().to_owned() }
    }

    pub fn path(&self, below: &str) -> String {
        format!("/api/v1/sessions/{}{below}", self.id)
    }

    pub fn post(&self, below: &str, body: &Value) -> Answer {
        self.server.post(&self.path(below)).key(&self.key).json(body).send()
    }

    pub fn request(&self, body: &Value) -> Request {
        self.server.post(&self.path("/executions")).key(&self.key).json(body)
    }

    /// A cell of Python.
    #[track_caller]
    pub fn cell(&self, code: &str) -> Done {
        self.cell_in("py", code)
    }

    #[track_caller]
    pub fn cell_in(&self, language: &str, code: &str) -> Done {
        self.run(&json!({ "language": language, "code": code }))
    }

    /// One that is ended after so many milliseconds.
    #[track_caller]
    pub fn cell_within(&self, language: &str, code: &str, timeout_ms: u64) -> Done {
        self.run(&json!({ "language": language, "code": code, "timeout_ms": timeout_ms }))
    }

    #[track_caller]
    pub fn run(&self, body: &Value) -> Done {
        let start = Instant::now();
        let answer = self.request(body).send();
        assert_eq!(answer.status, 200, "{}: {}", body["code"], answer.text());
        Done { answer: answer.json(), took: start.elapsed() }
    }

    /// What a cell of Python that must succeed prints.
    #[track_caller]
    pub fn printed(&self, code: &str) -> String {
        self.printed_in("py", code)
    }

    #[track_caller]
    pub fn printed_in(&self, language: &str, code: &str) -> String {
        let done = self.cell_in(language, code);
        assert_eq!(done.answer["exit_code"], 0, "{code}: {done}");
        done.stdout().trim_end().to_owned()
    }

    /// Starts a cell whose events come one by one.
    pub fn stream(&self, body: &Value) -> Events {
        Events::of(&self.request(body).header("Accept", "text/event-stream"))
    }

    pub fn kernel(&self) -> Value {
        self.server.get(&self.path("/kernel")).key(&self.key).send().json()
    }

    pub fn upload(&self, name: &str, content: &[u8]) -> Value {
        let answer =
            self.server.post(&self.path("/files")).key(&self.key).form(&[], &[(name, content)]).send();
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["files"][0].clone()
    }

    /// All versions of all files, or the newest of each.
    pub fn files(&self, query: &str) -> Vec<Value> {
        let answer = self.server.get(&self.path(&format!("/files{query}"))).key(&self.key).send();
        answer.json()["files"].as_array().unwrap().clone()
    }

    pub fn content(&self, file: &Value) -> Answer {
        let id = file["id"].as_str().unwrap();
        self.server.get(&self.path(&format!("/files/{id}/content"))).key(&self.key).send()
    }

    /// What the newest file of this name has in it.
    #[track_caller]
    pub fn content_of(&self, name: &str) -> String {
        let files = self.files("");
        let file = files.iter().find(|file| file["name"] == name);
        self.content(file.unwrap_or_else(|| panic!("no {name} in {files:?}"))).text()
    }

    pub fn remove_file(&self, file: &Value) {
        let path = self.path(&format!("/files/{}", file["id"].as_str().unwrap()));
        assert_eq!(self.server.request("DELETE", &path).key(&self.key).send().status, 204);
    }

    pub fn remove(&self) -> u16 {
        self.server.request("DELETE", &self.path("")).key(&self.key).send().status
    }

    pub fn cancel(&self, execution: &str) -> u16 {
        self.server.post(&format!("/api/v1/executions/{execution}/cancel")).key(&self.key).send().status
    }

    #[track_caller]
    pub fn undo(&self, cells: u64) -> Value {
        let answer = self.post("/undo", &json!({ "cells": cells }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

/// What came of a cell.
#[derive(Debug)]
pub struct Done {
    pub answer: Value,
    /// As its client saw it.
    pub took: Duration,
}

/// In short: what matters of the answer.
impl std::fmt::Display for Done {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |value: &Value| value.to_string().chars().take(1200).collect::<String>();
        for key in ["ending", "exit_code", "signal", "limit", "limits_hit"] {
            if !self.answer[key].is_null() {
                write!(formatter, "{key} {} ", self.answer[key])?;
            }
        }
        let [cell, stdout, stderr] = ["cell", "stdout", "stderr"].map(|key| short(&self.answer[key]));
        write!(formatter, "{cell} stdout {stdout} stderr {stderr}")
    }
}

impl Done {
    pub fn stdout(&self) -> &str {
        self.answer["stdout"]["text"].as_str().unwrap_or_default()
    }

    pub fn stderr(&self) -> &str {
        self.answer["stderr"]["text"].as_str().unwrap_or_default()
    }

    pub fn is(&self, word: &str) -> bool {
        self.answer["cell"][word].as_bool().unwrap_or_else(|| panic!("no {word} in {self}"))
    }

    /// Its process goes on.
    pub fn went_on(&self) -> bool {
        !self.is("restored") && !self.is("lost")
    }

    pub fn notes(&self) -> String {
        let notes = self.answer["cell"]["notes"].as_array();
        let notes = notes.unwrap_or_else(|| panic!("no notes in {self}"));
        notes.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
    }

    /// The name and text of the last error that it showed.
    pub fn error(&self) -> (String, String) {
        let outputs = self.answer["cell"]["outputs"].as_array().cloned().unwrap_or_default();
        let error =
            outputs.iter().rev().find(|output| output["type"] == "error").cloned().unwrap_or_default();
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        (text("name"), text("value"))
    }
}

/// The events of a cell, as they come. Dropping them is what a client does that leaves.
pub struct Events {
    reader: BufReader<TcpStream>,
    name: String,
}

impl Events {
    pub fn of(request: &Request) -> Self {
        let mut stream = TcpStream::connect(request.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.write_all(&request.bytes()).unwrap();
        Self { reader: BufReader::new(stream), name: String::new() }
    }

    /// The id of the execution, which is the first thing that is told.
    #[track_caller]
    pub fn id(&mut self) -> String {
        let (name, data) = self.next().expect("an event");
        assert_eq!(name, "started", "{data}");
        data["id"].as_str().unwrap().to_owned()
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let mut printed = String::new();
        while !printed.contains(text) {
            let (name, data) = self.next().unwrap_or_else(|| panic!("no {text} in {printed}"));
            assert_ne!(name, "result", "it ended before it said {text}: {data}");
            printed.push_str(data["text"].as_str().unwrap_or_default());
        }
    }

    /// Reads to the end.
    #[track_caller]
    pub fn result(&mut self) -> Done {
        let start = Instant::now();
        loop {
            let (name, data) = self.next().expect("a result");
            assert_ne!(name, "error", "{data}");
            if name == "result" {
                return Done { answer: data, took: start.elapsed() };
            }
        }
    }
}

impl Iterator for Events {
    type Item = (String, Value);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                event.trim_end().clone_into(&mut self.name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((self.name.clone(), serde_json::from_str(data).unwrap()));
            }
        }
    }
}
