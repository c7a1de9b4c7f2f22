//! Libraries that a profile allows, by the names under which they are imported.
//!
//! What comes with the language is always allowed, and so are files beside the program where they are named as such
//! (`from . import x`, `./x.js`). The import hook in the sandbox is what enforces the list; here it is seen ahead, so that a
//! model is told before anything runs, and what it can use instead.

use crate::facts::Language;

/// What a session gives its programs, or comes with matplotlib: `ALWAYS` of the guard inside (`redoma_imports.py`).
pub(crate) const GIVEN: [&str; 6] =
    ["IPython", "google", "ipywidgets", "redoma_plots", "mpl_toolkits", "pylab"];

/// Names that may be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Libraries {
    allowed: Vec<String>,
}

impl Libraries {
    pub fn new(allowed: &[String]) -> Self {
        Self { allowed: allowed.to_vec() }
    }

    /// The library that an import needs, if it is not allowed.
    pub fn refused<'m>(&self, language: Language, module: &'m str) -> Option<&'m str> {
        let library = match language {
            Language::Bash => return None,
            Language::Python => {
                let library = module.split('.').next().filter(|name| !name.is_empty())?;
                if PYTHON.binary_search(&library).is_ok()
                    || library.starts_with('_')
                    || GIVEN.contains(&library)
                {
                    return None;
                }
                library
            }
            Language::JavaScript | Language::TypeScript => {
                if module.is_empty() || module.starts_with(['.', '/', '#']) || module.contains(':') {
                    return None;
                }
                let mut parts = module.match_indices('/').map(|(at, _)| at);
                let end = if module.starts_with('@') { parts.nth(1) } else { parts.next() };
                let library = &module[..end.unwrap_or(module.len())];
                if NODE.binary_search(&library).is_ok() {
                    return None;
                }
                library
            }
        };
        let is_it = |allowed: &String| {
            allowed == library || allowed.split('.').next() == Some(library) && language == Language::Python
        };
        (!self.allowed.iter().any(is_it)).then_some(library)
    }

    /// What to do instead, for the model.
    pub fn hint(&self, library: &str) -> String {
        const MOST: usize = 40;
        if self.allowed.is_empty() {
            return "use the standard library; no other library is allowed here".to_owned();
        }
        let nearest = nearest(library, self.allowed.iter().map(String::as_str));
        let listed: Vec<_> = self.allowed.iter().take(MOST).map(String::as_str).collect();
        let more = if self.allowed.len() > MOST { ", …" } else { "" };
        let listed = format!("the standard library and {}{more} can be imported", listed.join(", "));
        match nearest {
            Some(name) => format!("did you mean `{name}`? {listed}"),
            None => listed,
        }
    }
}

/// The name that looks most like this one, if one does.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > 64 {
        return None;
    }
    names
        .filter(|other| other.len() <= 64)
        .map(|other| (distance(&name.to_lowercase(), &other.to_lowercase()), other))
        .filter(|(distance, other)| *distance <= 1 + other.len() / 4)
        .min()
        .map(|(_, other)| other)
}

/// How many letters have to be changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, compared) in other.iter().enumerate() {
            let above = row[column + 1];
            row[column + 1] = (corner + usize::from(letter != *compared)).min(above + 1).min(row[column] + 1);
            corner = above;
        }
    }
    row[other.len()]
}

/// What comes with Python 3.11 to 3.13, sorted.
const PYTHON: &[&str] = &[
    "__future__",
    "__main__",
    "_collections_abc",
    "_csv",
    "_ctypes",
    "_io",
    "_json",
    "_pickle",
    "_posixsubprocess",
    "_random",
    "_socket",
    "_struct",
    "_thread",
    "_weakref",
    "abc",
    "aifc",
    "antigravity",
    "argparse",
    "array",
    "ast",
    "asynchat",
    "asyncio",
    "asyncore",
    "atexit",
    "audioop",
    "base64",
    "bdb",
    "binascii",
    "bisect",
    "builtins",
    "bz2",
    "cProfile",
    "calendar",
    "cgi",
    "cgitb",
    "chunk",
    "cmath",
    "cmd",
    "code",
    "codecs",
    "codeop",
    "collections",
    "colorsys",
    "compileall",
    "concurrent",
    "configparser",
    "contextlib",
    "contextvars",
    "copy",
    "copyreg",
    "crypt",
    "csv",
    "ctypes",
    "curses",
    "dataclasses",
    "datetime",
    "dbm",
    "decimal",
    "difflib",
    "dis",
    "distutils",
    "doctest",
    "email",
    "encodings",
    "ensurepip",
    "enum",
    "errno",
    "faulthandler",
    "fcntl",
    "filecmp",
    "fileinput",
    "fnmatch",
    "fractions",
    "ftplib",
    "functools",
    "gc",
    "genericpath",
    "getopt",
    "getpass",
    "gettext",
    "glob",
    "graphlib",
    "grp",
    "gzip",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "http",
    "idlelib",
    "imaplib",
    "imghdr",
    "imp",
    "importlib",
    "inspect",
    "io",
    "ipaddress",
    "itertools",
    "json",
    "keyword",
    "lib2to3",
    "linecache",
    "locale",
    "logging",
    "lzma",
    "mailbox",
    "mailcap",
    "marshal",
    "math",
    "mimetypes",
    "mmap",
    "modulefinder",
    "msilib",
    "msvcrt",
    "multiprocessing",
    "netrc",
    "nis",
    "nntplib",
    "nt",
    "ntpath",
    "nturl2path",
    "numbers",
    "opcode",
    "operator",
    "optparse",
    "os",
    "ossaudiodev",
    "pathlib",
    "pdb",
    "pickle",
    "pickletools",
    "pipes",
    "pkgutil",
    "platform",
    "plistlib",
    "poplib",
    "posix",
    "posixpath",
    "pprint",
    "profile",
    "pstats",
    "pty",
    "pwd",
    "py_compile",
    "pyclbr",
    "pydoc",
    "pydoc_data",
    "pyexpat",
    "queue",
    "quopri",
    "random",
    "re",
    "readline",
    "reprlib",
    "resource",
    "rlcompleter",
    "runpy",
    "sched",
    "secrets",
    "select",
    "selectors",
    "shelve",
    "shlex",
    "shutil",
    "signal",
    "site",
    "smtpd",
    "smtplib",
    "sndhdr",
    "socket",
    "socketserver",
    "spwd",
    "sqlite3",
    "sre_compile",
    "sre_constants",
    "sre_parse",
    "ssl",
    "stat",
    "statistics",
    "string",
    "stringprep",
    "struct",
    "subprocess",
    "sunau",
    "symtable",
    "sys",
    "sysconfig",
    "syslog",
    "tabnanny",
    "tarfile",
    "telnetlib",
    "tempfile",
    "termios",
    "textwrap",
    "this",
    "threading",
    "time",
    "timeit",
    "tkinter",
    "token",
    "tokenize",
    "tomllib",
    "trace",
    "traceback",
    "tracemalloc",
    "tty",
    "turtle",
    "turtledemo",
    "types",
    "typing",
    "unicodedata",
    "unittest",
    "urllib",
    "uu",
    "uuid",
    "venv",
    "warnings",
    "wave",
    "weakref",
    "webbrowser",
    "winreg",
    "winsound",
    "wsgiref",
    "xdrlib",
    "xml",
    "xmlrpc",
    "zipapp",
    "zipfile",
    "zipimport",
    "zlib",
    "zoneinfo",
];

/// What comes with Node, sorted.
const NODE: &[&str] = &[
    "assert",
    "async_hooks",
    "buffer",
    "child_process",
    "cluster",
    "console",
    "constants",
    "crypto",
    "dgram",
    "diagnostics_channel",
    "dns",
    "domain",
    "events",
    "fs",
    "http",
    "http2",
    "https",
    "inspector",
    "module",
    "net",
    "os",
    "path",
    "perf_hooks",
    "process",
    "punycode",
    "querystring",
    "readline",
    "repl",
    "sea",
    "sqlite",
    "stream",
    "string_decoder",
    "sys",
    "test",
    "timers",
    "tls",
    "trace_events",
    "tty",
    "url",
    "util",
    "v8",
    "vm",
    "wasi",
    "worker_threads",
    "zlib",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries() -> Libraries {
        Libraries::new(&["numpy".to_owned(), "pandas".to_owned(), "@scope/thing".to_owned()])
    }

    #[test]
    fn what_comes_with_the_language_is_always_allowed() {
        assert!(PYTHON.is_sorted() && NODE.is_sorted());
        for module in ["os", "os.path", "xml.etree.ElementTree", "tomllib", "", ".local"] {
            assert_eq!(libraries().refused(Language::Python, module), None, "{module}");
        }
        for module in ["fs", "node:fs", "fs/promises", "./x.js", "../x", "/mnt/data/x.js"] {
            assert_eq!(libraries().refused(Language::JavaScript, module), None, "{module}");
        }
    }

    #[test]
    fn a_library_is_refused_unless_it_is_listed() {
        assert_eq!(libraries().refused(Language::Python, "numpy.linalg"), None);
        assert_eq!(libraries().refused(Language::Python, "torch.nn"), Some("torch"));
        assert_eq!(libraries().refused(Language::JavaScript, "@scope/thing/deep"), None);
        assert_eq!(libraries().refused(Language::TypeScript, "lodash/get"), Some("lodash"));
    }

    #[test]
    fn a_slip_is_put_right() {
        assert!(libraries().hint("nunpy").contains("did you mean `numpy`?"));
        assert!(!libraries().hint("torch").contains("did you mean"));
    }
}
