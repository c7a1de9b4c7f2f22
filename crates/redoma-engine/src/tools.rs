//! Functions that a running program can call and that somebody outside answers.
//!
//! Calls come out as [frames](crate::frames); answers go in on the program's standard input, which it has no other use for
//! then, a line each: `ID STATUS TEXT`. Between the two is a desk that the supervisor and whoever answers share. The
//! supervisor never waits for either side: answers that the program does not read stay in a queue of bounded size, and what
//! answers is told when that is full.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Calls that may be without an answer at the same time. Programs that know of this wait; others are ended.
pub(crate) const MOST_CALLS: usize = 64;
/// What these may take together, as text.
const MOST_CALL_BYTES: usize = 4 << 20;
/// Answers that the program has not read yet.
const MOST_ANSWER_BYTES: usize = 16 << 20;
/// Functions, and the length of a name, so that all of them fit into what a sandbox that waits is told.
const MOST_FUNCTIONS: usize = 256;
const LONGEST_NAME: usize = 64;
/// A tool's own name is told with every call.
const LONGEST_TOOL: usize = 256;

/// A function for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFunction {
    /// Its identifier inside the program.
    pub function: String,
    /// The tool's own name, reported in calls.
    pub tool: String,
}

/// A call that waits for an answer.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// Unique within the run: `call_001`, `call_002`, …
    pub id: String,
    pub tool: String,
    /// A JSON object, as text: its values would take many times as much.
    pub input: Box<RawValue>,
}

/// An answer: a result, or a message that says why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAnswer {
    pub call_id: String,
    /// JSON as text, which takes a thirtieth of what its values would.
    pub result: Result<String, String>,
}

/// What a program may call.
#[derive(Debug)]
pub struct Tools {
    functions: Vec<ToolFunction>,
    patience: Duration,
    desk: Arc<Desk>,
}

/// Where answers are given, from any thread.
#[derive(Debug, Clone)]
pub struct Answers(Arc<Desk>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("no call `{0}` waits for an answer")]
    NoSuchCall(String),
    #[error("the answers that the program has not read take more than 16 MiB; the call `{0}` still waits")]
    TooMuch(String),
    #[error("the program has ended")]
    Over,
}

#[derive(Debug)]
struct Desk {
    state: Mutex<State>,
    /// Rung when there is an answer.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    dialect: Dialect,
    /// By the ids that are told outside.
    unanswered: BTreeMap<String, Unanswered>,
    calls: u64,
    /// Lines for the program.
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    is_over: bool,
}

#[derive(Debug)]
struct Unanswered {
    /// What the program calls it. Two may have the same, if it wants to be confused.
    id_inside: String,
    since: Instant,
    bytes: usize,
}

/// How the text of an answer is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Dialect {
    /// As JSON.
    #[default]
    Json,
    /// The same on one line, in the way that bash's `printf %b` reads back.
    Shell,
}

/// A call as the program says it.
#[derive(Debug, Deserialize)]
pub(crate) struct Said {
    id: String,
    /// The function's identifier.
    tool: String,
    /// An object, or its text, which then may turn out to be none.
    input: Box<RawValue>,
}

/// What is to be done about a call.
#[derive(Debug)]
pub(crate) enum Heard {
    Call(ToolCall),
    /// It needs nobody: it was answered here, or could not be a call.
    Nothing,
    TooMany,
}

/// Answers that are no results.
#[derive(Debug, Clone, Copy)]
enum Status {
    Result = 0,
    Error = 1,
    BadCall = 2,
}

impl Tools {
    /// `patience`: how long the program may wait for one answer in all.
    pub fn new(functions: Vec<ToolFunction>, patience: Duration) -> io::Result<(Self, Answers)> {
        let invalid = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if functions.len() > MOST_FUNCTIONS {
            return invalid(format!("{} tools are too many; {MOST_FUNCTIONS} fit", functions.len()));
        }
        let mut seen = std::collections::BTreeSet::new();
        for ToolFunction { function, tool } in &functions {
            if tool.len() > LONGEST_TOOL {
                return invalid(format!("a tool's name may have at most {LONGEST_TOOL} bytes"));
            }
            if !is_identifier(function) {
                return invalid(format!(
                    "`{function}` can't be a function's name; use letters, digits and _"
                ));
            }
            if !seen.insert(function) {
                return invalid(format!("two tools are named `{function}`"));
            }
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let desk = Arc::new(Desk { state: Mutex::default(), bell });
        Ok((Self { functions, patience, desk: Arc::clone(&desk) }, Answers(desk)))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(|function| function.function.as_str())
    }

    pub(crate) fn speak(&self, dialect: Dialect) {
        self.desk.lock().dialect = dialect;
    }

    /// Rung when there is something to be [passed in](Self::next_line), or a call was answered.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.desk.bell.as_fd()
    }

    pub(crate) fn silence_bell(&self) {
        let _ = rustix::io::read(&self.desk.bell, &mut [0u8; 8]);
    }

    /// When patience ends, if anything is waited for.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let oldest = self.desk.lock().unanswered.values().map(|call| call.since).min();
        oldest.and_then(|since| since.checked_add(self.patience))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.desk.lock().unanswered.is_empty()
    }

    /// The next line for the program.
    pub(crate) fn next_line(&self) -> Option<Vec<u8>> {
        let mut state = self.desk.lock();
        let line = state.queue.pop_front()?;
        state.queued -= line.len();
        Some(line)
    }

    /// Takes down a call.
    pub(crate) fn hear(&self, said: Said) -> Heard {
        let Said { id: id_inside, tool, input } = said;
        let is_sane =
            id_inside.len() <= LONGEST_NAME && id_inside.bytes().all(|byte| byte.is_ascii_graphic());
        let function = self.functions.iter().find(|known| known.function == tool);
        let (true, Some(function)) = (is_sane, function) else { return Heard::Nothing };
        let mut state = self.desk.lock();
        // It may have come as text.
        let input = match serde_json::from_str::<String>(input.get()) {
            Ok(text) => RawValue::from_string(text).ok(),
            Err(_) => Some(input),
        };
        let Some(input) = input.filter(|input| input.get().trim_start().starts_with('{')) else {
            let why = format!("{tool}: the argument is not a JSON object");
            return if state.put(&id_inside, Status::BadCall, &why) {
                self.desk.ring();
                Heard::Nothing
            } else {
                Heard::TooMany
            };
        };
        let bytes = input.get().len();
        let taken: usize = state.unanswered.values().map(|call| call.bytes).sum();
        if state.unanswered.len() >= MOST_CALLS || taken + bytes > MOST_CALL_BYTES {
            return Heard::TooMany;
        }
        state.calls += 1;
        let id = format!("call_{:03}", state.calls);
        state.unanswered.insert(id.clone(), Unanswered { id_inside, since: Instant::now(), bytes });
        Heard::Call(ToolCall { id, tool: function.tool.clone(), input })
    }
}

/// The program has ended, or never began: nobody waits for anything any more.
impl Drop for Tools {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        *state = State { is_over: true, ..State::default() };
    }
}

impl Answers {
    /// Gives an answer. Never waits.
    pub fn send(&self, answer: &ToolAnswer) -> Result<(), AnswerError> {
        let id = &answer.call_id;
        if self.0.lock().is_over {
            return Err(AnswerError::Over);
        }
        // Without the lock, which the supervisor needs too.
        let (status, text) = match &answer.result {
            // On one line. There are no line ends in JSON but between values.
            Ok(json) => (Status::Result, json.replace(['\n', '\r'], " ")),
            Err(message) => (Status::Error, message.clone()),
        };
        let mut state = self.0.lock();
        let waiting = state.unanswered.get(id).ok_or_else(|| {
            if state.is_over { AnswerError::Over } else { AnswerError::NoSuchCall(id.clone()) }
        })?;
        let id_inside = waiting.id_inside.clone();
        if !state.put(&id_inside, status, &text) {
            return Err(AnswerError::TooMuch(id.clone()));
        }
        state.unanswered.remove(id);
        drop(state);
        self.0.ring();
        Ok(())
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl State {
    /// Puts a line into the queue, if there is room.
    fn put(&mut self, id: &str, status: Status, text: &str) -> bool {
        let text = match (self.dialect, status) {
            (Dialect::Json, Status::Result) => text.to_owned(),
            (Dialect::Json, _) => serde_json::Value::from(text).to_string(),
            (Dialect::Shell, _) => text.replace('\\', "\\\\").replace('\n', "\\n").replace('\0', "\\0000"),
        };
        let line = format!("{id} {} {text}\n", status as u8).into_bytes();
        if self.queued + line.len() > MOST_ANSWER_BYTES {
            return false;
        }
        self.queued += line.len();
        self.queue.push_back(line);
        true
    }
}

fn is_identifier(name: &str) -> bool {
    let is_start = |letter: u8| letter.is_ascii_alphabetic() || letter == b'_';
    name.len() <= LONGEST_NAME
        && name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|letter| is_start(letter) || letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> (Tools, Answers) {
        let function = ToolFunction { function: "look_up".into(), tool: "look up!".into() };
        Tools::new(vec![function], Duration::from_secs(5)).unwrap()
    }

    fn say(tools: &Tools, id: &str, input: &serde_json::Value) -> Heard {
        let input = serde_json::value::to_raw_value(input).unwrap();
        tools.hear(Said { id: id.into(), tool: "look_up".into(), input })
    }

    fn line(tools: &Tools) -> String {
        String::from_utf8(tools.next_line().unwrap_or_default()).unwrap()
    }

    #[test]
    fn a_call_is_told_under_an_id_of_its_own_and_its_answer_under_the_programs() {
        let (tools, answers) = tools();
        for expected in ["call_001", "call_002"] {
            let Heard::Call(call) = say(&tools, "same", &json!({ "a": 1 })) else { panic!("no call") };
            assert_eq!((call.id.as_str(), call.tool.as_str()), (expected, "look up!"));
        }
        let answer = ToolAnswer { call_id: "call_002".into(), result: Ok(json!(["x\n", 1]).to_string()) };
        assert_eq!(answers.send(&answer), Ok(()));
        assert_eq!(line(&tools), "same 0 [\"x\\n\",1]\n");
        assert_eq!(answers.send(&answer), Err(AnswerError::NoSuchCall("call_002".into())));
        assert!(tools.is_waiting());
        let answer = ToolAnswer { call_id: "call_001".into(), result: Err("no \"luck\"".into()) };
        assert_eq!(answers.send(&answer), Ok(()));
        assert_eq!(line(&tools), "same 1 \"no \\\"luck\\\"\"\n");
        assert!(!tools.is_waiting());
        drop(tools);
        assert_eq!(answers.send(&answer), Err(AnswerError::Over));
    }

    #[test]
    fn a_shell_gets_json_on_one_line() {
        let (tools, answers) = tools();
        tools.speak(Dialect::Shell);
        say(&tools, "a", &json!("{\"x\": [1]}"));
        let result = Ok(json!("a\\b\nc\0 ").to_string());
        answers.send(&ToolAnswer { call_id: "call_001".into(), result }).unwrap();
        assert_eq!(line(&tools), "a 0 \"a\\\\\\\\b\\\\nc\\\\u0000 \"\n");
        assert!(matches!(say(&tools, "b", &json!("{no json")), Heard::Nothing));
        assert_eq!(line(&tools), "b 2 look_up: the argument is not a JSON object\n");
    }

    #[test]
    fn neither_calls_nor_answers_pile_up() {
        let (tools, answers) = tools();
        for _ in 0..MOST_CALLS {
            assert!(matches!(say(&tools, "x", &json!({})), Heard::Call(_)));
        }
        assert!(matches!(say(&tools, "x", &json!({})), Heard::TooMany));
        let long = || Ok(format!("\"{}\"", "x".repeat(5 << 20)));
        for number in 1..=3 {
            answers.send(&ToolAnswer { call_id: format!("call_00{number}"), result: long() }).unwrap();
        }
        let call_id = "call_004".to_owned();
        let refused = answers.send(&ToolAnswer { call_id: call_id.clone(), result: long() });
        assert_eq!(refused, Err(AnswerError::TooMuch(call_id.clone())));
        assert_eq!(answers.send(&ToolAnswer { call_id, result: Ok("1".to_owned()) }), Ok(()));
    }

    #[test]
    fn what_can_not_be_a_call_is_dropped() {
        let (tools, _answers) = tools();
        let input = RawValue::from_string("{}".to_owned()).unwrap();
        let unknown = Said { id: "a".into(), tool: "other".into(), input };
        assert!(matches!(tools.hear(unknown), Heard::Nothing));
        assert!(matches!(say(&tools, "a b", &json!({})), Heard::Nothing));
        assert!(matches!(say(&tools, "a\nb", &json!({})), Heard::Nothing));
        assert!(!tools.is_waiting() && tools.next_line().is_none());
    }

    #[test]
    fn function_names_are_identifiers_and_unique() {
        let new = |names: &[&str]| {
            let function = |name: &&str| ToolFunction { function: (*name).into(), tool: "t".into() };
            Tools::new(names.iter().map(function).collect(), Duration::ZERO).map(drop)
        };
        assert!(new(&["a", "_b", "c1_D"]).is_ok());
        for bad in [&["1a"][..], &[""], &["a-b"], &["a b"], &["a;rm"], &["ü"], &["a", "a"]] {
            assert_eq!(new(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}
