//! Where the bill of a month goes: what is paid while nodes boot, stand free and work.

use stoker_core::base::units::UsdMicros;

use super::cloud::{Cloud, Machine, SHAPES};

/// What was paid, by what it was paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Nodes that boot.
    pub boots: UsdMicros,
    /// Nodes without a pod.
    pub idle: UsdMicros,
    /// Free GPUs of nodes with pods.
    pub free_gpus: UsdMicros,
    /// Jobs that start again, until they are where they stood.
    pub restarts: UsdMicros,
    /// Work on spot.
    pub on_spot: UsdMicros,
    /// Work on demand while no zone has spot.
    pub no_spot: UsdMicros,
    /// Work on demand while zones have spot, and none has room for the largest node.
    pub no_room: UsdMicros,
    /// Work on demand while a zone has room.
    pub with_room: UsdMicros,
}

/// What a machine's GPUs do, of those that jobs have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InUse {
    /// GPUs that jobs have.
    pub(super) gpus: u32,
    /// Those of them whose job is yet to be where it stood.
    pub(super) restarting: u32,
}

/// Whether spot is to be had.
#[derive(Debug, Clone, Copy)]
pub(super) enum SpotMarket {
    Shut,
    Full,
    Open,
}

impl SpotMarket {
    pub(super) fn at(cloud: &Cloud, now: i64) -> Self {
        let room = (0..cloud.zones()).filter_map(|zone| cloud.room(zone, now)).max();
        let largest = SHAPES.iter().map(|shape| shape.gpus).max();
        match room {
            None => Self::Shut,
            Some(room) if Some(room) < largest => Self::Full,
            Some(_) => Self::Open,
        }
    }
}

impl Accounts {
    /// Adds what a machine costs for so many seconds from `now` on, in which nothing changes.
    pub(super) fn add(&mut self, machine: &Machine, used: InUse, market: SpotMarket, (now, seconds): (i64, i64)) {
        let paid = machine.price().over_seconds(seconds);
        let part = |gpus: u32| UsdMicros(paid.0 * i64::from(gpus) / i64::from(machine.shape().gpus));
        let add = |account: &mut UsdMicros, paid: UsdMicros| *account = account.plus(paid);
        if machine.ready > now {
            add(&mut self.boots, paid);
        } else if used.gpus == 0 {
            add(&mut self.idle, paid);
        } else {
            add(&mut self.free_gpus, part(machine.shape().gpus.saturating_sub(used.gpus)));
            add(&mut self.restarts, part(used.restarting));
            let work = part(used.gpus - used.restarting);
            match (machine.spot, market) {
                (true, _) => add(&mut self.on_spot, work),
                (false, SpotMarket::Shut) => add(&mut self.no_spot, work),
                (false, SpotMarket::Full) => add(&mut self.no_room, work),
                (false, SpotMarket::Open) => add(&mut self.with_room, work),
            }
        }
    }
}
