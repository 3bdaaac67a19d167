//! Machines and Spot requests: what they are, and which state they are in at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::region::Tags;

/// How long an ended machine stays listed.
const LISTED_AFTER_END: Duration = Duration::from_hours(1);
/// How long a machine runs after its Spot notice.
pub(crate) const NOTICE: Duration = Duration::from_mins(2);

/// How a machine is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Market {
    /// By the hour at the list price; reservations are this too.
    OnDemand,
    /// Spare capacity.
    Spot,
    /// A capacity block.
    Block,
}

impl Market {
    /// `InstanceLifecycle` as EC2 gives it; on-demand machines have none.
    pub const fn lifecycle(self) -> Option<&'static str> {
        match self {
            Self::OnDemand => None,
            Self::Spot => Some("spot"),
            Self::Block => Some("capacity-block"),
        }
    }
}

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It starts.
    Pending,
    /// It runs.
    Running,
    /// It is being ended.
    ShuttingDown,
    /// It has ended.
    Terminated,
    /// It is being stopped.
    Stopping,
    /// It has stopped.
    Stopped,
}

impl State {
    /// Its code and name as EC2 gives them.
    pub const fn parts(self) -> (u16, &'static str) {
        match self {
            Self::Pending => (0, "pending"),
            Self::Running => (16, "running"),
            Self::ShuttingDown => (32, "shutting-down"),
            Self::Terminated => (48, "terminated"),
            Self::Stopping => (64, "stopping"),
            Self::Stopped => (80, "stopped"),
        }
    }
}

/// The end of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When it began to shut down.
    pub at: Timestamp,
    /// When it was terminated.
    pub over: Timestamp,
    /// `StateReason.Code`.
    pub code: String,
    /// `StateReason.Message`.
    pub message: String,
}

/// What `DescribeInstanceStatus` says of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Since when its own check fails.
    pub instance_impaired: Option<Timestamp>,
    /// Since when the host's check fails.
    pub system_impaired: Option<Timestamp>,
    /// Scheduled events.
    pub events: Vec<Scheduled>,
}

/// An event that AWS has scheduled for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// Its code, such as `instance-retirement`.
    pub code: String,
    /// Its text. That of one that is over begins with `[Completed]` or `[Canceled]`.
    pub description: String,
    /// Its earliest time.
    pub not_before: Timestamp,
}

/// A network interface as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its network card.
    pub card: u32,
    /// Its device index.
    pub device: u32,
    /// `interface`, `efa` or `efa-only`.
    pub kind: String,
}

/// A machine. It is never forgotten, also when it is listed no more.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub account: String,
    /// Its region.
    pub region: String,
    /// The name of its zone.
    pub zone: String,
    /// The id of its zone.
    pub zone_id: String,
    /// Its subnet.
    pub subnet: String,
    /// Its network.
    pub vpc: String,
    /// Its type.
    pub instance_type: String,
    /// Its image.
    pub image: String,
    /// The architecture of its type.
    pub arch: String,
    /// How it was bought.
    pub market: Market,
    /// Its Spot request.
    pub spot_request: Option<String>,
    /// The capacity reservation that it was launched into.
    pub reservation: Option<String>,
    /// `CapacityReservationPreference` as asked for, or `open`.
    pub preference: String,
    /// The capacity reservation that the launch named.
    pub target: Option<String>,
    /// Its client token.
    pub token: String,
    /// Its tags.
    pub tags: Tags,
    /// Tags of its volumes.
    pub volume_tags: Tags,
    /// Tags of its network interfaces.
    pub interface_tags: Tags,
    /// Its security groups.
    pub groups: Vec<String>,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
    /// The name of its instance profile.
    pub profile: Option<String>,
    /// Its user data, decoded.
    pub user_data: String,
    /// Its private address.
    pub private_ip: String,
    /// Its private DNS name.
    pub private_dns: String,
    /// Addresses that it takes of its subnet.
    pub addresses: u32,
    /// When it was launched.
    pub launched: Timestamp,
    /// How long it is pending.
    pub boot: Duration,
    /// Its end, which may lie ahead.
    pub ended: Option<End>,
    /// When somebody stopped it.
    pub stopped: Option<Timestamp>,
    /// When its Spot notice came.
    pub reclaimed: Option<Timestamp>,
    /// Whether `TerminateInstances` is refused.
    pub protected: bool,
    /// Its console output.
    pub console: String,
    /// Its health.
    pub health: Health,
    /// Everything that the launch asked for, by parameter.
    pub request: BTreeMap<String, String>,
}

impl Machine {
    /// Its state at a time; `None` before its launch and when it is listed no more.
    pub fn state(&self, now: Timestamp) -> Option<State> {
        if now < self.launched {
            return None;
        }
        match &self.ended {
            Some(end) if end.over + LISTED_AFTER_END <= now => None,
            Some(end) if end.over <= now => Some(State::Terminated),
            Some(end) if end.at <= now => Some(State::ShuttingDown),
            _ => Some(self.state_while_alive(now)),
        }
    }

    fn state_while_alive(&self, now: Timestamp) -> State {
        match self.stopped {
            Some(at) if at + Duration::from_secs(30) <= now => State::Stopped,
            Some(at) if at <= now => State::Stopping,
            _ if now < self.launched + self.boot => State::Pending,
            _ => State::Running,
        }
    }

    /// Its state as listings show it, which lag behind its launch and its end.
    pub fn listed_state(&self, now: Timestamp, lag: Duration) -> Option<State> {
        if now < self.launched + lag {
            return None;
        }
        let ends_unseen = self.ended.as_ref().is_some_and(|end| end.at <= now && now < end.at + lag);
        if ends_unseen { Some(self.state_while_alive(now)) } else { self.state(now) }
    }

    /// Whether it is neither ended nor being ended.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.launched <= now && self.ended.as_ref().is_none_or(|end| end.at > now)
    }

    /// Whether it still takes addresses and reserved capacity.
    pub fn takes_room(&self, now: Timestamp) -> bool {
        self.launched <= now && self.ended.as_ref().is_none_or(|end| end.over > now)
    }

    /// Ends it, unless it has ended before.
    pub(crate) fn end(&mut self, at: Timestamp, over: Timestamp, code: &str, message: &str) {
        if self.ended.as_ref().is_none_or(|end| end.at > at) {
            self.ended = Some(End { at, over, code: code.to_owned(), message: format!("{code}: {message}") });
        }
    }
}

/// A Spot request. There is one a Spot machine.
#[derive(Debug, Clone)]
pub struct SpotRequest {
    /// Its id, `sir-…`.
    pub id: String,
    /// Its machine.
    pub machine: String,
    /// Its tags.
    pub tags: Tags,
}

impl SpotRequest {
    /// Its state, the code of its status and when that came, by what its machine is at a time.
    pub fn status(&self, machine: &Machine, now: Timestamp) -> (&'static str, &'static str, Timestamp) {
        let notice = machine.reclaimed.filter(|at| *at <= now);
        let end = machine.ended.as_ref().filter(|end| end.at <= now);
        match (notice, end) {
            // The status says "terminated" with the notice, while the machine still runs.
            (Some(at), _) => ("closed", "instance-terminated-no-capacity", at),
            (None, Some(end)) => ("closed", "instance-terminated-by-user", end.at),
            (None, None) => ("active", "fulfilled", machine.launched),
        }
    }
}
