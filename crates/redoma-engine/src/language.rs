//! The table of languages: data in `languages.toml`, so that adding one is adding lines there.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// The table that is built in.
const BUILT_IN: &str = include_str!("languages.toml");

/// What happens to the source before the program sees it, inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// TypeScript becomes JavaScript, by this program run inside the sandbox.
    Typescript,
    /// The same for a cell: it is shown, and not run.
    #[serde(skip)]
    TypescriptCell,
}

/// How a sandbox for this language is made before it is needed, beyond what all are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warm {
    /// By copying an interpreter that has its libraries loaded.
    Zygote,
    /// By starting the program, which then waits.
    Ahead,
}

/// How to run one language.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Language {
    /// Its short name, such as `py`; the key in the table.
    #[serde(skip)]
    pub id: String,
    /// Other names that people use for it.
    pub names: Vec<String>,
    pub extensions: Vec<String>,
    /// The script's name in the workspace, where the caller gives none.
    pub script: String,
    /// Where the program may be inside the sandbox; the first that the runtime has is used.
    pub programs: Vec<String>,
    /// Its arguments; `{script}` stands for the script's name. The caller's own come behind.
    pub arguments: Vec<String>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub stage: Option<Stage>,
    #[serde(default)]
    pub warm: Option<Warm>,
    /// What to install if no program is there.
    pub missing: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownLanguage {
    #[error("unknown language `{name}`; choose one of {known}")]
    Name { name: String, known: String },
    #[error("can't tell the language of `{file}` from its name; say it with --lang ({known})")]
    File { file: String, known: String },
}

#[derive(Debug, Clone)]
pub struct Languages(Vec<Language>);

impl Language {
    /// For the cells of a live session: a program that shows what they become.
    pub(crate) fn compiler(&self) -> Option<Self> {
        self.stage.map(|_| Self { stage: Some(Stage::TypescriptCell), ..self.clone() })
    }
}

impl Languages {
    pub fn built_in() -> Self {
        let table: BTreeMap<String, Language> =
            toml::from_str(BUILT_IN).expect("the built-in table is checked by a test");
        Self(table.into_iter().map(|(id, language)| Language { id, ..language }).collect())
    }

    fn known(&self) -> String {
        let ids: Vec<_> = self.0.iter().map(|language| language.id.as_str()).collect();
        ids.join(", ")
    }

    pub fn all(&self) -> &[Language] {
        &self.0
    }

    pub fn by_name(&self, name: &str) -> Result<&Language, UnknownLanguage> {
        let wanted = name.to_ascii_lowercase();
        self.0
            .iter()
            .find(|language| language.id == wanted || language.names.contains(&wanted))
            .ok_or_else(|| UnknownLanguage::Name { name: name.to_owned(), known: self.known() })
    }

    pub fn by_file(&self, file: &Path) -> Result<&Language, UnknownLanguage> {
        let extension = file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        self.0
            .iter()
            .find(|language| language.extensions.contains(&extension))
            .ok_or_else(|| UnknownLanguage::File { file: file.display().to_string(), known: self.known() })
    }
}

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
