//! The fake of AWS that Stoker's client is tested against.
//!
//! [`Peer`] does what no emulator does: client tokens that hold per zone, stock, quotas, capacity reservations, tags that a policy demands,
//! states that take time, listings that lag, throttling, and faults of every kind. A test asks it through [`Peer::answer`] without a
//! network, or [listens](Peer::listen) and hands its URL to a process. All services answer at that one URL: which service and region is
//! meant is read from the credential scope of the signature. What the cloud holds is the [`World`]: plain data that a test sets and reads.
//!
//! # Caveats
//! A request must be signed (AWS Signature Version 4), at most 5 minutes from the peer's clock, with an access key that the world
//! knows; the HMAC of the signature is not checked. No policies are read: [`World::require_tags`] stands for them. A client token is
//! kept for ever. `CloudWatch` has what a test says, and counts nothing itself.
//!
//! Where AWS does not document its answer the peer gives the likeliest one:
//! - other parameters under the token of an ended machine are `IdempotentParameterMismatch`;
//! - a second call under a token waits for the first, and then gets the same machine;
//! - a machine that a block's end takes has the reason `Server.ScheduledStop`;
//! - EFA interfaces that a type does not have are `InvalidParameterCombination`.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a harness that cannot be set up is a failed test")]

mod bucket;
mod ec2;
pub mod events;
mod fault;
mod furnish;
mod launch;
mod machine;
mod region;
mod reply;
mod request;
mod serve;
mod services;
mod sqs;
#[cfg(test)]
mod tests;
mod types;
mod world;
mod xml;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response};
use jiff::Timestamp;
use tokio::sync::Notify;

pub use fault::{Call, Fault, Rule};
pub use machine::{End, Health, Interface, Machine, Market, Scheduled, SpotRequest, State};
pub use region::{
    Cluster, Image, Message, Queue, Quota, Region, Reservation, ReservationKind, ReservedInstances, SecurityGroup, SpotPrice,
    Subnet, Tags, Zone,
};
use reply::{Body, Refusal};
use request::Asked;
pub use request::Params;
pub use serve::{SERVICES, Served, aws_yaml};
pub use types::{TypeInfo, default_types};
pub use world::{ACCESS_KEY, World};

/// What tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The fake of AWS. Clones are the same one.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    world: Mutex<World>,
    /// Wakes those who wait for messages.
    sent: Notify,
}

impl Peer {
    /// A cloud whose home account is that, by the clock of the machine. It has one region, us-east-1, in which all may be launched.
    pub fn new(account: &str) -> Self {
        Self::with_clock(account, Arc::new(Timestamp::now))
    }

    /// The same by another clock.
    pub fn with_clock(account: &str, clock: Clock) -> Self {
        let world = Mutex::new(World::new(account, Arc::clone(&clock)));
        Self { shared: Arc::new(Shared { clock, world, sent: Notify::new() }) }
    }

    /// What the cloud holds. Calls wait for as long as it is looked at.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of its clock.
    pub fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    /// Answers a request; `None` is a connection that is cut without a byte.
    pub async fn answer(&self, request: Request<Vec<u8>>) -> Option<Response<Vec<u8>>> {
        let (parts, body) = request.into_parts();
        let mut asked = Asked::read(&parts, &body);
        let came = self.now();
        let (fault, delay, authenticated) = {
            let mut world = self.world();
            let authenticated = asked.authenticate(&world.accounts, came);
            let (fault, delay) = world.met(&asked);
            (fault, delay, authenticated)
        };
        if asked.action == "ReceiveMessage" && authenticated.is_ok() && !fault.prevents() {
            self.wait_for_message(&asked).await;
        }
        let request = format!("00000000-0000-4000-8000-{:012x}", self.world().next_number());
        let done = {
            let mut world = self.world();
            let done = authenticated.and_then(|()| match &fault {
                Fault::Status { status, code, message } => Err(Refusal::new(*status, code, message.as_str())),
                fault if fault.prevents() => Ok(Body::Xml(String::new())),
                _ => world.work(&asked, self.now()),
            });
            let cut = matches!(fault, Fault::Lose | Fault::Cut);
            let status = done.as_ref().map_or_else(|refusal| refusal.status, |_| 200);
            let status = if fault == Fault::Html { 502 } else { status };
            world.record(&asked, came, if cut { 0 } else { status }, done.as_ref().err());
            done
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let text = fault::spoilt(&fault, reply::text(&asked, done, &request))?;
        Some(reply::response(text, &request, self.now()))
    }
}
