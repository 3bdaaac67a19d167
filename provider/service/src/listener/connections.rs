//! The open connections of one listener: how many there may be, overall and of one address, and
//! which one is closed for another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use rustls_pki_types::CertificateDer;

/// When a connection is told to end, and how much later it is ended, where what it proved is to
/// count for an hour at most.
pub const CONNECTION_AGE: Duration = Duration::from_mins(50);
/// See [`CONNECTION_AGE`].
pub const CONNECTION_GRACE: Duration = Duration::from_mins(10);

/// What a listener's clients may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections of one address at once.
    pub per_address: usize,
    /// Connections at once that have not proven who they are. Beyond it the oldest one of the
    /// address with most of them is closed, unless it is the only one of its address: an honest
    /// client has one, and proves itself within milliseconds.
    pub unproven: usize,
    /// How long a TLS handshake may take, and how long until an HTTP/2 preface after it.
    pub handshake_timeout: Duration,
    /// How long until a request must prove who calls; `None` where the handshake is all the proof
    /// that there is.
    pub proof_timeout: Option<Duration>,
}

impl Default for Limits {
    /// Of 1,024 connections.
    fn default() -> Self {
        Self::of(1024)
    }
}

impl Limits {
    /// With so many connections: half of them may be of one address, and half, but at most 256
    /// (a few MB), unproven. A handshake may take 10 s, which a lossy link still makes.
    pub fn of(connections: usize) -> Self {
        let half = (connections / 2).max(1);
        Self {
            connections,
            per_address: half,
            unproven: half.min(256),
            handshake_timeout: Duration::from_secs(10),
            proof_timeout: None,
        }
    }

    /// Where requests prove who calls. A probe waits 10 s for its stream and asks again; thousands
    /// wait for their reviews when all come back at once, each from an address of its own.
    #[must_use]
    pub fn proven_by_requests(self) -> Self {
        Self { unproven: self.per_address.min(1024), proof_timeout: Some(Duration::from_secs(30)), ..self }
    }
}

/// The client's certificate and what comes with it, own first; empty without one.
pub(super) type Chain = Arc<[CertificateDer<'static>]>;

/// What is known and wanted of one connection.
#[derive(Debug, Default)]
pub(super) struct State {
    proven: AtomicBool,
    closing: AtomicBool,
    waker: AtomicWaker,
}

impl State {
    /// The client has proven who it is.
    pub(super) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Ready once the connection is to be closed. Only the task that polled last is woken.
    pub(super) fn poll_close(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.closing.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The open connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connections: BTreeMap<u64, Connection>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
    /// May hold some that were proven since.
    unproven: BTreeSet<u64>,
}

#[derive(Debug)]
struct Connection {
    remote: SocketAddr,
    state: Arc<State>,
    chain: Chain,
}

/// Why a connection is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error("its address has {0} connections")]
    Address(usize),
    #[error("the listener has {0} connections, and no address has more than this one")]
    Listener(usize),
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    connections: Arc<Connections>,
    /// Never the same twice in one run of this process, over all its listeners.
    pub(super) number: u64,
    pub(super) state: Arc<State>,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Mutex::default() }
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Lets a connection in, if need be in the place of another one, and says how many were closed
    /// for it.
    pub(super) fn register(self: &Arc<Self>, remote: SocketAddr) -> Result<(Registration, usize), Full> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Limits { connections: most, per_address, unproven, .. } = self.limits;
        let address = remote.ip().to_canonical();
        let mut open = self.open();
        let mut closed = 0;
        let own = open.by_address.get(&address).map_or(0, BTreeSet::len);
        if own >= per_address.max(1) {
            return Err(Full::Address(own));
        }
        if open.connections.len() >= most.max(1) {
            // Whoever has most gives way to whoever has less, so that nobody is kept out by number.
            let largest = open.by_address.values().max_by_key(|numbers| numbers.len());
            let newest = largest.filter(|numbers| numbers.len() > own + 1).and_then(BTreeSet::last).copied();
            let newest = newest.ok_or(Full::Listener(open.connections.len()))?;
            open.close(newest);
            closed += 1;
        }
        while open.unproven(unproven.max(1)) {
            let Some(oldest) = open.oldest_unproven() else { break };
            open.close(oldest);
            closed += 1;
        }
        let (number, state) = (NEXT.fetch_add(1, Ordering::Relaxed), Arc::<State>::default());
        let connection = Connection { remote, state: Arc::clone(&state), chain: Arc::default() };
        open.connections.insert(number, connection);
        open.by_address.entry(address).or_default().insert(number);
        open.unproven.insert(number);
        Ok((Registration { connections: Arc::clone(self), number, state }, closed))
    }

    /// Closes each connection whose client certificate is `bad`, and says which and why.
    pub(super) fn close_bad(&self, bad: impl Fn(&Chain) -> Option<String>) -> Vec<(SocketAddr, String)> {
        let open = self.open();
        let certified = open.connections.iter().filter(|(_, connection)| !connection.chain.is_empty());
        let certified: Vec<(u64, Chain)> =
            certified.map(|(number, connection)| (*number, Arc::clone(&connection.chain))).collect();
        drop(open);
        // Signatures are checked without the lock: nobody waits for it who connects.
        let bad = certified.into_iter().filter_map(|(number, chain)| Some((number, bad(&chain)?)));
        let closed = |(number, why)| Some((self.open().close(number)?, why));
        bad.collect::<Vec<_>>().into_iter().filter_map(closed).collect()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Whether as many connections as that are unproven.
    fn unproven(&mut self, most: usize) -> bool {
        if self.unproven.len() >= most {
            let connections = &self.connections;
            self.unproven.retain(|number| connections.get(number).is_some_and(|of| !of.state.is_proven()));
        }
        self.unproven.len() >= most
    }

    /// The oldest unproven connection of the address that has most of them.
    fn oldest_unproven(&self) -> Option<u64> {
        let of = |number: &u64| self.connections.get(number).map(|of| of.remote.ip().to_canonical());
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for address in self.unproven.iter().filter_map(of) {
            *counts.entry(address).or_default() += 1;
        }
        let most = counts.values().max().filter(|most| **most > 1)?;
        self.unproven.iter().find(|number| of(number).is_some_and(|address| counts.get(&address) == Some(most))).copied()
    }

    /// Closes a connection: from now on it counts no more.
    fn close(&mut self, number: u64) -> Option<SocketAddr> {
        let Connection { remote, state, .. } = self.remove(number)?;
        state.close();
        Some(remote)
    }

    fn remove(&mut self, number: u64) -> Option<Connection> {
        let connection = self.connections.remove(&number)?;
        self.unproven.remove(&number);
        let address = connection.remote.ip().to_canonical();
        if let Some(numbers) = self.by_address.get_mut(&address) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(connection)
    }
}

impl Registration {
    /// The limits of the listener.
    pub(super) fn limits(&self) -> &Limits {
        self.connections.limits()
    }

    /// The handshake has ended, with that certificate of the client.
    pub(super) fn established(&self, chain: &[CertificateDer<'_>]) {
        if self.limits().proof_timeout.is_none() {
            self.state.prove();
        }
        let chain: Chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        if let Some(connection) = self.connections.open().connections.get_mut(&self.number) {
            connection.chain = chain;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.open().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(limits: Limits) -> Arc<Connections> {
        Arc::new(Connections::new(limits))
    }

    fn from(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 5000))
    }

    fn is_closed(registration: &Registration) -> bool {
        registration.state.closing.load(Ordering::Relaxed)
    }

    /// So many established connections of an address.
    fn many(connections: &Arc<Connections>, count: usize, address: u8) -> Vec<Registration> {
        let one = |_| {
            let (registration, _) = connections.register(from(address)).unwrap();
            registration.established(&[]);
            registration
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn an_address_gets_half_of_the_connections_and_a_dropped_one_makes_room() {
        let connections = connections(Limits::of(8));
        let mut held = many(&connections, 4, 1);
        assert_eq!(connections.register(from(1)).err(), Some(Full::Address(4)));
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:7".parse().unwrap();
        assert_eq!(connections.register(mapped).err(), Some(Full::Address(4)), "the same address, written otherwise");
        drop(held.pop());
        held.extend(many(&connections, 1, 1));
        assert!(!held.iter().any(is_closed));
    }

    #[test]
    fn where_all_is_taken_whoever_has_most_gives_way_to_whoever_has_less() {
        let connections = connections(Limits::of(8));
        let (first, second) = (many(&connections, 4, 1), many(&connections, 4, 2));
        let mut newcomers = many(&connections, 2, 3);
        newcomers.extend(many(&connections, 1, 4));
        let closed = |held: &[Registration]| held.iter().map(is_closed).collect::<Vec<_>>();
        let gone = closed(&first).iter().chain(&closed(&second)).filter(|closed| **closed).count();
        assert_eq!(gone, 3);
        assert!(!is_closed(&first[0]) && !is_closed(&second[0]) && !newcomers.iter().any(is_closed));
        // Each has two or three now: nobody gives way to one that would have as many.
        let all: Vec<_> = (5..20).filter_map(|address| connections.register(from(address)).ok()).collect();
        assert!(all.len() <= 4 && !is_closed(&first[0]) && !is_closed(&second[0]));
        assert_eq!(connections.register(from(90)).err(), Some(Full::Listener(8)));
    }

    #[test]
    fn of_too_many_unproven_connections_the_address_with_most_loses_its_oldest() {
        let connections = connections(Limits { unproven: 3, ..Limits::of(100) });
        let register = |address| connections.register(from(address)).unwrap().0;
        let honest = register(1);
        let flood: Vec<_> = (0..6).map(|_| register(2)).collect();
        let closed: Vec<bool> = flood.iter().map(is_closed).collect();
        assert_eq!(closed, [true, true, true, true, false, false]);
        assert!(!is_closed(&honest));
        // What is proven counts no more.
        flood[4].state.prove();
        // Nor is the only connection of an address ever closed.
        let others: Vec<_> = (3..90).map(register).collect();
        assert!(others.iter().chain([&honest, &flood[5]]).all(|connection| !is_closed(connection)));
    }

    #[test]
    fn only_connections_with_bad_certificates_are_closed() {
        let connections = connections(Limits::of(10));
        let certified: Vec<Registration> = (0..3)
            .map(|n| {
                let (registration, _) = connections.register(from(n)).unwrap();
                registration.established(&[CertificateDer::from(vec![n])]);
                registration
            })
            .collect();
        let bare = many(&connections, 1, 9);
        let closed = connections.close_bad(|chain| (chain[0].as_ref() == [1]).then(|| "denied".to_owned()));
        assert_eq!(closed, [(from(1), "denied".to_owned())]);
        assert_eq!(certified.iter().map(is_closed).collect::<Vec<_>>(), [false, true, false]);
        assert!(!is_closed(&bare[0]));
    }
}
