//! A shell script as a tree.
//!
//! Only what facts need is kept: `if`, `elif` and `else` are bodies one after the other, tests and arithmetic are there for
//! the commands that are substituted in them.

use smallvec::SmallVec;

use crate::facts::Text;

/// A byte offset in the script.
pub(super) type Offset = usize;

#[derive(Debug)]
pub(super) enum Node {
    Simple(Simple),
    /// Two or more, the output of each into the next.
    Pipeline(Vec<Node>),
    Background(Box<Node>),
    /// Bodies in the order of the text, in this shell.
    Block(Vec<Node>, Vec<Redirection>),
    /// Bodies in a shell of their own: what they set is gone afterwards.
    Subshell(Vec<Node>, Vec<Redirection>),
    Loop {
        body: Vec<Node>,
        redirections: Vec<Redirection>,
        /// Whether nothing but the body ends it.
        endless: bool,
        at: Offset,
    },
    For {
        variable: Text,
        words: Vec<Word>,
        body: Vec<Node>,
        redirections: Vec<Redirection>,
    },
    Function {
        name: Text,
        body: Box<Node>,
        at: Offset,
    },
}

#[derive(Debug, Default)]
pub(super) struct Simple {
    pub at: Offset,
    pub assignments: Vec<Assignment>,
    pub words: Vec<Word>,
    pub redirections: Vec<Redirection>,
}

#[derive(Debug)]
pub(super) struct Assignment {
    pub name: Text,
    pub value: Word,
    pub kind: AssignmentKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssignmentKind {
    Set,
    Append,
    /// Of an element or of a whole array.
    Array,
}

#[derive(Debug)]
pub(super) struct Redirection {
    pub kind: RedirectionKind,
    /// A file, a here-string, or the end mark of a here-document.
    pub target: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectionKind {
    Read,
    Write,
    HereString,
    /// Its text is the parser's here-document of this number.
    HereDocument(usize),
    /// `2>&1`
    Duplicate,
}

/// Most words are of one part, or of quotes and what is in them.
pub(super) type Parts = SmallVec<[Part; 2]>;

#[derive(Debug, Default)]
pub(super) struct Word {
    pub at: Offset,
    pub parts: Parts,
}

#[derive(Debug)]
pub(super) enum Part {
    /// Written without quotes: braces, `~` and globs mean something.
    Bare(Text),
    /// From quotes or after a backslash.
    Quoted(Text),
    Variable(Box<Variable>),
    Substitution {
        body: Vec<Node>,
        quoting: Quoting,
    },
    /// `<(…)` and `>(…)`
    Process(Vec<Node>),
    /// `$((…))` and what is substituted in it.
    Arithmetic(Vec<Part>),
    /// `(a b c)` after `name=`.
    Array(Vec<Word>),
}

#[derive(Debug)]
pub(super) struct Variable {
    pub name: Text,
    pub quoting: Quoting,
    pub change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    Bare,
    Quoted,
}

/// What `${…}` does to a variable.
#[derive(Debug)]
pub(super) enum Change {
    None,
    /// `${name:-word}`, `${name-word}`, `:=`, `=`
    Default(Word),
    /// `${name:+word}`
    Alternative(Word),
    /// `${name:2:3}`
    Slice(String),
    /// `${name/this/that}` and `//`
    Replace {
        all: bool,
        from: String,
        to: String,
    },
    Upper,
    Lower,
    /// `${!name}`
    Indirect,
    /// Anything else, and what is substituted in it.
    Other(Word),
}
