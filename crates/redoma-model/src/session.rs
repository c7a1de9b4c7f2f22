//! Who asks, whose things are whose, and what a session holds.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::file_name::FileName;
use crate::ids::{ExecutionId, FileId, KeyId, SessionId};

/// Whose something is: a client (a chat front end, or whoever holds a key of their own) and the user it acts for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    pub client: String,
    /// Nobody in particular, where the client names nobody.
    pub user: Option<String>,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything, keys included.
    Admin,
    /// A chat front end: acts for the users that it names.
    Client,
    /// One user.
    User,
}

/// Who makes a request, once that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub role: Role,
    pub owner: Owner,
    /// Whether the user is proven (a signed token, a user's own key) and not merely named by a client, which may leave
    /// users out.
    pub is_proven: bool,
    /// The key that they came with; none for signed tokens, and where no key is needed.
    pub key: Option<KeyId>,
    /// The profile that the key is bound to, if it is to one.
    pub profile: Option<String>,
    /// Where the request came from; unknown for what the server does by itself.
    pub address: Option<IpAddr>,
}

/// What a set of files belongs to in LibreChat: files of an agent or a skill are for all who use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    pub kind: ResourceKind,
    pub id: String,
    /// Skills have versions, whose files are not the same.
    pub version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    User,
    Agent,
    Skill,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub owner: Owner,
    pub name: Option<String>,
    pub profile: String,
    pub resource: Option<Resource>,
    /// Milliseconds since 1970, as all times here.
    pub created_at: i64,
    pub used_at: i64,
    /// When it goes, if it is not used; never, if it is to be kept.
    pub expires_at: Option<i64>,
    /// Bytes of all its files, earlier versions included.
    pub bytes: u64,
    pub files: u64,
}

/// Where a file came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Upload,
    /// A program made or changed it.
    Artifact,
}

/// One version of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    pub id: FileId,
    pub session: SessionId,
    pub name: FileName,
    /// Counts up from 1 with each file of this name.
    pub version: u64,
    /// Whether it is the one that programs see under its name.
    pub is_current: bool,
    pub size: u64,
    /// Hexadecimal.
    pub sha256: String,
    pub content_type: String,
    pub origin: Origin,
    /// Whether changes that programs make to it are dropped.
    pub read_only: bool,
    pub created_at: i64,
    /// The execution that made it.
    pub execution: Option<ExecutionId>,
}

impl Principal {
    /// Somebody who came with no key of the store's.
    pub fn without_key(role: Role, owner: Owner, is_proven: bool) -> Self {
        Self { role, owner, is_proven, key: None, profile: None, address: None }
    }

    /// Whether this is theirs. `claimed` is what the request says that it belongs to.
    ///
    /// Within one client, users that are named on both sides must be the same. A client that names nobody (LibreChat
    /// does not always) is trusted with what its users have, for whoever knows the unguessable id; one whose users are
    /// proven is not. What belongs to an agent or a skill is for everybody who comes with that agent's or skill's id.
    pub fn may_see(&self, session: &Session, claimed: Option<&Resource>) -> bool {
        let is_shared = session
            .resource
            .as_ref()
            .is_some_and(|resource| resource.kind != ResourceKind::User && Some(resource) == claimed);
        let is_same_client = self.owner.client == session.owner.client;
        self.may_act_for(&session.owner) || (is_same_client && is_shared)
    }

    /// Whether what this owner has is for them.
    pub fn may_act_for(&self, owner: &Owner) -> bool {
        let is_unnamed = !self.is_proven && (self.owner.user.is_none() || owner.user.is_none());
        self.owner.client == owner.client && (self.owner.user == owner.user || is_unnamed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(client: &str, user: Option<&str>, is_proven: bool) -> Principal {
        let owner = Owner { client: client.to_owned(), user: user.map(ToOwned::to_owned) };
        Principal::without_key(Role::Client, owner, is_proven)
    }

    fn session(client: &str, user: Option<&str>, resource: Option<Resource>) -> Session {
        Session {
            id: SessionId::from_random([0; 21]),
            owner: principal(client, user, false).owner,
            name: None,
            profile: "default".to_owned(),
            resource,
            created_at: 0,
            used_at: 0,
            expires_at: None,
            bytes: 0,
            files: 0,
        }
    }

    #[test]
    fn what_is_anothers_is_not_seen() {
        let ana = session("chat", Some("ana"), None);
        assert!(principal("chat", Some("ana"), false).may_see(&ana, None));
        assert!(principal("chat", Some("ana"), true).may_see(&ana, None));
        assert!(!principal("chat", Some("ben"), false).may_see(&ana, None));
        assert!(!principal("chat", Some("ben"), true).may_see(&ana, None));
        assert!(!principal("other", Some("ana"), true).may_see(&ana, None));
        assert!(!principal("other", None, false).may_see(&ana, None));
    }

    #[test]
    fn a_client_that_names_nobody_is_trusted_with_its_own() {
        let ana = session("chat", Some("ana"), None);
        let nobody = session("chat", None, None);
        assert!(principal("chat", None, false).may_see(&ana, None));
        assert!(principal("chat", Some("ana"), false).may_see(&nobody, None));
        assert!(!principal("chat", Some("ana"), true).may_see(&nobody, None));
    }

    #[test]
    fn an_agents_files_are_for_those_who_come_with_it() {
        let of = |kind, id: &str| Resource { kind, id: id.to_owned(), version: None };
        let agent = session("chat", Some("ana"), Some(of(ResourceKind::Agent, "a1")));
        let ben = principal("chat", Some("ben"), true);
        assert!(ben.may_see(&agent, Some(&of(ResourceKind::Agent, "a1"))));
        assert!(!ben.may_see(&agent, Some(&of(ResourceKind::Agent, "a2"))));
        assert!(!ben.may_see(&agent, None));
        let own = session("chat", Some("ana"), Some(of(ResourceKind::User, "ana")));
        assert!(!ben.may_see(&own, Some(&of(ResourceKind::User, "ana"))));
        assert!(!principal("other", Some("ben"), true).may_see(&agent, Some(&of(ResourceKind::Agent, "a1"))));
    }
}
