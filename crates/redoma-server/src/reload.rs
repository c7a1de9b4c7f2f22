//! A new configuration while the server runs. Reading it is the program's affair; who may ask for it, and when, is ours.

use std::fmt;
use std::sync::Arc;

use redoma_engine::interpreter::Interpreter;
use serde::Serialize;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Reloaded {
    /// The profiles that hold from now on.
    pub profiles: Vec<String>,
    /// What has changed in the file, and counts from the next start on only.
    pub needs_restart: Vec<String>,
}

type Read = dyn Fn(&Interpreter) -> Result<Reloaded, String> + Send + Sync;

/// Reads the configuration again and puts it in force, or says why not: then nothing has changed.
#[derive(Clone)]
pub struct Reload(Arc<Read>);

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

impl Default for Reload {
    fn default() -> Self {
        Self::new(|_| Err("this server has no configuration file".to_owned()))
    }
}

impl Reload {
    pub fn new(read: impl Fn(&Interpreter) -> Result<Reloaded, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(super) fn run(&self, interpreter: &Interpreter) -> Result<Reloaded, String> {
        let result = (self.0)(interpreter);
        match &result {
            Ok(reloaded) => {
                tracing::info!(profiles = ?reloaded.profiles, needs_restart = ?reloaded.needs_restart, "configuration reloaded");
            }
            Err(error) => tracing::error!(error, "the configuration was not reloaded; the former one holds"),
        }
        result
    }
}
