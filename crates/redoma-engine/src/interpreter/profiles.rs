//! Which profile holds for whom, and what it says.
//!
//! Somebody may be *bound* to a profile: by the operator's assignments, or by their key. That then holds wherever they run
//! something, also in sessions that began with another one. Whoever is not bound has the profile that the session was opened
//! with. The whole book can be replaced while the server runs; runs that go on keep the page that they began with.

use std::collections::BTreeMap;
use std::sync::Arc;

use redoma_model::{Principal, Profile, ProfileAssignment, Retention, Role, Session};

use redoma_policy::{Policy, PolicyError};

use super::InterpreterError;
use crate::request::Terms;

/// A profile, ready for use.
#[derive(Debug)]
pub struct GovernedProfile {
    pub profile: Profile,
    /// Where each of its values came from, by its name with dots.
    pub origins: BTreeMap<String, String>,
    pub(super) terms: Terms,
    pub(super) policy: Policy,
}

/// Why profiles can't be used.
#[derive(Debug, thiserror::Error)]
pub enum BadProfiles {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("assign: there is no profile `{0}`")]
    NoSuchProfile(String),
    #[error(
        "assign: an entry for the profile `{0}` names neither a client nor a user, and would be for all; change `default` instead"
    )]
    ForAll(String),
}

impl GovernedProfile {
    pub fn new(profile: Profile, origins: BTreeMap<String, String>) -> Result<Self, BadProfiles> {
        let terms = Terms::from(&profile);
        let policy = Policy::compile(&profile.policy, profile.libraries.listed())?;
        Ok(Self { profile, origins, terms, policy })
    }

    /// The ids of all rules that hold.
    pub(super) fn rules(&self) -> Vec<String> {
        self.policy.explain().into_iter().map(|explained| explained.rule).collect()
    }
}

/// Why somebody has the profile that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// An assignment names them.
    OfAssignment,
    /// Their key is bound to it.
    OfKey,
    /// Nothing else is said.
    ItIsTheDefault,
}

/// All profiles, and who has which.
#[derive(Debug, Clone)]
pub struct ProfileBook {
    profiles: BTreeMap<String, Arc<GovernedProfile>>,
    default: Arc<GovernedProfile>,
    assignments: Vec<ProfileAssignment>,
}

impl ProfileBook {
    pub fn new(
        profiles: Vec<GovernedProfile>,
        assignments: Vec<ProfileAssignment>,
    ) -> Result<Self, BadProfiles> {
        let profiles: BTreeMap<_, _> = profiles
            .into_iter()
            .map(|governed| (governed.profile.name.clone(), Arc::new(governed)))
            .collect();
        let default = match profiles.get("default") {
            Some(default) => Arc::clone(default),
            None => Arc::new(GovernedProfile::new(Profile::default(), BTreeMap::new())?),
        };
        let book = Self { profiles, default, assignments };
        for assignment in &book.assignments {
            let name = &assignment.profile;
            if assignment.client.is_none() && assignment.user.is_none() {
                return Err(BadProfiles::ForAll(name.clone()));
            }
            if !book.profiles.contains_key(name) {
                return Err(BadProfiles::NoSuchProfile(name.clone()));
            }
        }
        Ok(book)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<GovernedProfile>> {
        self.profiles.values()
    }

    pub fn by_name(&self, name: &str) -> Option<&Arc<GovernedProfile>> {
        self.profiles.get(name)
    }

    /// The profile that this session was opened with, or the default one; for what concerns the session and no run.
    pub(super) fn of_name_or_default(&self, name: &str) -> &Arc<GovernedProfile> {
        self.profiles.get(name).unwrap_or(&self.default)
    }

    /// What somebody is bound to, by name. Who is named goes before the key, and that before the client.
    fn bound<'a>(&'a self, principal: &'a Principal) -> Option<(&'a str, Because)> {
        let of_client = |assignment: &&ProfileAssignment| {
            assignment.client.as_ref().is_none_or(|client| *client == principal.owner.client)
        };
        let mut assigned = self.assignments.iter().filter(of_client);
        // A client says itself for whom it acts: that does not get it out of what its key is bound to, unless the operator
        // has said so of this client.
        let counts = |assignment: &&ProfileAssignment| {
            assignment.client.is_some() || principal.is_proven || principal.profile.is_none()
        };
        let named = assigned
            .clone()
            .filter(counts)
            .find(|assignment| assignment.user.is_some() && assignment.user == principal.owner.user);
        let mut by_client = || assigned.find(|assignment| assignment.user.is_none());
        match (named, &principal.profile) {
            (Some(assignment), _) => Some((&assignment.profile, Because::OfAssignment)),
            (None, Some(profile)) => Some((profile, Because::OfKey)),
            (None, None) => by_client().map(|assignment| (&*assignment.profile, Because::OfAssignment)),
        }
    }

    /// The profile of somebody who names none.
    pub fn of(&self, principal: &Principal) -> Result<(&Arc<GovernedProfile>, Because), InterpreterError> {
        match self.bound(principal) {
            Some((name, because)) => Ok((self.known(name)?, because)),
            None => Ok((&self.default, Because::ItIsTheDefault)),
        }
    }

    /// The profile of a new session, if they may have this one.
    pub fn choose(
        &self,
        principal: &Principal,
        wanted: Option<&str>,
    ) -> Result<&Arc<GovernedProfile>, InterpreterError> {
        let Some(wanted) = wanted else { return self.of(principal).map(|(governed, _)| governed) };
        let bound = self.bound(principal).map(|(name, _)| name);
        if bound.is_some_and(|bound| bound != wanted) && principal.role != Role::Admin {
            let detail =
                format!("the profile here is `{}`; another can't be chosen", bound.unwrap_or_default());
            return Err(InterpreterError::Forbidden(detail));
        }
        let governed = self.profiles.get(wanted);
        let governed = governed
            .ok_or_else(|| InterpreterError::BadRequest(format!("there is no profile `{wanted}`")))?;
        let is_open = governed.profile.for_users || bound.is_some();
        if principal.role == Role::User && !is_open {
            let detail =
                format!("the profile `{wanted}` can't be chosen with a user's key; ask for one bound to it");
            return Err(InterpreterError::Forbidden(detail));
        }
        Ok(governed)
    }

    /// How long something of theirs may be kept: whoever is bound to a profile not longer than that says.
    pub(super) fn retention(&self, principal: &Principal, wanted: Retention) -> Retention {
        let most = match self.bound(principal) {
            Some((name, _)) if principal.role != Role::Admin => &self.of_name_or_default(name).profile,
            _ => return wanted,
        };
        match (most.retention, wanted) {
            (Retention::For(most), Retention::For(wanted)) => Retention::For(most.min(wanted)),
            (Retention::For(most), Retention::Forever) => Retention::For(most),
            (Retention::Forever, wanted) => wanted,
        }
    }

    /// The profile of a run in this session.
    pub(super) fn of_run(
        &self,
        principal: &Principal,
        session: &Session,
    ) -> Result<&Arc<GovernedProfile>, InterpreterError> {
        match self.bound(principal) {
            Some((name, _)) => self.known(name),
            None => self.known(&session.profile),
        }
    }

    /// One that was there and is not any more does not become another, which may allow more.
    fn known(&self, name: &str) -> Result<&Arc<GovernedProfile>, InterpreterError> {
        self.profiles.get(name).ok_or_else(|| {
            let detail = format!(
                "the profile `{name}` is not in the server's configuration any more; tell its operator"
            );
            InterpreterError::Forbidden(detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoma_model::Owner;

    fn book(assignments: &[(Option<&str>, Option<&str>, &str)]) -> Result<ProfileBook, BadProfiles> {
        let profile = |name: &str, for_users| {
            let profile = Profile { name: name.to_owned(), for_users, ..Profile::default() };
            GovernedProfile::new(profile, BTreeMap::new()).unwrap()
        };
        let owned = |name: Option<&str>| name.map(ToOwned::to_owned);
        let assignments = assignments
            .iter()
            .map(|(client, user, name)| ProfileAssignment {
                client: owned(*client),
                user: owned(*user),
                profile: (*name).to_owned(),
            })
            .collect();
        ProfileBook::new(
            vec![profile("default", true), profile("strict", true), profile("agent", false)],
            assignments,
        )
    }

    fn principal(role: Role, user: Option<&str>, key: Option<&str>) -> Principal {
        let owner = Owner { client: "chat".to_owned(), user: user.map(ToOwned::to_owned) };
        Principal { profile: key.map(ToOwned::to_owned), ..Principal::without_key(role, owner, true) }
    }

    fn name(book: &ProfileBook, principal: &Principal) -> (String, Because) {
        let (governed, because) = book.of(principal).unwrap();
        (governed.profile.name.clone(), because)
    }

    #[test]
    fn who_is_named_goes_before_the_key_and_that_before_the_client() {
        let book = book(&[(Some("chat"), None, "agent"), (None, Some("ana"), "strict")]).unwrap();
        let of = |user, key| name(&book, &principal(Role::Client, user, key));
        assert_eq!(of(Some("ana"), None), ("strict".to_owned(), Because::OfAssignment));
        let ana = Principal { is_proven: false, ..principal(Role::Client, Some("ana"), Some("default")) };
        assert_eq!(name(&book, &ana), ("default".to_owned(), Because::OfKey), "a name that anybody can say");
        let ana = Principal { is_proven: true, ..ana };
        assert_eq!(name(&book, &ana), ("strict".to_owned(), Because::OfAssignment));
        assert_eq!(of(Some("bo"), Some("default")), ("default".to_owned(), Because::OfKey));
        assert_eq!(of(Some("bo"), None), ("agent".to_owned(), Because::OfAssignment));
        let other = Principal {
            owner: Owner { client: "x".to_owned(), user: None },
            ..principal(Role::Client, None, None)
        };
        assert_eq!(name(&book, &other), ("default".to_owned(), Because::ItIsTheDefault));
    }

    #[test]
    fn who_is_bound_can_not_choose_another() {
        let book = book(&[(None, Some("ana"), "strict")]).unwrap();
        let ana = principal(Role::User, Some("ana"), None);
        assert!(matches!(book.choose(&ana, Some("default")), Err(InterpreterError::Forbidden(_))));
        assert_eq!(book.choose(&ana, Some("strict")).unwrap().profile.name, "strict");
        let bo = principal(Role::User, Some("bo"), None);
        assert!(matches!(book.choose(&bo, Some("agent")), Err(InterpreterError::Forbidden(_))));
        assert!(matches!(book.choose(&bo, Some("agnet")), Err(InterpreterError::BadRequest(_))));
        assert!(book.choose(&bo, Some("strict")).is_ok());
        assert!(book.choose(&principal(Role::Client, None, None), Some("agent")).is_ok());
    }

    #[test]
    fn a_profile_that_is_gone_does_not_become_another() {
        let book = book(&[]).unwrap();
        let gone = principal(Role::Client, None, Some("gone"));
        assert!(matches!(book.of(&gone), Err(InterpreterError::Forbidden(_))));
    }

    #[test]
    fn assignments_are_checked() {
        assert!(
            book(&[(None, Some("a"), "nothing")]).unwrap_err().to_string().contains("no profile `nothing`")
        );
        assert!(book(&[(None, None, "strict")]).unwrap_err().to_string().contains("neither"));
    }
}
