//! How a program is run: its path, arguments and environment inside the sandbox.

use redoma_jail::{PlanError, Program, WORKSPACE, Weakening};
use redoma_model::Limits;

use crate::language::{Language, Stage};
use crate::runtime::{INSIDE, Runtime, RuntimeError};

/// A program with everything that it is started with, as paths and names inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) path: String,
    pub(crate) argv: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl Invocation {
    /// How `script` in this language is run.
    pub(crate) fn new(
        runtime: &Runtime,
        language: &Language,
        script: &str,
        arguments: &[String],
        limits: &Limits,
    ) -> Result<Self, RuntimeError> {
        let path = runtime.program(language)?;
        let mut argv = vec![path.to_owned()];
        argv.extend(language.arguments.iter().map(|argument| argument.replace("{script}", script)));
        argv.extend_from_slice(arguments);
        let environment = environment(runtime, language, limits);
        Ok(match language.stage {
            None => Self { path: path.to_owned(), argv, environment },
            // inside typescript-cell SCRIPT: compiles, and shows what came of it.
            Some(Stage::TypescriptCell) => {
                let inside = format!("/{INSIDE}");
                let argv = vec![inside.clone(), "typescript-cell".to_owned(), script.to_owned()];
                Self { path: inside, argv, environment }
            }
            Some(Stage::Typescript) => {
                // inside typescript SCRIPT PROGRAM ARGUMENTS…: compiles, then becomes the program.
                let inside = format!("/{INSIDE}");
                let mut staged = vec![inside.clone(), "typescript".to_owned(), script.to_owned()];
                staged.extend(argv);
                Self { path: inside, argv: staged, environment }
            }
        })
    }

    pub(crate) fn environment(&self) -> Vec<(&str, String)> {
        self.environment.iter().map(|(key, value)| (key.as_str(), value.clone())).collect()
    }

    pub(crate) fn program(&self) -> Result<Program, PlanError> {
        Program::new(&self.path, &self.argv, &self.environment())
    }
}

/// All of the environment that a program gets; nothing of ours is in it.
fn environment(runtime: &Runtime, language: &Language, limits: &Limits) -> Vec<(String, String)> {
    let mut environment = vec![
        ("PATH", "/opt/python/bin:/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME", "/home/sandbox".to_owned()),
        ("USER", "sandbox".to_owned()),
        ("LOGNAME", "sandbox".to_owned()),
        ("PWD", WORKSPACE.to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("TZ", "UTC".to_owned()),
        ("TERM", "dumb".to_owned()),
        // Numeric libraries start a thread per core of the host, unless told how many they may use.
        ("OMP_NUM_THREADS", threads(limits)),
        ("OPENBLAS_NUM_THREADS", threads(limits)),
        // For all languages: any program may start Python.
        ("MPLBACKEND", runtime.plot_backend().to_owned()),
        ("MPLCONFIGDIR", "/home/sandbox/.config/matplotlib".to_owned()),
    ];
    environment.extend(language.environment.iter().map(|&(key, value)| (key, value.to_owned())));
    let mut environment: Vec<_> =
        environment.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    if Weakening::from_environment().has("environment") {
        environment.extend(std::env::vars());
    }
    environment
}

fn threads(limits: &Limits) -> String {
    (limits.cpus.0.div_ceil(1000)).max(1).to_string()
}
