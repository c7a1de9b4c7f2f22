//! A new configuration for a server that runs: the whole file is read and checked first, and a bad one changes nothing.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use redoma_engine::interpreter::Interpreter;
use redoma_server::Reloaded;

use crate::cli::Global;
use crate::config::Config;
use crate::config::command::check_for_start;

#[derive(Debug)]
pub struct Reloader {
    /// The file that was named on the command line.
    config: Option<PathBuf>,
    data_dir: PathBuf,
    /// What the server was started with: what of it has changed since needs another start.
    started_with: Config,
    /// One after the other.
    turn: Mutex<()>,
}

impl Reloader {
    pub fn new(global: &Global, data_dir: &Path, started_with: Config) -> Self {
        let (config, data_dir) = (global.config.clone(), data_dir.to_owned());
        Self { config, data_dir, started_with, turn: Mutex::default() }
    }

    /// What came of it, or why nothing did.
    pub fn reload(&self, interpreter: &Interpreter) -> Result<Reloaded, String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.try_to(interpreter).map_err(|error| format!("{error:#}"))
    }

    fn try_to(&self, interpreter: &Interpreter) -> anyhow::Result<Reloaded> {
        // The file that the server was started with, and no other: one that is away for a moment is no wish for the defaults.
        let config = if let Some(path) = self.started_with.path() {
            let config = Config::read(path)?;
            if config.is_empty() && !self.started_with.is_empty() {
                anyhow::bail!("{} is empty: is somebody writing it? Nothing was changed", path.display());
            }
            config
        } else {
            let global = Global { config: self.config.clone(), data_dir: Some(self.data_dir.clone()) };
            Config::load(&global, &self.data_dir)?
        };
        let (now, before) = (config.profile(None)?, self.started_with.profile(None)?);
        let book = config.book().context("nothing was changed")?;
        check_for_start(&config).context("nothing was changed")?;
        let mut needs_restart = config.sections_that_differ(&self.started_with);
        if now.runtime != before.runtime {
            anyhow::bail!("the runtime is another one: that needs a restart, and nothing was changed");
        }
        if now.preload != before.preload {
            needs_restart.push("profiles.default.preload".to_owned());
        }
        let profiles = book.all().map(|governed| governed.profile.name.clone()).collect();
        interpreter.replace_profiles(book);
        Ok(Reloaded { profiles, needs_restart })
    }
}
