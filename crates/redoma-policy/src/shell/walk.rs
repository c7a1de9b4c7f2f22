//! Going through the tree in the order of the text, and writing down what runs.

use compact_str::format_compact;
use smallvec::SmallVec;

use super::expand::{Expanded, Line, Variables, WORKSPACE, concatenated};
use super::parse::Script;
use super::tree::{
    Assignment, AssignmentKind, Node, Offset, Part, Redirection, RedirectionKind, Simple, Word,
};
use crate::facts::{Command, Fact, Language, Opaque, Position, Redirect, Source, Text, Value, What, Why};
use crate::nested;

/// Something that was found, with what it is still to be read for.
#[derive(Debug)]
pub(super) struct Found {
    pub at: Offset,
    what: Finding,
}

#[derive(Debug)]
enum Finding {
    Fact(What),
    Code(Language, Text, Extent),
}

/// How much of some code is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// That it ends in the middle says nothing.
    Beginning,
}

impl Found {
    /// In the order of the text; code comes after the command that runs it.
    pub fn order(&self) -> (Offset, bool) {
        (self.at, matches!(self.what, Finding::Code(..)))
    }

    pub fn add_to(self, facts: &mut Vec<Fact>, at: Position) {
        match self.what {
            Finding::Fact(what) => facts.push(Fact { what, at, language: Language::Bash, depth: 0 }),
            Finding::Code(language, code, extent) => {
                let mut inner = nested::read_inside(language, &code, at);
                if extent == Extent::Beginning {
                    inner.retain(
                        |fact| !matches!(&fact.what, What::Opaque(opaque) if opaque.why == Why::NotParsed),
                    );
                }
                facts.extend(inner);
            }
        }
    }
}

/// Names of programs, most often one or none.
pub(super) type Programs = SmallVec<[Text; 1]>;

/// What comes out of a command: the text if it is constant, and who had a hand in it.
#[derive(Debug)]
pub(super) struct Flow {
    pub output: Value,
    pub programs: Programs,
}

impl Flow {
    pub fn nothing() -> Self {
        Self { output: Value::EMPTY, programs: Programs::new() }
    }
}

/// What a command reads.
#[derive(Debug, Default, Clone)]
pub(super) struct Input {
    /// Programs before it in its pipeline.
    pub programs: Programs,
    /// The text, where something is known of it.
    pub text: Option<Value>,
    /// Whether it runs beside the script or another command.
    pub beside: bool,
}

pub(super) fn walk(script: &Script) -> Vec<Found> {
    let budget = 2 * (1 << 20);
    let mut walker = Walker { script, variables: Variables::default(), found: Vec::new(), budget };
    for (at, why) in &script.troubles {
        walker.opaque(*at, "script", *why);
    }
    for node in &script.nodes {
        walker.visit(node, &Input::default());
    }
    if walker.is_broke() {
        walker.opaque(0, "script", Why::TooDeep);
    }
    walker.found
}

pub(super) struct Walker<'a> {
    script: &'a Script,
    pub(super) variables: Variables,
    found: Vec<Found>,
    /// What expanding may still cost, in bytes.
    budget: usize,
}

impl Walker<'_> {
    pub(super) fn pay(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes);
    }

    pub(super) fn is_broke(&self) -> bool {
        self.budget == 0
    }

    pub(super) fn note(&mut self, at: Offset, what: What) {
        self.found.push(Found { at, what: Finding::Fact(what) });
    }

    pub(super) fn note_command(&mut self, at: Offset, command: Command) {
        self.note(at, What::Command(Box::new(command)));
    }

    pub(super) fn opaque(&mut self, at: Offset, by: &str, why: Why) {
        self.note(at, What::Opaque(Opaque { by: by.to_owned(), why }));
    }

    pub(super) fn code(&mut self, at: Offset, language: Language, code: Text, extent: Extent) {
        self.pay(code.len());
        if !self.is_broke() {
            self.found.push(Found { at, what: Finding::Code(language, code, extent) });
        }
    }

    fn visit(&mut self, node: &Node, input: &Input) -> Flow {
        match node {
            Node::Simple(simple) => self.simple(simple, input),
            Node::Pipeline(nodes) => self.pipeline(nodes, input),
            Node::Background(node) => {
                self.visit(node, &Input { beside: true, ..input.clone() });
                Flow::nothing()
            }
            Node::Block(nodes, redirections) => self.body(nodes, redirections, input),
            Node::Subshell(nodes, redirections) => {
                let folder = self.variables.folder.clone();
                let flow = self.body(nodes, redirections, input);
                self.variables.folder = folder;
                flow
            }
            Node::Loop { body, redirections, endless, at } => {
                if *endless && multiplies_in_loop(body) {
                    self.note(*at, What::Multiplies);
                }
                let mut flow = self.body(body, redirections, input);
                flow.output = Value::Unknown(Source::Variable);
                flow
            }
            Node::For { variable, words, body, redirections } => {
                let mut values = Vec::new();
                let mut programs = Vec::new();
                for word in words {
                    let expanded = self.expand(word);
                    programs.extend(expanded.programs);
                    values.extend(expanded.fields);
                }
                self.variables.values.remove(variable);
                self.variables.each.insert(variable.clone(), values);
                let mut flow = self.body(body, redirections, input);
                flow.programs.extend(programs);
                flow.output = Value::Unknown(Source::Variable);
                flow
            }
            Node::Function { name, body, at } => {
                if calls_of(name, body, false).multiplies() {
                    self.note(*at, What::Multiplies);
                }
                let folder = self.variables.folder.clone();
                self.variables.functions_deep += 1;
                self.visit(body, input);
                self.variables.functions_deep -= 1;
                self.variables.folder = folder;
                Flow::nothing()
            }
        }
    }

    fn body(&mut self, nodes: &[Node], redirections: &[Redirection], input: &Input) -> Flow {
        let (redirects, text) = self.redirects(redirections);
        let own_input = text.map(|text| Input { text: Some(text), ..input.clone() });
        let input = own_input.as_ref().unwrap_or(input);
        if redirects.iter().any(|redirect| redirect.is_write) {
            let at = redirections.first().map_or(0, |redirection| redirection.target.at);
            let program = Value::Known(":".into());
            self.note_command(at, Command { redirects, ..plain_command(program) });
        }
        let mut all = Flow::nothing();
        for node in nodes {
            let flow = self.visit(node, input);
            self.pay(flow.output.known().map_or(0, str::len));
            all.output = concatenated(all.output, flow.output);
            all.programs.extend(flow.programs);
        }
        all
    }

    fn pipeline(&mut self, nodes: &[Node], input: &Input) -> Flow {
        let mut input = Input { beside: true, ..input.clone() };
        let mut last = Flow::nothing();
        for node in nodes {
            last = self.visit(node, &input);
            input.programs.extend(last.programs.iter().cloned());
            input.text = Some(last.output.clone());
            // Who came before is known to the last ones only as far as there is room.
            input.programs.truncate(MOST_PROGRAMS);
        }
        Flow { output: last.output, programs: input.programs }
    }

    /// What is substituted runs in a shell of its own.
    pub(super) fn substitution(&mut self, body: &[Node]) -> Flow {
        let folder = self.variables.folder.clone();
        let mut flow = self.body(body, &[], &Input::default());
        self.variables.folder = folder;
        flow.programs.truncate(MOST_PROGRAMS);
        if let Value::Known(text) = &mut flow.output {
            text.truncate(text.trim_end_matches('\n').len());
        }
        flow
    }

    /// Where output goes, and the text that is given as input.
    fn redirects(&mut self, redirections: &[Redirection]) -> (Vec<Redirect>, Option<Value>) {
        let mut redirects = Vec::new();
        let mut text = None;
        for redirection in redirections {
            match redirection.kind {
                RedirectionKind::HereDocument(number) => {
                    let script = self.script;
                    text = script.here_documents.get(number).map(|word| self.expand(word).joined());
                }
                RedirectionKind::HereString => text = Some(self.expand(&redirection.target).joined()),
                RedirectionKind::Duplicate => {}
                RedirectionKind::Read | RedirectionKind::Write => {
                    let is_write = redirection.kind == RedirectionKind::Write;
                    let expanded = self.expand(&redirection.target);
                    redirects.push(Redirect { is_write, to: expanded.joined() });
                }
            }
        }
        (redirects, text)
    }

    fn simple(&mut self, simple: &Simple, input: &Input) -> Flow {
        let mut programs = Vec::new();
        for assignment in &simple.assignments {
            let expanded = self.expand(&assignment.value);
            programs.extend(expanded.programs.iter().cloned());
            if simple.words.is_empty() {
                self.assign(assignment, expanded);
            }
        }
        let (redirects, text) = self.redirects(&simple.redirections);
        let own_input = text.map(|text| Input { text: Some(text), ..input.clone() });
        let input = own_input.as_ref().unwrap_or(input);
        if simple.words.is_empty() {
            if !redirects.is_empty() {
                let program = Value::Known(":".into());
                self.note_command(simple.at, Command { redirects, ..plain_command(program) });
            }
            return Flow::nothing();
        }
        if input.beside && simple.words.iter().take(2).any(is_script_itself) {
            self.note(simple.at, What::Multiplies);
        }
        let each = match simple.words[0].parts.as_slice() {
            [Part::Variable(variable)] => self.variables.each.get(&variable.name).cloned(),
            _ => None,
        };
        let mut line = Line { fields: Vec::with_capacity(simple.words.len()), is_glob: false };
        for word in &simple.words[usize::from(each.is_some())..] {
            self.expand_onto(word, &mut line, &mut programs);
        }
        let mut flow = Flow { output: Value::Unknown(Source::Variable), programs: Programs::new() };
        for program in each.into_iter().flatten().take(MOST_PROGRAMS) {
            self.pay(line.fields.len());
            if self.is_broke() {
                break;
            }
            let fields = [program].into_iter().chain(line.fields.iter().cloned()).collect();
            let line = Line { fields, is_glob: false };
            flow = self.run(line, redirects.clone(), input, &programs, simple.at);
        }
        if !matches!(simple.words[0].parts.as_slice(), [Part::Variable(variable)] if self.variables.each.contains_key(&variable.name))
        {
            flow = self.run(line, redirects, input, &programs, simple.at);
        }
        flow
    }

    fn assign(&mut self, assignment: &Assignment, expanded: Expanded) {
        let is_array = assignment.kind == AssignmentKind::Array;
        let value = if is_array && expanded.fields.len() == 1 {
            expanded.fields.into_iter().next().unwrap_or(Value::Unknown(Source::Variable))
        } else {
            expanded.joined()
        };
        let value = match (assignment.kind, self.variables.values.get(&assignment.name)) {
            (AssignmentKind::Append, Some(before)) => concatenated(before.clone(), value),
            _ => value,
        };
        self.set(&assignment.name, value);
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.pay(value.known().map_or(1, str::len));
        self.variables.each.remove(name);
        self.variables.values.insert(name.into(), value);
    }

    pub(super) fn change_folder(&mut self, to: Option<&Value>) {
        let folder = &self.variables.folder;
        self.variables.folder = match to.map(|value| value.known()) {
            Some(Some(path)) if path.starts_with('/') => path.into(),
            Some(Some("-")) => WORKSPACE.into(),
            Some(Some(path)) if folder.len() + path.len() < 4096 => {
                format_compact!("{}/{path}", folder.trim_end_matches('/'))
            }
            _ => WORKSPACE.into(),
        };
    }
}

/// More than these behind each other are not told apart.
const MOST_PROGRAMS: usize = 16;

pub(super) fn plain_command(program: Value) -> Command {
    Command {
        program,
        arguments: Vec::new(),
        wrappers: Vec::new(),
        redirects: Vec::new(),
        reads_from: Vec::new(),
    }
}

fn is_script_itself(word: &Word) -> bool {
    matches!(word.parts.as_slice(), [.., Part::Variable(variable)] if variable.name == "0" || variable.name == "BASH_SOURCE")
}

/// How a function calls itself.
#[derive(Default)]
struct Calls {
    all: usize,
    beside: usize,
}

impl Calls {
    fn multiplies(&self) -> bool {
        self.beside > 0
    }
}

fn calls_of(name: &str, node: &Node, beside: bool) -> Calls {
    let mut calls = Calls::default();
    let mut add = |more: Calls| {
        calls.all += more.all;
        calls.beside += more.beside;
    };
    match node {
        Node::Simple(simple) => {
            let called = simple.words.iter().take(3).any(|word| is_plainly(word, name));
            if called {
                add(Calls { all: 1, beside: usize::from(beside) });
            }
        }
        Node::Pipeline(nodes) => nodes.iter().for_each(|node| add(calls_of(name, node, true))),
        Node::Background(node) => add(calls_of(name, node, true)),
        Node::Block(nodes, _)
        | Node::Subshell(nodes, _)
        | Node::Loop { body: nodes, .. }
        | Node::For { body: nodes, .. } => nodes.iter().for_each(|node| add(calls_of(name, node, beside))),
        Node::Function { .. } => {}
    }
    calls
}

/// Whether a word is this text, in whatever quotes.
fn is_plainly(word: &Word, mut text: &str) -> bool {
    for part in &word.parts {
        let (Part::Bare(piece) | Part::Quoted(piece)) = part else { return false };
        match text.strip_prefix(piece.as_str()) {
            Some(rest) => text = rest,
            None => return false,
        }
    }
    text.is_empty()
}

/// Whether an endless loop starts something beside itself each time, and never waits.
fn multiplies_in_loop(body: &[Node]) -> bool {
    let mut starts = false;
    let mut open: Vec<&Node> = body.iter().collect();
    while let Some(node) = open.pop() {
        match node {
            Node::Simple(simple) => {
                let name = simple.words.first().and_then(Word::bare);
                if matches!(name, Some("wait" | "sleep" | "read" | "break" | "exit" | "return")) {
                    return false;
                }
            }
            Node::Background(_) => starts = true,
            Node::Pipeline(nodes)
            | Node::Block(nodes, _)
            | Node::Subshell(nodes, _)
            | Node::Loop { body: nodes, .. }
            | Node::For { body: nodes, .. } => open.extend(nodes),
            Node::Function { .. } => {}
        }
    }
    starts
}
