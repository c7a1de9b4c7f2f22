//! Conversations with live variables, by the names that their clients give them.
//!
//! The table is in memory only: after a restart of the server a name begins a new session. One owner can't push out what
//! others have: an owner has at most [`MAX_PER_OWNER`] entries, and a full table evicts from the owner with the most.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redoma_engine::interpreter::{Interpreter, InterpreterError, Target};
use redoma_model::{Owner, Principal, SessionId};

/// Maximum number of entries. An evicted conversation keeps its files; its next request begins a new session.
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of entries of one owner. One more evicts the owner's entry that was not used for longest.
const MAX_PER_OWNER: usize = 2_000;
/// Maximum number of characters of a name; a longer one is cut.
const MAX_NAME: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Conversations(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    owners: HashMap<Owner, HashMap<String, Known>>,
    /// Entries of all owners.
    entries: usize,
}

#[derive(Debug)]
struct Known {
    session: SessionId,
    used: Instant,
}

impl Conversations {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this owner that has this name; a new one, if there is none or it is over. To be called after all
    /// other checks: a request that is refused must not open a session. Asks the store, so off the threads that serve connections.
    pub(super) fn target(
        &self,
        interpreter: &Interpreter,
        principal: &Principal,
        name: &str,
    ) -> Result<Target, InterpreterError> {
        let name: String = name.chars().take(MAX_NAME).collect();
        let known = self.table().touch(&principal.owner, &name);
        if let Some(session) = &known {
            match interpreter.session(principal, session, None) {
                Ok(session) => return Ok(Target::Session(session.id)),
                Err(InterpreterError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        // Without the lock: this waits for the disk.
        let session = interpreter.open_conversation(principal)?.id;
        Ok(Target::Session(self.table().insert(&principal.owner, name, known.as_ref(), session)))
    }
}

impl Table {
    fn touch(&mut self, owner: &Owner, name: &str) -> Option<SessionId> {
        let known = self.owners.get_mut(owner)?.get_mut(name)?;
        known.used = Instant::now();
        Some(known.session.clone())
    }

    /// Remembers a session in the place of `former`. The session that counts: another request of the same name may have
    /// been faster.
    fn insert(
        &mut self,
        owner: &Owner,
        name: String,
        former: Option<&SessionId>,
        session: SessionId,
    ) -> SessionId {
        let used = Instant::now();
        if let Some(known) = self.owners.get_mut(owner).and_then(|own| own.get_mut(&name)) {
            if Some(&known.session) == former {
                *known = Known { session, used };
            }
            return known.session.clone();
        }
        let own = self.owners.get(owner).map_or(0, HashMap::len);
        if own >= MAX_PER_OWNER {
            self.evict(&owner.clone());
        } else if self.entries >= MAX_ENTRIES
            && let Some(most) =
                self.owners.iter().max_by_key(|(_, own)| own.len()).map(|(owner, _)| owner.clone())
        {
            self.evict(&most);
        }
        let known = Known { session: session.clone(), used };
        self.owners.entry(owner.clone()).or_default().insert(name, known);
        self.entries += 1;
        session
    }

    /// Forgets the owner's conversation that was not used for longest.
    fn evict(&mut self, owner: &Owner) {
        let Some(own) = self.owners.get_mut(owner) else { return };
        let oldest = own.iter().min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest
            && own.remove(&oldest).is_some()
        {
            self.entries -= 1;
        }
        if own.is_empty() {
            self.owners.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(user: &str) -> Owner {
        Owner { client: "chat".to_owned(), user: Some(user.to_owned()) }
    }

    fn session(number: u32) -> SessionId {
        let mut random = [0; 21];
        random[..4].copy_from_slice(&number.to_le_bytes());
        SessionId::from_random(random)
    }

    #[test]
    fn a_flood_of_names_evicts_only_its_own_owner() {
        let mut table = Table::default();
        let kept = table.insert(&owner("victim"), "talk".to_owned(), None, session(0));
        for number in 0..12_001 {
            // Six owners, so that the table as a whole is full too.
            let flooder = owner(&format!("flooder {}", number % 6));
            table.insert(&flooder, number.to_string(), None, session(number));
        }
        assert_eq!(table.touch(&owner("victim"), "talk"), Some(kept));
        assert_eq!(table.entries, MAX_ENTRIES);
        assert_eq!(table.owners.values().map(HashMap::len).sum::<usize>(), MAX_ENTRIES);
        for number in 0..MAX_PER_OWNER * 2 {
            table.insert(&owner("one"), number.to_string(), None, session(1));
        }
        assert!(table.owners[&owner("one")].len() <= MAX_PER_OWNER);
    }

    #[test]
    fn of_two_requests_at_once_the_first_decides() {
        let (mut table, ana) = (Table::default(), owner("ana"));
        assert_eq!(table.insert(&ana, "talk".to_owned(), None, session(1)), session(1));
        assert_eq!(table.insert(&ana, "talk".to_owned(), None, session(2)), session(1));
        // A session that is over is replaced once.
        let over = session(1);
        assert_eq!(table.insert(&ana, "talk".to_owned(), Some(&over), session(3)), session(3));
        assert_eq!(table.insert(&ana, "talk".to_owned(), Some(&over), session(4)), session(3));
        assert_eq!(table.entries, 1);
    }
}
