//! Rules: which facts they are about, and the proof that they mean what they say.
//!
//! A rule carries examples, programs that it matches and programs that it does not. They are read and tried when the rule
//! is compiled, so that a rule that was written wrongly is refused instead of being quietly useless.

mod condition;
mod places;

use std::collections::{HashMap, HashSet};

use redoma_model::policy::{Example, Rule};
use serde::Deserialize;

use crate::facts::{Fact, Language, What};
use crate::read;
use condition::{Compiled, Pattern, Subject, language_of};

/// The rules that come with the program.
const SHIPPED: &str = include_str!("shipped.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    rule: Vec<Rule>,
}

/// Why a rule can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("rules can't be read: {0}")]
    NotToml(String),
    #[error("there are two rules `{0}`; give one of them another id")]
    SameId(String),
    #[error("rule `{0}`: an id is made of small letters, digits and `-`")]
    BadId(String),
    #[error("rule `{rule}`: condition {number} {what}")]
    BadCondition { rule: String, number: usize, what: &'static str },
    #[error("rule `{0}` has no condition; give it a `[[rule.match]]`")]
    NoCondition(String),
    #[error("rule `{0}` has no example that it matches; give it a `[[rule.examples.match]]`")]
    NoExample(String),
    #[error("rule `{rule}` does not match its example {number} (`{code}`)")]
    ExampleNotMatched { rule: String, number: usize, code: String },
    #[error("rule `{rule}` matches `{code}`, its example {number} of what it must not match")]
    ExampleMatched { rule: String, number: usize, code: String },
}

pub(crate) fn shipped() -> Result<Vec<Rule>, RuleError> {
    parse(SHIPPED)
}

/// Rules from a file's text.
pub fn parse(text: &str) -> Result<Vec<Rule>, RuleError> {
    let file: RuleFile = toml::from_str(text).map_err(|error| RuleError::NotToml(error.to_string()))?;
    Ok(file.rule)
}

/// Rules that are ready to be asked, and a way to find the few that a fact may concern.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    conditions: Vec<(usize, Compiled)>,
    commands: Index,
    calls: Index,
    rest: Vec<usize>,
}

/// Conditions by what a fact must have for them to hold. A script has thousands of facts, and nearly all of them meet no
/// condition at all here.
#[derive(Debug, Default)]
struct Index {
    /// By the name of a program or a function.
    by_name: HashMap<String, Vec<usize>>,
    /// By the first byte of the name: a few, so that looking through them is quicker than a hash.
    by_first: Vec<(u8, Vec<usize>)>,
    /// Without a name, of programs whose output goes to a file.
    writing: Vec<usize>,
    others: Vec<usize>,
}

impl Index {
    fn add(&mut self, number: usize, condition: &Compiled) {
        if condition.names.is_empty() {
            let list = if condition.needs_write() { &mut self.writing } else { &mut self.others };
            list.push(number);
            return;
        }
        // One whose pattern may begin with anything is asked each time, and only once.
        let first_bytes: Option<Vec<u8>> =
            condition.names.iter().filter(|name| name.exact().is_none()).map(Pattern::first_byte).collect();
        let Some(mut first_bytes) = first_bytes else {
            self.others.push(number);
            return;
        };
        first_bytes.sort_unstable();
        first_bytes.dedup();
        for name in condition.names.iter().filter_map(Pattern::exact) {
            if !name.bytes().next().is_some_and(|byte| first_bytes.contains(&byte)) {
                self.by_name.entry(name.to_owned()).or_default().push(number);
            }
        }
        for byte in first_bytes {
            match self.by_first.iter_mut().find(|(first, _)| *first == byte) {
                Some((_, numbers)) => numbers.push(number),
                None => self.by_first.push((byte, vec![number])),
            }
        }
    }

    /// The conditions that may hold for something of this name.
    fn of(&self, name: Option<&str>, writes: bool) -> [&[usize]; 4] {
        const NONE: &[usize] = &[];
        let named = name.and_then(|name| self.by_name.get(name)).map_or(NONE, Vec::as_slice);
        let first = name.and_then(|name| name.bytes().next());
        let begun = self.by_first.iter().find(|(byte, _)| Some(*byte) == first);
        let begun = begun.map_or(NONE, |(_, numbers)| numbers);
        [named, begun, if writes { &self.writing } else { NONE }, &self.others]
    }
}

impl RuleSet {
    pub fn compile(rules: &[Rule]) -> Result<Self, RuleError> {
        let mut set = Self::default();
        let mut ids = HashSet::new();
        for (index, rule) in rules.iter().enumerate() {
            let id = || rule.id.clone();
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if rule.id.is_empty() || !rule.id.bytes().all(is_plain) {
                return Err(RuleError::BadId(id()));
            }
            if !ids.insert(rule.id.as_str()) {
                return Err(RuleError::SameId(id()));
            }
            if rule.conditions.is_empty() {
                return Err(RuleError::NoCondition(id()));
            }
            for (number, condition) in rule.conditions.iter().enumerate() {
                let compiled = Compiled::new(condition).map_err(|what| RuleError::BadCondition {
                    rule: id(),
                    number: number + 1,
                    what,
                })?;
                set.add(index, compiled);
            }
        }
        for (index, rule) in rules.iter().enumerate() {
            set.try_examples(index, rule)?;
        }
        Ok(set)
    }

    fn add(&mut self, rule: usize, condition: Compiled) {
        let number = self.conditions.len();
        match condition.subject {
            Subject::Command => self.commands.add(number, &condition),
            Subject::Call => self.calls.add(number, &condition),
            _ => self.rest.push(number),
        }
        self.conditions.push((rule, condition));
    }

    fn try_examples(&self, index: usize, rule: &Rule) -> Result<(), RuleError> {
        if rule.examples.matching.is_empty() {
            return Err(RuleError::NoExample(rule.id.clone()));
        }
        let is_matched = |example: &Example| {
            let facts = read(language_of(example.language), &example.code);
            let mut is_matched = false;
            for fact in &facts {
                self.each_match(fact, |rule| is_matched |= rule == index);
            }
            is_matched
        };
        let describe = |example: &Example| example.code.clone();
        for (number, example) in rule.examples.matching.iter().enumerate() {
            if !is_matched(example) {
                let (rule, number) = (rule.id.clone(), number + 1);
                return Err(RuleError::ExampleNotMatched { rule, number, code: describe(example) });
            }
        }
        for (number, example) in rule.examples.not_match.iter().enumerate() {
            if is_matched(example) {
                let (rule, number) = (rule.id.clone(), number + 1);
                return Err(RuleError::ExampleMatched { rule, number, code: describe(example) });
            }
        }
        Ok(())
    }

    /// Tells the rules that match a fact, by index; one may come twice.
    pub fn each_match(&self, fact: &Fact, mut found: impl FnMut(usize)) {
        let candidates = match &fact.what {
            What::Command(command) => {
                let writes = command.redirects.iter().any(|redirect| redirect.is_write);
                self.commands.of(command.name(), writes)
            }
            What::Call(call) => self.calls.of(Some(&call.name), false),
            _ => [self.rest.as_slice(), &[], &[], &[]],
        };
        for number in candidates.into_iter().flatten() {
            let (rule, condition) = &self.conditions[*number];
            if condition.holds(fact) {
                found(*rule);
            }
        }
    }
}

/// For messages about rules.
pub fn language_named(name: &str) -> Option<Language> {
    Some(match name {
        "py" | "python" | "python3" => Language::Python,
        "js" | "javascript" | "node" => Language::JavaScript,
        "ts" | "typescript" => Language::TypeScript,
        "sh" | "bash" | "shell" => Language::Bash,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_rule_does_what_its_examples_say() {
        let rules = shipped().unwrap();
        let errors: Vec<_> =
            rules.iter().filter_map(|rule| RuleSet::compile(std::slice::from_ref(rule)).err()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        RuleSet::compile(&rules).unwrap();
    }
}
