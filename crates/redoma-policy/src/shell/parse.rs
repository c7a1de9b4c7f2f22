//! From text to a tree, in one pass from the front to the back.
//!
//! Nothing is tried twice, so time grows with the length of the text only; recursion is bounded by [`DEEPEST`]. What makes no
//! sense is noted and stepped over: the rest is still read.

use smallvec::smallvec;

use super::tree::{
    Assignment, AssignmentKind, Node, Offset, Part, Parts, Redirection, RedirectionKind, Simple, Word,
};
use crate::facts::{Text, Why};

/// So many constructs within each other are read; honest scripts have about ten.
const DEEPEST: usize = 40;
const LONGEST_SUBSCRIPT: usize = 200;
const MOST_TROUBLES: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Script {
    pub nodes: Vec<Node>,
    pub here_documents: Vec<Word>,
    pub troubles: Vec<(Offset, Why)>,
}

pub(super) fn parse(code: &str) -> Script {
    let mut parser = Parser::new(code);
    let mut nodes = Vec::new();
    loop {
        nodes.extend(parser.list(&[]));
        if parser.at >= parser.code.len() {
            break;
        }
        // A `)`, `}`, `fi` that nothing opened.
        parser.trouble();
        parser.skip_something();
    }
    Script { nodes, here_documents: parser.here_documents, troubles: parser.troubles }
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) code: &'a [u8],
    pub(super) at: usize,
    pub(super) depth: usize,
    /// Where everything stands, if this text was cut out of another.
    fixed: Option<Offset>,
    pub(super) here_documents: Vec<Word>,
    /// Here-documents whose text begins on the next line.
    awaited: Vec<Awaited>,
    pub(super) troubles: Vec<(Offset, Why)>,
}

struct Awaited {
    number: usize,
    end: String,
    text: HereText,
    tabs: Tabs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HereText {
    Literal,
    Expanded,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tabs {
    Kept,
    Stripped,
}

/// Longer ones before those that they begin with. `<<-` strips tabs.
const OPERATORS: [(&str, RedirectionKind); 10] = [
    ("<<<", RedirectionKind::HereString),
    ("<<-", RedirectionKind::HereDocument(1)),
    ("<<", RedirectionKind::HereDocument(0)),
    ("<&", RedirectionKind::Duplicate),
    ("<>", RedirectionKind::Write),
    ("<", RedirectionKind::Read),
    (">>", RedirectionKind::Write),
    (">|", RedirectionKind::Write),
    (">&", RedirectionKind::Duplicate),
    (">", RedirectionKind::Write),
];

/// Words that end a list of commands where a command could stand.
const CLOSERS: [&str; 8] = ["then", "do", "done", "fi", "elif", "else", "esac", "}"];

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            code: text.as_bytes(),
            at: 0,
            depth: 0,
            fixed: None,
            here_documents: Vec::new(),
            awaited: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// Reads a text that was cut out of this one (backticks, here-documents).
    pub(super) fn within<T>(&mut self, text: &str, read: impl FnOnce(&mut Parser<'_>) -> T) -> T {
        let mut inner = Parser::new(text);
        inner.depth = self.depth;
        inner.fixed = Some(self.offset());
        std::mem::swap(&mut inner.here_documents, &mut self.here_documents);
        std::mem::swap(&mut inner.troubles, &mut self.troubles);
        let result = read(&mut inner);
        self.here_documents = inner.here_documents;
        self.troubles = inner.troubles;
        result
    }

    pub(super) fn offset(&self) -> Offset {
        self.fixed.unwrap_or(self.at)
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.code.get(self.at + ahead).copied()
    }

    pub(super) fn looking_at(&self, text: &str) -> bool {
        self.code[self.at.min(self.code.len())..].starts_with(text.as_bytes())
    }

    pub(super) fn trouble(&mut self) {
        self.note(Why::NotParsed);
    }

    fn note(&mut self, why: Why) {
        if self.troubles.len() < MOST_TROUBLES {
            self.troubles.push((self.offset(), why));
        }
    }

    /// One construct deeper; if that is too deep, the text ends here.
    pub(super) fn enter(&mut self) -> bool {
        if self.depth >= DEEPEST {
            self.note(Why::TooDeep);
            self.at = self.code.len();
            return false;
        }
        self.depth += 1;
        true
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    fn skip_something(&mut self) {
        match self.closer() {
            Some(word) => self.at += word.len(),
            None => self.at += 1,
        }
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
    }

    /// Blanks, continued lines and a comment.
    pub(super) fn skip_blanks(&mut self) {
        let start = self.at;
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => self.at += 2,
                Some(b'#') if self.at == start && !self.is_word_start() => return,
                Some(b'#') => {
                    let rest = &self.code[self.at..];
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// Whether the byte before this one ends a word.
    fn is_word_start(&self) -> bool {
        self.at == 0
            || matches!(
                self.code[self.at - 1],
                b' ' | b'\t' | b'\n' | b'\r' | b';' | b'&' | b'|' | b'(' | b')'
            )
    }

    pub(super) fn skip_newlines(&mut self) {
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'\n') {
                return;
            }
            self.newline();
        }
    }

    /// Ends a line: the here-documents that it announced follow.
    fn newline(&mut self) {
        self.at += 1;
        for awaited in std::mem::take(&mut self.awaited) {
            let (start, end, next) = self.here_lines(&awaited);
            let text = &self.text[start..end];
            let text = match awaited.tabs {
                Tabs::Kept => text.to_owned(),
                Tabs::Stripped => {
                    text.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect()
                }
            };
            let at = self.offset();
            let parts = match awaited.text {
                HereText::Literal => smallvec![Part::Quoted(text.into())],
                HereText::Expanded if self.enter() => {
                    let parts = self.within(&text, |inner: &mut Parser<'_>| inner.here_parts());
                    self.leave();
                    parts
                }
                HereText::Expanded => Parts::new(),
            };
            self.here_documents[awaited.number] = Word { at, parts };
            self.at = self.at.max(next);
        }
    }

    /// Where the text of a here-document begins and ends, and where the script goes on.
    fn here_lines(&self, awaited: &Awaited) -> (usize, usize, usize) {
        let start = self.at.min(self.code.len());
        let mut at = start;
        while at < self.code.len() {
            let end = self.code[at..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(self.code.len(), |end| at + end);
            let line = &self.text[at..end];
            let line = if awaited.tabs == Tabs::Stripped { line.trim_start_matches('\t') } else { line };
            if line.trim_end_matches('\r') == awaited.end {
                return (start, at, end);
            }
            at = end + 1;
        }
        (start, self.code.len(), self.code.len())
    }

    /// The reserved word that stands here, if it ends a list.
    fn closer(&self) -> Option<&'static str> {
        // Most commands begin with another letter.
        if !matches!(self.peek(), Some(b't' | b'd' | b'f' | b'e' | b'}')) {
            return None;
        }
        let word = self.bare_word();
        CLOSERS.into_iter().find(|closer| *closer == word)
    }

    /// The word that stands here, as far as it is written without quotes and expansions.
    pub(super) fn bare_word(&self) -> &'a str {
        let rest = &self.code[self.at.min(self.code.len())..];
        let end = rest.iter().position(|byte| ends_bare(*byte)).unwrap_or(rest.len());
        if rest.get(end).is_some_and(|byte| b"'\"$\\`".contains(byte)) {
            return "";
        }
        &self.text[self.at.min(self.code.len())..][..end]
    }

    pub(super) fn expect(&mut self, word: &str) -> bool {
        self.skip_newlines();
        let found = self.bare_word() == word;
        if found {
            self.at += word.len();
        } else {
            self.trouble();
        }
        found
    }

    /// Commands, up to one of these words, `)`, `;;` or a word that ends some list.
    pub(super) fn list(&mut self, until: &[&str]) -> Vec<Node> {
        let mut nodes = Vec::new();
        loop {
            self.skip_newlines();
            match self.peek() {
                None | Some(b')') => break,
                Some(b';') if matches!(self.peek_at(1), Some(b';' | b'&')) => break,
                Some(b';' | b'&' | b'|') => {
                    self.trouble();
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            if let Some(closer) = self.closer() {
                if until.contains(&closer) || self.depth > 0 {
                    break;
                }
                self.trouble();
                self.at += closer.len();
                continue;
            }
            let before = self.at;
            let node = self.and_or();
            self.skip_blanks();
            match self.peek() {
                Some(b'&') if self.peek_at(1) != Some(b'&') => {
                    self.at += 1;
                    nodes.extend(node.map(|node| Node::Background(Box::new(node))));
                }
                Some(b';') if !matches!(self.peek_at(1), Some(b';' | b'&')) => {
                    self.at += 1;
                    nodes.extend(node);
                }
                _ => nodes.extend(node),
            }
            if self.at == before {
                self.trouble();
                self.skip_something();
            }
        }
        nodes
    }

    fn and_or(&mut self) -> Option<Node> {
        let mut nodes = Vec::new();
        loop {
            nodes.extend(self.pipeline());
            self.skip_blanks();
            if !self.looking_at("&&") && !self.looking_at("||") {
                break;
            }
            self.at += 2;
            self.skip_newlines();
        }
        if nodes.len() > 1 { Some(Node::Block(nodes, Vec::new())) } else { nodes.pop() }
    }

    fn pipeline(&mut self) -> Option<Node> {
        while matches!(self.peek(), Some(b'!' | b't')) && matches!(self.bare_word(), "!" | "time") {
            self.at += self.bare_word().len();
            self.skip_blanks();
            if self.bare_word() == "-p" {
                self.at += 2;
                self.skip_blanks();
            }
        }
        let mut nodes = Vec::new();
        loop {
            nodes.extend(self.command());
            self.skip_blanks();
            if self.peek() != Some(b'|') || self.peek_at(1) == Some(b'|') {
                break;
            }
            self.at += if self.peek_at(1) == Some(b'&') { 2 } else { 1 };
            self.skip_newlines();
        }
        if nodes.len() > 1 { Some(Node::Pipeline(nodes)) } else { nodes.pop() }
    }

    pub(super) fn command(&mut self) -> Option<Node> {
        match self.peek() {
            Some(b'(') => return self.compound(|parser| Some(parser.parenthesis())),
            // What all the words below begin with.
            Some(b'{' | b'}' | b'[' | b'c' | b'd' | b'e' | b'f' | b'i' | b's' | b't' | b'u' | b'w') => {}
            _ => return self.simple(),
        }
        match self.bare_word() {
            "{" => self.compound(|parser| Some(parser.block())),
            "if" => self.compound(|parser| Some(parser.if_block())),
            "while" | "until" => self.compound(|parser| Some(parser.while_loop())),
            "for" | "select" => self.compound(|parser| Some(parser.for_loop())),
            "case" => self.compound(|parser| Some(parser.case())),
            "function" => self.compound(Parser::function),
            "[[" => self.compound(|parser| Some(parser.test())),
            "coproc" => {
                self.at += "coproc".len();
                self.skip_blanks();
                self.compound(Parser::command).map(|node| Node::Background(Box::new(node)))
            }
            word if CLOSERS.contains(&word) => None,
            _ => self.simple(),
        }
    }

    pub(super) fn compound(&mut self, read: fn(&mut Self) -> Option<Node>) -> Option<Node> {
        if !self.enter() {
            return None;
        }
        let node = read(self);
        self.leave();
        node
    }

    pub(super) fn redirections(&mut self) -> Vec<Redirection> {
        let mut redirections = Vec::new();
        loop {
            self.skip_blanks();
            match self.redirection() {
                Some(redirection) => redirections.push(redirection),
                None => return redirections,
            }
        }
    }

    pub(super) fn close(&mut self, byte: u8) {
        self.skip_newlines();
        if self.peek() == Some(byte) {
            self.at += 1;
        } else {
            self.trouble();
        }
    }

    fn simple(&mut self) -> Option<Node> {
        let mut simple = Simple { at: self.offset(), ..Simple::default() };
        loop {
            self.skip_blanks();
            if let Some(redirection) = self.redirection() {
                simple.redirections.push(redirection);
                continue;
            }
            if simple.words.is_empty()
                && let Some(assignment) = self.assignment()
            {
                simple.assignments.push(assignment);
                continue;
            }
            if self.peek() == Some(b'(')
                && simple.assignments.is_empty()
                && let [word] = simple.words.as_slice()
                && let Some(name) = word.bare()
            {
                let name = name.into();
                self.at += 1;
                self.close(b')');
                return self.compound_function(name, simple.at);
            }
            match self.word() {
                Some(word) => simple.words.push(word),
                None => break,
            }
        }
        if self.peek() == Some(b'(') {
            self.trouble();
            self.at += 1;
        }
        let nothing =
            simple.words.is_empty() && simple.assignments.is_empty() && simple.redirections.is_empty();
        (!nothing).then_some(Node::Simple(simple))
    }

    fn compound_function(&mut self, name: Text, at: Offset) -> Option<Node> {
        if !self.enter() {
            return None;
        }
        let node = self.function_body(name, at);
        self.leave();
        node
    }

    /// `name=`, `name+=`, `name[…]=` and what follows.
    fn assignment(&mut self) -> Option<Assignment> {
        let rest = &self.code[self.at.min(self.code.len())..];
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let name_length = rest.iter().position(|byte| !is_name(byte))?;
        if name_length == 0 || rest[0].is_ascii_digit() {
            return None;
        }
        let mut end = name_length;
        let mut kind = AssignmentKind::Set;
        if rest[end] == b'[' {
            end += rest[end..].iter().take(LONGEST_SUBSCRIPT).position(|byte| *byte == b']')? + 1;
            kind = AssignmentKind::Array;
        }
        if rest.get(end) == Some(&b'+') {
            end += 1;
            kind = AssignmentKind::Append;
        }
        if rest.get(end) != Some(&b'=') {
            return None;
        }
        let name = self.text[self.at..self.at + name_length].into();
        let subscript = &self.text[self.at + name_length..self.at + end];
        self.at += end + 1;
        let at = self.offset();
        if subscript.contains(['$', '`']) && self.enter() {
            // What is substituted in the index runs too.
            let index = self.within(subscript, |inner: &mut Parser<'_>| inner.here_parts());
            self.leave();
            let mut parts: Parts = smallvec![Part::Arithmetic(index.into_vec())];
            parts.extend(self.word().into_iter().flat_map(|word| word.parts));
            return Some(Assignment { name, value: Word { at, parts }, kind });
        }
        if self.peek() == Some(b'(') {
            let parts = smallvec![self.array()];
            return Some(Assignment { name, value: Word { at, parts }, kind: AssignmentKind::Array });
        }
        let value = self.word().unwrap_or(Word { at, parts: Parts::new() });
        Some(Assignment { name, value, kind })
    }

    pub(super) fn array(&mut self) -> Part {
        self.at += 1;
        let mut words = Vec::new();
        if !self.enter() {
            return Part::Array(words);
        }
        loop {
            self.skip_newlines();
            match self.word() {
                Some(word) => words.push(word),
                None => break,
            }
        }
        self.close(b')');
        self.leave();
        Part::Array(words)
    }

    fn redirection(&mut self) -> Option<Redirection> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.looking_at("&>") {
            self.at += 1;
        }
        let is_process = |parser: &Self| parser.at == start && parser.peek_at(1) == Some(b'(');
        if !matches!(self.peek(), Some(b'<' | b'>')) || is_process(self) {
            self.at = start;
            return None;
        }
        let (operator, kind) = OPERATORS.into_iter().find(|(operator, _)| self.looking_at(operator))?;
        self.at += operator.len();
        self.skip_blanks();
        let Some(target) = self.word() else {
            self.trouble();
            return Some(Redirection { kind: RedirectionKind::Duplicate, target: Word::default() });
        };
        let kind = match kind {
            RedirectionKind::HereDocument(strip) => {
                let number = self.here_documents.len();
                self.here_documents.push(Word::default());
                let (end, text) = target.here_end();
                let text = if text { HereText::Expanded } else { HereText::Literal };
                let tabs = if strip == 1 { Tabs::Stripped } else { Tabs::Kept };
                self.awaited.push(Awaited { number, end, text, tabs });
                RedirectionKind::HereDocument(number)
            }
            // `>&file` is a file, `>&2` and `>&-` are not.
            RedirectionKind::Duplicate if operator == ">&" => match target.bare() {
                Some(text) if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => kind,
                _ => RedirectionKind::Write,
            },
            _ => kind,
        };
        Some(Redirection { kind, target })
    }
}

/// Bytes that end characters that mean themselves. Asked for each byte, some of them thrice: a table.
const ENDS_BARE: [bool; 256] = {
    let ends = b" \t\r\n;&|()<>'\"$\\`";
    let mut table = [false; 256];
    let mut at = 0;
    while at < ends.len() {
        table[ends[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether a byte ends characters that mean themselves.
pub(super) fn ends_bare(byte: u8) -> bool {
    ENDS_BARE[usize::from(byte)]
}

impl Word {
    /// The word, if it is written without quotes and expansions.
    pub(super) fn bare(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Bare(text)] => Some(text),
            _ => None,
        }
    }

    /// The end mark of a here-document, and whether its text is expanded.
    fn here_end(&self) -> (String, bool) {
        let mut end = String::new();
        let mut expanded = true;
        for part in &self.parts {
            match part {
                Part::Bare(text) => end.push_str(text),
                Part::Quoted(text) => {
                    end.push_str(text);
                    expanded = false;
                }
                _ => {}
            }
        }
        (end, expanded)
    }
}
