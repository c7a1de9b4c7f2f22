//! Conversations with live variables, by what their clients call them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use redoma_engine::interpreter::{Interpreter, InterpreterError, Target};
use redoma_model::{Owner, Principal, SessionId};

/// So many are remembered; of more, those not used for longest are forgotten. Their files are not.
const MOST: usize = 10_000;
/// A name that is longer is cut.
const LONGEST: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Conversations(Mutex<HashMap<(Owner, String), Known>>);

#[derive(Debug)]
struct Known {
    session: SessionId,
    used: Instant,
}

impl Conversations {
    /// The session of this owner that has this name; a new one, if there is none or it is over.
    pub(super) fn target(
        &self,
        interpreter: &Interpreter,
        principal: &Principal,
        name: &str,
    ) -> Result<Target, InterpreterError> {
        let key = (principal.owner.clone(), name.chars().take(LONGEST).collect::<String>());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get_mut(&key) {
            match interpreter.session(principal, &found.session, None) {
                Ok(session) => {
                    found.used = Instant::now();
                    return Ok(Target::Session(session.id));
                }
                Err(InterpreterError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let session = interpreter.open_session(principal, None, None, None)?;
        if known.len() >= MOST
            && let Some(oldest) = known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone())
        {
            known.remove(&oldest);
        }
        known.insert(key, Known { session: session.id.clone(), used: Instant::now() });
        Ok(Target::Session(session.id))
    }
}
