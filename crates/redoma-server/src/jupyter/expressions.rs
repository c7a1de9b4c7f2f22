//! Expressions whose values a client wants to be told with a cell's reply (`user_expressions`). Each is a cell of its own
//! that nobody sees.

use std::collections::BTreeMap;

use redoma_model::{Bundle, Output};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::cell::{Audience, Run};
use super::limits;
use super::outcome::{self, Problem};
use crate::executing::Event;

/// As many of a request's expressions are looked at.
const MOST: usize = 20;
/// Bytes of a value; of a longer one, the text is cut and other forms are left out.
const MOST_VALUE: usize = 30_000;

/// What an expression has come to.
#[derive(Debug, Default)]
pub struct Seen {
    value: Option<(Bundle, Bundle)>,
    error: Option<Problem>,
}

impl Seen {
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Shown(Output::Result { data, metadata }) => self.value = Some((data, metadata)),
            Event::Shown(Output::Error { name, value, traceback }) => {
                self.error = Some(Problem::new(&name, &value, traceback));
            }
            _ => {}
        }
    }
}

pub async fn values(run: &Run<'_>, expressions: BTreeMap<String, &RawValue>) -> Map<String, Value> {
    let mut values = Map::new();
    for (name, expression) in expressions.into_iter().filter(|(name, _)| name.len() <= 200).take(MOST) {
        let value = match serde_json::from_str(expression.get()) {
            Ok(code) => value(run, code).await,
            Err(_) => failed(&Problem::malformed("an expression is text")),
        };
        values.insert(name, value);
    }
    values
}

async fn value(run: &Run<'_>, code: String) -> Value {
    let mut seen = Seen::default();
    let execution = match run.execute(code, Audience::Asker(&mut seen)).await {
        Ok(execution) => execution,
        Err(problem) => return failed(&problem),
    };
    match seen.error.or_else(|| outcome::problem(&execution)) {
        Some(problem) => failed(&problem),
        None => told(seen.value.unwrap_or_default()),
    }
}

fn told((mut data, mut metadata): (Bundle, Bundle)) -> Value {
    if data.is_empty() {
        data.insert("text/plain".to_owned(), "None".into());
    }
    if limits::length(&data) + limits::length(&metadata) > MOST_VALUE {
        metadata.clear();
        data.retain(|kind, _| kind == "text/plain");
        if let Some(Value::String(text)) = data.get_mut("text/plain") {
            *text = limits::shortened(text, MOST_VALUE).into_owned();
        }
    }
    json!({ "status": "ok", "data": data, "metadata": metadata })
}

fn failed(problem: &Problem) -> Value {
    let mut content = problem.content();
    content["status"] = "error".into();
    for field in ["ename", "evalue"] {
        let text = content[field].as_str().unwrap_or_default();
        content[field] = limits::shortened(text, MOST_VALUE / 4).into();
    }
    if limits::length(&content["traceback"]) > MOST_VALUE / 2 {
        content["traceback"] = json!([]);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_errors_are_told_in_few_bytes() {
        let data = |text: String| Bundle::from_iter([("text/plain".to_owned(), text.into())]);
        assert_eq!(told((data("6".into()), Bundle::new()))["data"]["text/plain"], "6");
        assert_eq!(told(Default::default())["data"]["text/plain"], "None");
        let mut large = data("\u{1}".repeat(1 << 20));
        large.insert("text/html".to_owned(), "<p>".into());
        assert!(limits::length(&told((large, Bundle::new()))) < MOST_VALUE + 200);
        let problem = Problem::new("E", &"x".repeat(1 << 20), vec!["y".repeat(1 << 20)]);
        assert!(limits::length(&failed(&problem)) < MOST_VALUE);
    }
}
