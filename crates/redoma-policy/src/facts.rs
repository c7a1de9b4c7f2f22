//! What code does, as far as its text tells.
//!
//! Readers (one per language) write facts down in the order of the text, rules read them. A fact that came out of code in
//! code (`sh -c '…'`, `os.system("…")`, a here-document for `python3`) is there beside the one that holds it, and says how
//! deep it was found.

use std::borrow::Cow;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

/// Languages that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Language {
    Python,
    JavaScript,
    TypeScript,
    Bash,
}

/// Where something stands in the text that was given: both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// One thing that code does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    pub what: What,
    /// In the outermost text: code in code stands where the code around it does.
    pub at: Position,
    /// In which language it was found.
    pub language: Language,
    /// How many programs deep: 0 for what is written down directly.
    pub depth: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A program is run, by a shell or by a call that takes a program and its arguments.
    /// Apart, since it is far larger than the others, and a list of facts is moved as a whole.
    Command(Box<Command>),
    /// A function is called.
    Call(Call),
    /// A module is loaded.
    Import(Import),
    /// A function or a loop starts copies of itself (`:(){ :|:& };:`, `while True: os.fork()`).
    Multiplies,
    /// Something runs that this reader can't see into.
    Opaque(Opaque),
}

/// A program with its arguments. Wrappers (`sudo`, `env`, `xargs`, `nohup`, `timeout`, …) have been taken off and are
/// listed; each is also there as a command of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// As written, without quotes: `/bin/rm` stays `/bin/rm`; see [`Command::name`].
    pub program: Value,
    pub arguments: Vec<Value>,
    /// From the outside in, names only.
    pub wrappers: Vec<Text>,
    pub redirects: Vec<Redirect>,
    /// The programs whose output it reads through pipes, first to last.
    pub reads_from: Vec<Text>,
}

impl Command {
    /// The program's name without its folder, if it is known.
    pub fn name(&self) -> Option<&str> {
        let Value::Known(path) = &self.program else { return None };
        Some(path.rfind('/').map_or(path.as_str(), |folder| &path[folder + 1..]))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    pub is_write: bool,
    pub to: Value,
}

/// A call of a function whose name could be told from the imports: `os.system`, `subprocess.run`, `child_process.exec`,
/// `eval`. Methods of unknown objects begin with a dot: `.system`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub name: String,
    pub arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Of a keyword argument, or of an option in an object literal (`{ shell: true }`).
    pub name: Option<String>,
    pub value: Value,
}

/// A text in a fact. Most are a word, and a word of up to 24 bytes costs no memory of its own: getting and giving back
/// memory for each was most of what reading a script cost.
pub type Text = CompactString;

/// What is known of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A text, or a number, `True`, `false`, `None` as text.
    Known(Text),
    /// A list, tuple or array.
    List(Vec<Value>),
    /// Begins with this text, and then something follows that is not known.
    Begins(Text, Source),
    Unknown(Source),
}

impl Value {
    /// An empty text.
    pub const EMPTY: Self = Self::Known(Text::const_new(""));

    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            _ => None,
        }
    }

    /// As a person would write it down, with … for what is not known.
    pub fn shown(&self) -> Cow<'_, str> {
        match self {
            Self::Known(text) => text.as_str().into(),
            Self::Begins(text, _) => format!("{text}…").into(),
            Self::List(values) => {
                let values: Vec<_> = values.iter().map(Self::shown).collect();
                values.join(" ").into()
            }
            Self::Unknown(_) => "…".into(),
        }
    }
}

/// Where something that is not known comes from; the later, the worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// A variable or a function's result, of this program's own making as far as can be seen.
    Variable,
    /// A parameter of the function that this stands in.
    Parameter,
    /// Arguments of the program, its environment, input, a request, a file, the network.
    Input,
}

/// A module that is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// `matplotlib.pyplot`, `node:fs`, `./local`; not known if it is computed.
    pub module: Value,
}

/// Why something can't be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opaque {
    /// What runs it: `eval`, `sh`, `exec`, a variable as a program.
    pub by: String,
    pub why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Why {
    /// The code or the program's name is computed.
    Computed,
    /// It is decoded first (base64, hex, gzip, rot13, char codes).
    Decoded,
    /// The text is not valid in its language.
    NotParsed,
    /// It is nested or large beyond what is looked into.
    TooDeep,
}
