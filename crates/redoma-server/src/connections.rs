//! Which connections there are, whose they are, and which one is closed to make room for another.
//!
//! A connection belongs to the address that it comes from until a request on it shows a valid key, and to that key's owner from
//! then on. Connections of trusted proxies belong to the proxy: many users share them.
//!
//! - An address has at most [`Limits::per_address`] connections without a key while more than half of all places are taken, and
//!   at most a quarter of all places otherwise. One more closes the oldest of them, busy or not.
//! - When there are [`Limits::in_all`], a new one closes the oldest idle one of the address or owner with the most. If none is
//!   idle, it closes the oldest one of the address with the most: a request without a valid key must not keep a place.
//! - An owner has at most [`GREED`] times what stays free; connections without a key count as free. One more closes the owner's
//!   oldest idle one, or is refused.
//! - If all are busy, [`RESERVED`] more are let in, for health checks, metrics and admins only. An address has at most
//!   [`MAX_RESERVED_PER_ADDRESS`] of these.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use redoma_engine::fair_queue::GREED;
use redoma_model::Owner;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::rates::Network;
use crate::websocket::Unfinished;

/// Connections beyond the limit, for health checks, metrics and admins.
const RESERVED: usize = 32;
/// Maximum number of these of one address that is no trusted proxy.
const MAX_RESERVED_PER_ADDRESS: usize = 4;
/// Maximum number of connections that were told to go and have not gone yet. The next one waits to be accepted.
const MAX_LEAVING: usize = 512;

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub in_all: usize,
    /// Of one address (of IPv6, one network of 64 bits), before a valid key was shown.
    pub per_address: usize,
}

#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    proxies: Vec<Network>,
    state: Mutex<State>,
    /// Told whenever one has gone.
    gone: Notify,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    all: HashMap<u64, Known>,
    /// Those that were not told to go, by holder, oldest first.
    holders: HashMap<Holder, BTreeSet<u64>>,
    leaving: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Address(Network),
    Owner(Owner),
    Proxy,
    /// Beyond the limit.
    Reserve,
}

#[derive(Debug)]
struct Known {
    holder: Holder,
    /// The address of its client. None: it comes from a trusted proxy.
    address: Option<Network>,
    /// Requests that go on.
    busy: usize,
    is_leaving: bool,
    stream: Weak<TcpStream>,
}

impl Connections {
    pub fn new(limits: Limits, proxies: Vec<Network>) -> Arc<Self> {
        Arc::new(Self { limits, proxies, state: Mutex::default(), gone: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes back when a further connection can be accepted.
    pub async fn ready(&self) {
        loop {
            let mut gone = std::pin::pin!(self.gone.notified());
            gone.as_mut().enable();
            if self.state().leaving < MAX_LEAVING {
                return;
            }
            gone.await;
        }
    }

    /// Comes back when there is none any more.
    pub async fn all_gone(&self) {
        loop {
            let mut gone = std::pin::pin!(self.gone.notified());
            gone.as_mut().enable();
            if self.state().all.is_empty() {
                return;
            }
            gone.await;
        }
    }

    /// Maximum number of connections without a key of one address. A request shows its key some time after its connection is
    /// accepted, so a burst of valid requests looks like idle strangers at first: the bound is low only if places are scarce.
    fn max_of_address(&self, state: &State) -> usize {
        let Limits { in_all, per_address } = self.limits;
        let is_scarce = state.staying() > in_all / 2;
        if is_scarce { per_address } else { per_address.max(in_all / 4) }
    }

    /// Takes a new connection in, if there is room for it or can be made.
    pub fn admit(self: &Arc<Self>, address: IpAddr, stream: &Arc<TcpStream>) -> Option<Arc<Connection>> {
        let is_proxy = self.proxies.iter().any(|proxy| proxy.contains(address));
        let address = (!is_proxy).then(|| Network::of_one(address));
        let mut holder = address.map_or(Holder::Proxy, Holder::Address);
        let mut state = self.state();
        if !is_proxy && state.count(&holder) >= self.max_of_address(&state) && !state.close_oldest(&holder) {
            return None;
        }
        if state.staying() >= self.limits.in_all && !state.close_one_of_the_largest() {
            holder = Holder::Reserve;
            if !state.make_room_in_reserve(address) {
                return None;
            }
        }
        let id = state.next_id;
        state.next_id += 1;
        state.holders.entry(holder.clone()).or_default().insert(id);
        let known = Known { holder, address, busy: 0, is_leaving: false, stream: Arc::downgrade(stream) };
        state.all.insert(id, known);
        drop(state);
        Some(Arc::new(Connection {
            connections: Arc::clone(self),
            id,
            line: Arc::downgrade(stream),
            unfinished: OnceLock::new(),
        }))
    }
}

impl State {
    /// How many there are that were not told to go.
    fn staying(&self) -> usize {
        self.all.len() - self.leaving - self.count(&Holder::Reserve)
    }

    /// How many of these can't be closed for others: all but those of addresses.
    fn staying_with_key(&self) -> usize {
        let of_addresses = self.holders.iter().filter(|(holder, _)| matches!(holder, Holder::Address(_)));
        self.staying() - of_addresses.map(|(_, own)| own.len()).sum::<usize>()
    }

    fn count(&self, holder: &Holder) -> usize {
        self.holders.get(holder).map_or(0, BTreeSet::len)
    }

    fn oldest_idle(&self, holder: &Holder) -> Option<u64> {
        let own = self.holders.get(holder)?;
        own.iter().find(|id| self.all.get(id).is_some_and(|known| known.busy == 0)).copied()
    }

    fn close_oldest_idle(&mut self, holder: &Holder) -> bool {
        let oldest = self.oldest_idle(holder);
        oldest.is_some_and(|oldest| self.close(oldest))
    }

    fn close_oldest(&mut self, holder: &Holder) -> bool {
        let oldest = self.holders.get(holder).and_then(|own| own.first().copied());
        oldest.is_some_and(|oldest| self.close(oldest))
    }

    /// Whether the reserve has room for one more of this address. Closes an idle one of the address, or of all, if needed.
    fn make_room_in_reserve(&mut self, address: Option<Network>) -> bool {
        let reserved = self.holders.get(&Holder::Reserve).into_iter().flatten();
        let own = reserved.filter_map(|id| Some((*id, self.all.get(id)?)));
        let own: Vec<_> = own.filter(|(_, known)| address.is_some() && known.address == address).collect();
        if own.len() >= MAX_RESERVED_PER_ADDRESS {
            let oldest = own.iter().find(|(_, known)| known.busy == 0).map(|(id, _)| *id);
            return oldest.is_some_and(|oldest| self.close(oldest));
        }
        self.count(&Holder::Reserve) < RESERVED || self.close_oldest_idle(&Holder::Reserve)
    }

    /// Closes an idle one of the address or owner with the most that has any; a proxy's last. If there is none, closes a busy
    /// one of the address with the most.
    fn close_one_of_the_largest(&mut self) -> bool {
        let idle = self.holders.iter().filter(|(holder, _)| **holder != Holder::Reserve);
        let idle = idle.filter_map(|(holder, own)| {
            let size = if *holder == Holder::Proxy { 0 } else { own.len() };
            Some((size, self.oldest_idle(holder)?))
        });
        let chosen = idle.max_by_key(|(size, oldest)| (*size, std::cmp::Reverse(*oldest)));
        if let Some((_, oldest)) = chosen {
            return self.close(oldest);
        }
        let of_addresses = self.holders.iter().filter(|(holder, _)| matches!(holder, Holder::Address(_)));
        let busy = of_addresses.filter_map(|(_, own)| Some((own.len(), *own.first()?)));
        let chosen = busy.max_by_key(|(size, oldest)| (*size, std::cmp::Reverse(*oldest)));
        chosen.is_some_and(|(_, oldest)| self.close(oldest))
    }

    fn close(&mut self, id: u64) -> bool {
        let Some(known) = self.all.get_mut(&id) else { return false };
        known.is_leaving = true;
        self.leaving += 1;
        if let Some(stream) = known.stream.upgrade() {
            close(&stream);
        }
        let holder = known.holder.clone();
        self.leave(&holder, id);
        true
    }

    fn leave(&mut self, holder: &Holder, id: u64) {
        if let Some(own) = self.holders.get_mut(holder) {
            own.remove(&id);
            if own.is_empty() {
                self.holders.remove(holder);
            }
        }
    }
}

/// Ends a connection, whatever it waits for.
pub fn close(stream: &TcpStream) {
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Both);
}

/// A connection's place among those that may be open. It is given back when the last of these is dropped, also if it is
/// no HTTP connection any more.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    id: u64,
    pub line: Weak<TcpStream>,
    /// Counts what comes in, once it is a WebSocket.
    pub unfinished: OnceLock<Arc<Unfinished>>,
}

/// The owner has as many connections as one may have, and all are busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

/// Whether an owner may have more connections than its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Bounded,
    Unbounded,
}

impl Connection {
    /// Whether it is one of those beyond the limit.
    pub fn is_reserved(&self) -> bool {
        let state = self.connections.state();
        state.all.get(&self.id).is_some_and(|known| known.holder == Holder::Reserve)
    }

    /// A request on it has shown a valid key of this owner.
    pub fn belongs_to(&self, owner: &Owner) -> Result<(), TooMany> {
        self.claim(owner, Share::Bounded)
    }

    /// The same for an admin, who is never refused.
    pub fn belongs_to_admin(&self, owner: &Owner) {
        // An unbounded share can't be exceeded.
        let _ = self.claim(owner, Share::Unbounded);
    }

    fn claim(&self, owner: &Owner, share: Share) -> Result<(), TooMany> {
        let mut state = self.connections.state();
        let Some(known) = state.all.get(&self.id) else { return Ok(()) };
        let is_owners = matches!(&known.holder, Holder::Owner(known) if known == owner);
        if is_owners || known.is_leaving || matches!(known.holder, Holder::Proxy | Holder::Reserve) {
            return Ok(());
        }
        let (former, holder) = (known.holder.clone(), Holder::Owner(owner.clone()));
        let in_all = self.connections.limits.in_all;
        let own = state.count(&holder);
        let is_too_many = |taken: usize| own > 0 && own + 1 > GREED * in_all.saturating_sub(taken);
        // This one is among those that stay. To count those with a key takes longer, and is needed only if places are scarce.
        if is_too_many(state.staying() - 1)
            && is_too_many(state.staying_with_key())
            && !state.close_oldest_idle(&holder)
            && share == Share::Bounded
        {
            return Err(TooMany);
        }
        state.leave(&former, self.id);
        state.holders.entry(holder.clone()).or_default().insert(self.id);
        if let Some(known) = state.all.get_mut(&self.id) {
            known.holder = holder;
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        if let Some(known) = state.all.remove(&self.id) {
            if known.is_leaving {
                state.leaving -= 1;
            } else {
                state.leave(&known.holder, self.id);
            }
        }
        drop(state);
        self.connections.gone.notify_waiters();
    }
}

/// While this lives, the connection is busy and stays.
#[derive(Debug)]
pub struct Busy(pub Arc<Connection>);

impl Busy {
    pub fn new(connection: &Arc<Connection>) -> Self {
        if let Some(known) = connection.connections.state().all.get_mut(&connection.id) {
            known.busy += 1;
        }
        Self(Arc::clone(connection))
    }
}

impl Clone for Busy {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(known) = self.0.connections.state().all.get_mut(&self.0.id) {
            known.busy -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn connections(in_all: usize, per_address: usize, proxies: &[&str]) -> Arc<Connections> {
        let proxies = proxies.iter().map(|proxy| proxy.parse().unwrap()).collect();
        Connections::new(Limits { in_all, per_address }, proxies)
    }

    async fn stream() -> Arc<TcpStream> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Arc::new(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap())
    }

    fn is_leaving(connection: &Connection) -> bool {
        connection.connections.state().all[&connection.id].is_leaving
    }

    fn owner(name: &str) -> Owner {
        Owner { client: "chat".to_owned(), user: Some(name.to_owned()) }
    }

    #[tokio::test]
    async fn an_address_without_a_key_has_few_and_a_key_frees_the_place() {
        let (all, stream) = (connections(8, 2, &["10.9.0.0/16"]), stream().await);
        let here = IpAddr::from([192, 0, 2, 1]);
        let first = all.admit(here, &stream).unwrap();
        let second = all.admit(here, &stream).unwrap();
        second.belongs_to(&owner("ana")).unwrap();
        let third = all.admit(here, &stream).unwrap();
        assert!(!is_leaving(&first) && !is_leaving(&third));
        let _busy = Busy::new(&first);
        let _fourth = all.admit(here, &stream).unwrap();
        assert!(is_leaving(&first) && !is_leaving(&third), "the oldest goes, busy or not");
        let _fifth = all.admit(here, &stream).unwrap();
        assert!(is_leaving(&third) && !is_leaving(&second), "but none with a key");
        let other = all.admit(IpAddr::from([192, 0, 2, 2]), &stream).unwrap();
        let proxy: Vec<_> =
            (0..4).map(|_| all.admit(IpAddr::from([10, 9, 0, 1]), &stream).unwrap()).collect();
        assert!(!is_leaving(&other) && proxy.iter().all(|one| !is_leaving(one)));
    }

    #[tokio::test]
    async fn a_burst_of_one_address_stays_while_there_is_room() {
        let (all, stream) = (connections(100, 2, &[]), stream().await);
        let here = IpAddr::from([192, 0, 2, 1]);
        let burst: Vec<_> = (0..25).map(|_| all.admit(here, &stream).unwrap()).collect();
        assert!(burst.iter().all(|one| !is_leaving(one)), "a quarter of all places");
        let _one_more = all.admit(here, &stream).unwrap();
        assert!(is_leaving(&burst[0]) && !is_leaving(&burst[1]));
        let _others: Vec<_> = (1..=26)
            .map(|number| {
                let other = all.admit(IpAddr::from([192, 0, 2, 9]), &stream).unwrap();
                other.belongs_to(&owner(&format!("user {number}"))).unwrap();
                other
            })
            .collect();
        assert_eq!(all.state().staying(), 51);
        let there = IpAddr::from([192, 0, 2, 2]);
        let scarce: Vec<_> = (0..3).map(|_| all.admit(there, &stream).unwrap()).collect();
        assert!(is_leaving(&scarce[0]) && !is_leaving(&scarce[1]), "more than half are taken");
    }

    #[tokio::test]
    async fn when_there_are_too_many_the_one_with_the_most_loses_its_oldest() {
        let (all, stream) = (connections(8, 8, &[]), stream().await);
        let mut held = Vec::new();
        for name in ["ana", "ana", "ana", "ana", "ana", "ben", "cem", "dan"] {
            let connection = all.admit(IpAddr::from([192, 0, 2, 1]), &stream).unwrap();
            connection.belongs_to(&owner(name)).unwrap();
            held.push(connection);
        }
        assert_eq!(all.state().staying(), 8);
        let next = all.admit(IpAddr::from([192, 0, 2, 3]), &stream).unwrap();
        assert!(is_leaving(&held[0]) && !next.is_reserved());
        assert!(held[1..].iter().all(|one| !is_leaving(one)));
        // ana has four of eight, one is free: a further one takes the place of her own oldest.
        next.belongs_to(&owner("ana")).unwrap();
        assert!(is_leaving(&held[1]) && !is_leaving(&held[5]));
        let busy: Vec<_> = held[2..5].iter().map(Busy::new).collect();
        let busy_next = Busy::new(&next);
        let another = all.admit(IpAddr::from([192, 0, 2, 3]), &stream).unwrap();
        assert_eq!(another.belongs_to(&owner("ana")), Err(TooMany));
        drop((busy, busy_next));
    }

    #[tokio::test]
    async fn strangers_take_no_places_from_owners() {
        let (all, stream) = (connections(16, 16, &[]), stream().await);
        let _strangers: Vec<_> =
            (0..16).map(|number| all.admit(IpAddr::from([192, 0, 2, number]), &stream).unwrap()).collect();
        let here = IpAddr::from([192, 0, 2, 99]);
        let busy: Vec<_> = (0..12)
            .map(|number| {
                let connection = all.admit(here, &stream).unwrap();
                assert_eq!(connection.belongs_to(&owner("ana")), Ok(()), "request {number}");
                (Busy::new(&connection), connection)
            })
            .collect();
        let one_more = all.admit(here, &stream).unwrap();
        assert_eq!(one_more.belongs_to(&owner("ana")), Err(TooMany), "the share holds");
        let holder = |connection: &Connection| all.state().all[&connection.id].holder.clone();
        assert!(matches!(holder(&one_more), Holder::Address(_)));
        one_more.belongs_to_admin(&owner("ana"));
        assert_eq!(holder(&one_more), Holder::Owner(owner("ana")), "but not for admins");
        drop(busy);
    }

    #[tokio::test]
    async fn a_request_without_a_key_gives_way_when_all_are_busy() {
        let (all, stream) = (connections(4, 4, &[]), stream().await);
        let mut busy = Vec::new();
        for (last, name) in [(1, Some("ana")), (1, Some("ben")), (2, None), (3, None)] {
            let connection = all.admit(IpAddr::from([192, 0, 2, last]), &stream).unwrap();
            if let Some(name) = name {
                connection.belongs_to(&owner(name)).unwrap();
            }
            busy.push((Busy::new(&connection), connection));
        }
        let next = all.admit(IpAddr::from([192, 0, 2, 9]), &stream).unwrap();
        assert!(!next.is_reserved());
        let leaving: Vec<_> = busy.iter().map(|(_, connection)| is_leaving(connection)).collect();
        assert_eq!(leaving, [false, false, true, false]);
        drop(busy);
    }

    #[tokio::test]
    async fn a_few_are_kept_for_health_checks() {
        let (all, stream) = (connections(2, 8, &[]), stream().await);
        let held: Vec<_> = ["ana", "ben"]
            .map(|name| {
                let connection = all.admit(IpAddr::from([192, 0, 2, 1]), &stream).unwrap();
                connection.belongs_to(&owner(name)).unwrap();
                (Busy::new(&connection), connection)
            })
            .into();
        let greedy = IpAddr::from([192, 0, 2, 7]);
        let of_one: Vec<_> = (0..5).map(|_| all.admit(greedy, &stream).unwrap()).collect();
        assert!(of_one.iter().all(|connection| connection.is_reserved()));
        // Of one address, the oldest idle one gives way; if all are busy, there is room for others only.
        assert_eq!(of_one.iter().filter(|connection| is_leaving(connection)).count(), 1);
        assert!(is_leaving(&of_one[0]));
        let busy: Vec<_> = of_one[1..].iter().map(Busy::new).collect();
        assert!(all.admit(greedy, &stream).is_none());
        let others: Vec<_> = (4..RESERVED)
            .map(|number| {
                let last = u8::try_from(100 + number / MAX_RESERVED_PER_ADDRESS).unwrap();
                all.admit(IpAddr::from([192, 0, 2, last]), &stream).unwrap()
            })
            .collect();
        assert!(others.iter().all(|connection| connection.is_reserved() && !is_leaving(connection)));
        assert_eq!(all.state().count(&Holder::Reserve), RESERVED);
        // The oldest idle one of all gives way.
        let one_more = all.admit(IpAddr::from([192, 0, 2, 8]), &stream).unwrap();
        assert!(one_more.is_reserved() && is_leaving(&others[0]));
        drop((held, of_one, busy, others, one_more));
        tokio::time::timeout(std::time::Duration::from_secs(5), all.all_gone()).await.unwrap();
        assert!(all.state().holders.is_empty());
    }
}
