//! The table of languages: data, at the end of this file, so that adding one is adding lines there. Not a file to be read when
//! the program starts, since every `redoma run` waits for that.

use std::path::Path;

/// What happens to the source before the program sees it, inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// TypeScript becomes JavaScript, by this program run inside the sandbox.
    Typescript,
    /// The same for a cell: it is shown, and not run.
    TypescriptCell,
}

/// How a sandbox for this language is made before it is needed, beyond what all are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warm {
    /// By copying an interpreter that has its libraries loaded.
    Zygote,
    /// By starting the program, which then waits.
    Ahead,
}

/// How to run one language. Programs are paths inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language {
    /// Its short name, such as `py`.
    pub id: &'static str,
    /// Other names that people use for it.
    pub names: &'static [&'static str],
    pub extensions: &'static [&'static str],
    /// The script's name in the workspace, where the caller gives none.
    pub script: &'static str,
    /// Where the program may be inside the sandbox; the first that the runtime has is used.
    pub programs: &'static [&'static str],
    /// Its arguments; `{script}` stands for the script's name. The caller's own come behind.
    pub arguments: &'static [&'static str],
    pub environment: &'static [(&'static str, &'static str)],
    pub stage: Option<Stage>,
    pub warm: Option<Warm>,
    /// What to install if no program is there.
    pub missing: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownLanguage {
    #[error("unknown language `{name}`; choose one of {known}")]
    Name { name: String, known: String },
    #[error("can't tell the language of `{file}` from its name; say it with --lang ({known})")]
    File { file: String, known: String },
}

#[derive(Debug, Clone, Copy)]
pub struct Languages(&'static [Language]);

impl Language {
    /// For the cells of a live session: a program that shows what they become.
    pub(crate) fn compiler(&self) -> Option<Self> {
        self.stage.map(|_| Self { stage: Some(Stage::TypescriptCell), ..self.clone() })
    }
}

impl Languages {
    pub fn built_in() -> Self {
        Self(BUILT_IN)
    }

    fn known(&self) -> String {
        let ids: Vec<_> = self.0.iter().map(|language| language.id).collect();
        ids.join(", ")
    }

    pub fn all(&self) -> &'static [Language] {
        self.0
    }

    pub fn by_name(&self, name: &str) -> Result<&'static Language, UnknownLanguage> {
        let wanted = name.to_ascii_lowercase();
        self.0
            .iter()
            .find(|language| language.id == wanted || language.names.contains(&wanted.as_str()))
            .ok_or_else(|| UnknownLanguage::Name { name: name.to_owned(), known: self.known() })
    }

    pub fn by_file(&self, file: &Path) -> Result<&'static Language, UnknownLanguage> {
        let extension = file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        self.0
            .iter()
            .find(|language| language.extensions.contains(&extension.as_str()))
            .ok_or_else(|| UnknownLanguage::File { file: file.display().to_string(), known: self.known() })
    }
}

/// In the order of their names.
const BUILT_IN: &[Language] = &[
    Language {
        id: "bash",
        names: &["sh", "shell"],
        extensions: &["sh", "bash"],
        script: "main.sh",
        programs: &["/usr/bin/bash", "/bin/bash"],
        arguments: &["{script}"],
        environment: &[],
        stage: None,
        warm: None,
        missing: "bash",
    },
    Language {
        id: "js",
        names: &["javascript", "node", "nodejs"],
        extensions: &["js", "mjs", "cjs"],
        script: "main.js",
        programs: NODE,
        arguments: &["{script}"],
        environment: &[],
        stage: None,
        warm: Some(Warm::Ahead),
        missing: "nodejs",
    },
    Language {
        id: "py",
        names: &["python", "python3"],
        extensions: &["py"],
        script: "main.py",
        programs: &["/opt/python/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3"],
        arguments: &["{script}"],
        environment: &[
            // Importing a module from the workspace leaves no __pycache__ among the results.
            ("PYTHONDONTWRITEBYTECODE", "1"),
            // Output comes as it is printed, and what was printed before a kill is not lost.
            ("PYTHONUNBUFFERED", "1"),
        ],
        stage: None,
        warm: Some(Warm::Zygote),
        missing: "python3",
    },
    Language {
        id: "ts",
        names: &["typescript"],
        extensions: &["ts", "mts", "cts", "tsx"],
        script: "main.ts",
        programs: NODE,
        arguments: &["--enable-source-maps", "{script}"],
        environment: &[],
        stage: Some(Stage::Typescript),
        warm: None,
        missing: "nodejs",
    },
];

const NODE: &[&str] = &["/usr/bin/node", "/usr/local/bin/node"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_sound() {
        let languages = Languages::built_in();
        for id in ["py", "js", "ts", "bash"] {
            let language = languages.by_name(id).unwrap();
            assert!(language.arguments.iter().any(|argument| argument.contains("{script}")), "{id}");
            assert!(language.programs.iter().all(|program| program.starts_with('/')), "{id}");
        }
        assert_eq!(languages.by_name("Python3").unwrap().id, "py");
        assert_eq!(languages.by_file(Path::new("a/b.MJS")).unwrap().id, "js");
    }

    #[test]
    fn unknown_names_are_told_what_there_is() {
        let languages = Languages::built_in();
        let error = languages.by_name("cobol").unwrap_err().to_string();
        assert_eq!(error, "unknown language `cobol`; choose one of bash, js, py, ts");
        assert!(languages.by_file(Path::new("Makefile")).is_err());
    }
}
