//! A profile's policy, compiled: code goes in, a verdict comes out.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use redoma_model::policy::{Action, Class, PolicyMode, PolicySettings, Rule};
use serde::Serialize;

use crate::facts::{Fact, Language, Value, What};
use crate::libraries::{self, Libraries};
use crate::read;
use crate::rules::{self, RuleError, RuleSet};

/// The rule that an allow-list of libraries makes.
const LIBRARY_RULE: &str = "library-not-allowed";
/// So many findings are told.
const MOST_FINDINGS: usize = 50;
/// So many are looked through for the worst ones.
const MOST_MATCHES: usize = 20_000;
const LONGEST_EXCERPT: usize = 100;
/// So many findings are in a message.
const MOST_IN_MESSAGE: usize = 5;

/// Why settings can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("policy.rules names `{name}`, which is no rule; see `redoma policy explain`")]
    UnknownRule { name: String },
    #[error("policy.rules names `{name}`, which is no rule; did you mean `{nearest}`?")]
    UnknownRuleNear { name: String, nearest: String },
}

/// What a profile allows. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Policy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mode: PolicyMode,
    rules: Vec<Active<Rule>>,
    own: RuleSet,
    /// The first of `rules` that is not shipped.
    first_own: usize,
    libraries: Option<Active<Libraries>>,
}

/// A rule, and what is done about it here.
#[derive(Debug)]
struct Active<T> {
    rule: T,
    action: Action,
    decided: Decided,
    origin: Origin,
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Shipped,
    Profile,
    /// From the profile's list of libraries.
    Libraries,
}

/// Where an action comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// By the class's default.
    Class,
    /// By the rule itself.
    Rule,
    /// By the profile, for the class or the rule.
    Profile,
}

/// A rule as it stands, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explained {
    pub rule: String,
    pub class: Class,
    pub action: Action,
    pub decided: Decided,
    pub origin: Origin,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a policy says about a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The strictest of the findings' actions.
    pub action: Action,
    /// The worst first; none that is allowed.
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: String,
    pub class: Class,
    pub action: Action,
    pub line: u32,
    pub column: u32,
    /// What was found, short and on one line.
    pub excerpt: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How many programs deep: 0 for what is written down directly.
    pub depth: u8,
}

/// The shipped rules, whose examples were tried when they were needed first.
fn shipped() -> Result<&'static (Vec<Rule>, RuleSet), RuleError> {
    static SHIPPED: OnceLock<Result<(Vec<Rule>, RuleSet), RuleError>> = OnceLock::new();
    let compiled = SHIPPED.get_or_init(|| {
        let rules = rules::shipped()?;
        let set = RuleSet::compile(&rules)?;
        Ok((rules, set))
    });
    compiled.as_ref().map_err(Clone::clone)
}

impl Policy {
    /// `libraries` are the names that may be imported beside the standard library; without them every name may be.
    pub fn compile(settings: &PolicySettings, libraries: Option<&[String]>) -> Result<Self, PolicyError> {
        let (shipped, _) = shipped()?;
        let own = RuleSet::compile(&settings.rule)?;
        if let Some(same) = settings.rule.iter().find(|own| shipped.iter().any(|rule| rule.id == own.id)) {
            return Err(RuleError::SameId(same.id.clone()).into());
        }
        let known =
            || shipped.iter().chain(&settings.rule).map(|rule| rule.id.as_str()).chain([LIBRARY_RULE]);
        if let Some(name) = settings.rules.keys().find(|name| !known().any(|id| id == *name)) {
            let name = name.clone();
            return Err(match libraries::nearest(&name, known()) {
                Some(nearest) => PolicyError::UnknownRuleNear { nearest: nearest.to_owned(), name },
                None => PolicyError::UnknownRule { name },
            });
        }
        let active = |rule: &Rule, origin| {
            let (action, decided) = decide(settings, &rule.id, rule.class, rule.action);
            Active { rule: rule.clone(), action, decided, origin }
        };
        let rules: Vec<_> = shipped
            .iter()
            .map(|rule| active(rule, Origin::Shipped))
            .chain(settings.rule.iter().map(|rule| active(rule, Origin::Profile)))
            .collect();
        let libraries = libraries.map(|allowed| {
            let (action, decided) = decide(settings, LIBRARY_RULE, Class::Library, None);
            Active { rule: Libraries::new(allowed), action, decided, origin: Origin::Libraries }
        });
        Ok(Self(Arc::new(Inner { mode: settings.mode, rules, own, first_own: shipped.len(), libraries })))
    }

    /// What is said about a program.
    pub fn check(&self, language: Language, code: &str) -> Verdict {
        self.check_beside(language, code, |_| false)
    }

    /// As [`Policy::check`], for a program that stands beside modules of its own: these may be imported.
    pub fn check_beside(
        &self,
        language: Language,
        code: &str,
        is_own_module: impl Fn(&str) -> bool,
    ) -> Verdict {
        if self.is_off() {
            return Verdict { action: Action::Allow, findings: Vec::new() };
        }
        self.judge(&read(language, code), code, is_own_module)
    }

    /// Whether nothing is looked for at all.
    pub fn is_off(&self) -> bool {
        self.0.mode == PolicyMode::Off
    }

    /// What is said about a program that somebody else has read: these facts were found in this code.
    pub fn judge(&self, facts: &[Fact], code: &str, is_own_module: impl Fn(&str) -> bool) -> Verdict {
        if self.is_off() {
            return Verdict { action: Action::Allow, findings: Vec::new() };
        }
        let mut matches = self.matches(facts);
        if let Some(Active { rule: libraries, action, .. }) = &self.0.libraries {
            let refused = facts.iter().filter_map(|fact| {
                let What::Import(import) = &fact.what else { return None };
                let library = libraries.refused(fact.language, import.module.known()?)?;
                let is_refused = *action != Action::Allow && !is_own_module(library);
                is_refused.then_some(Match {
                    by: By::Library(library),
                    action: *action,
                    class: Class::Library,
                    fact,
                })
            });
            matches.extend(refused.take(MOST_MATCHES));
        }
        matches.sort_by(|one, other| one.order().cmp(&other.order()));
        matches.dedup_by(|one, other| one.is_same(other));
        let action = matches.first().map_or(Action::Allow, |first| first.action);
        let mut lines = Lines { code, last: (1, 0) };
        let findings =
            matches.iter().take(MOST_FINDINGS).map(|found| self.finding(found, &mut lines)).collect();
        Verdict { action, findings }
    }

    fn matches<'f>(&self, facts: &'f [Fact]) -> Vec<Match<'f>> {
        let Inner { rules, own, first_own, .. } = &*self.0;
        let mut matches = Vec::new();
        let shipped = shipped().map(|(_, set)| set).ok();
        for fact in facts {
            let mut add = |index: usize| {
                let Active { rule, action, .. } = &rules[index];
                // However much there is to note: what is denied is not lost in it.
                let has_room = matches.len() < MOST_MATCHES
                    || (*action == Action::Deny && matches.len() < 2 * MOST_MATCHES);
                if *action != Action::Allow && has_room {
                    matches.push(Match { by: By::Rule(index), action: *action, class: rule.class, fact });
                }
            };
            if let Some(shipped) = shipped {
                shipped.each_match(fact, &mut add);
            }
            own.each_match(fact, |index| add(index + first_own));
        }
        matches
    }

    fn finding(&self, found: &Match<'_>, lines: &mut Lines<'_>) -> Finding {
        let Match { by, action, class, fact } = found;
        let (rule, reason, hint) = match by {
            By::Rule(index) => {
                let rule = &self.0.rules[*index].rule;
                (rule.id.clone(), rule.reason.clone(), rule.hint.clone())
            }
            By::Library(library) => {
                let hint = self.0.libraries.as_ref().map(|libraries| libraries.rule.hint(library));
                (LIBRARY_RULE.to_owned(), format!("the library `{library}` is not allowed here"), hint)
            }
        };
        Finding {
            rule,
            class: *class,
            action: *action,
            line: fact.at.line,
            column: fact.at.column,
            excerpt: excerpt(fact, lines),
            reason,
            hint,
            depth: fact.depth,
        }
    }

    /// Every rule as it stands, and why.
    pub fn explain(&self) -> Vec<Explained> {
        let rules = self.0.rules.iter().map(|active| {
            let Rule { id, class, reason, hint, .. } = &active.rule;
            active.explained(id, *class, reason, hint.clone())
        });
        let libraries = self.0.libraries.iter().map(|active| {
            active.explained(
                LIBRARY_RULE,
                Class::Library,
                "only the profile's libraries can be imported",
                None,
            )
        });
        let mut all: Vec<_> = rules.chain(libraries).collect();
        all.sort_by_key(|explained| explained.class);
        all
    }
}

impl<T> Active<T> {
    fn explained(&self, rule: &str, class: Class, reason: &str, hint: Option<String>) -> Explained {
        let Self { action, decided, origin, .. } = self;
        let (action, decided, origin) = (*action, *decided, *origin);
        Explained { rule: rule.to_owned(), class, action, decided, origin, reason: reason.to_owned(), hint }
    }
}

/// The profile's word on the rule, its word on the class, the rule's own, the class's default.
fn decide(settings: &PolicySettings, id: &str, class: Class, own: Option<Action>) -> (Action, Decided) {
    let for_class =
        settings.opaque.filter(|_| class == Class::Opaque).or(settings.classes.get(&class).copied());
    match (settings.rules.get(id).copied().or(for_class), own) {
        (Some(action), _) => (action, Decided::Profile),
        (None, Some(action)) => (action, Decided::Rule),
        (None, None) => (class.default_action(), Decided::Class),
    }
}

/// A fact that a rule is about.
struct Match<'f> {
    by: By<'f>,
    action: Action,
    class: Class,
    fact: &'f Fact,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum By<'f> {
    Rule(usize),
    Library(&'f str),
}

impl Match<'_> {
    fn order(&self) -> impl Ord + '_ {
        (
            std::cmp::Reverse(self.action),
            self.class,
            self.fact.at.line,
            self.by,
            self.fact.at.column,
            self.fact.depth,
        )
    }

    /// One rule says one thing about a line.
    fn is_same(&self, other: &Self) -> bool {
        self.by == other.by && self.fact.at.line == other.fact.at.line
    }
}

impl Verdict {
    pub fn is_denied(&self) -> bool {
        self.action == Action::Deny
    }

    /// What a model is told instead of its program's output; empty if the program may run.
    pub fn message(&self) -> String {
        if !self.is_denied() {
            return String::new();
        }
        let denied: Vec<_> = self.findings.iter().filter(|finding| finding.action == Action::Deny).collect();
        let mut text = "This code was not run: the sandbox's policy does not allow it.\n".to_owned();
        for finding in denied.iter().take(MOST_IN_MESSAGE) {
            let Finding { rule, class, line, excerpt, reason, .. } = finding;
            let _ = writeln!(text, "line {line}: {excerpt}\n  {reason} (rule {rule}, class {class})");
            if let Some(hint) = &finding.hint {
                let _ = writeln!(text, "  instead: {hint}");
            }
        }
        if denied.len() > MOST_IN_MESSAGE {
            let _ = writeln!(text, "and {} more", denied.len() - MOST_IN_MESSAGE);
        }
        text
    }
}

/// The code by lines; asked in any order, but mostly for later ones.
struct Lines<'a> {
    code: &'a str,
    /// A line's number and where it begins.
    last: (u32, usize),
}

impl<'a> Lines<'a> {
    fn line(&mut self, number: u32) -> &'a str {
        if number < self.last.0 {
            self.last = (1, 0);
        }
        let (mut line, mut at) = self.last;
        while line < number {
            let Some(end) = self.code[at..].find('\n') else { return "" };
            at += end + 1;
            line += 1;
        }
        self.last = (line, at);
        let rest = &self.code[at..];
        &rest[..rest.find('\n').unwrap_or(rest.len())]
    }
}

fn excerpt(fact: &Fact, lines: &mut Lines<'_>) -> String {
    let text = match &fact.what {
        What::Command(command) => {
            let words = [&command.program].into_iter().chain(&command.arguments).take(20).map(Value::shown);
            let mut text = words.collect::<Vec<_>>().join(" ");
            for redirect in command.redirects.iter().filter(|redirect| redirect.is_write).take(3) {
                let _ = write!(text, " > {}", redirect.to.shown());
            }
            text
        }
        What::Call(call) => {
            let arguments: Vec<_> =
                call.arguments.iter().take(5).map(|argument| argument.value.shown()).collect();
            format!("{}({})", call.name, arguments.join(", "))
        }
        What::Import(import) => format!("import {}", import.module.shown()),
        What::Multiplies | What::Opaque(_) => lines.line(fact.at.line).trim().to_owned(),
    };
    shortened(&text)
}

fn shortened(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(LONGEST_EXCERPT)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if text.chars().nth(LONGEST_EXCERPT).is_some() {
        short.push('…');
    }
    short
}
