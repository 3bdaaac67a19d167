//! Events, told by the driver as they happen: a second thread waits for them for as long as the driver is open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use stoker_proto::probe::{Event, Xid, event};
use tokio::sync::mpsc::Sender;

use super::{Happened, now};
use crate::gate::Listening;
use crate::raw::{EventSet, RECOVERY_ACTION, RawEvent, XID};

/// How long one wait lasts, in milliseconds: how soon the thread sees that it should end.
const WAIT: u32 = 1000;
/// The pause after a wait that failed: some failures come at once, again and again.
const PAUSE: Duration = Duration::from_secs(1);

/// What the two threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stop: AtomicBool,
    listening: Mutex<Listening>,
}

impl Shared {
    pub(super) fn listening(&self) -> Listening {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn say(&self, listening: Listening) {
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = listening;
    }
}

/// Ends the waiting thread when dropped, however the sampling thread leaves.
pub(super) struct Until<'a>(pub(super) &'a Shared);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Says that nobody listens when dropped, however the waiting thread leaves.
struct WhileWaiting<'a>(&'a Shared);

impl Drop for WhileWaiting<'_> {
    fn drop(&mut self) {
        self.0.say(Listening::Failed("the thread that waits for events has ended".to_owned()));
    }
}

/// Listens to every GPU; of one that cannot be opened comes why. Nothing that happened before is told later, so this comes first.
pub(super) fn listen<'nvml, 'a>(
    nvml: &'nvml Nvml,
    gpus: impl Iterator<Item = (u32, Result<(&'a Device<'nvml>, &'a str), &'a str>)>,
    shared: &Shared,
) -> Option<EventSet<'nvml>>
where
    'nvml: 'a,
{
    let mut set = match EventSet::new(nvml) {
        Ok(set) => set,
        Err(error) => {
            shared.say(Listening::Failed(format!("no event set: {error}")));
            return None;
        }
    };
    let mut faults = Vec::new();
    for (index, gpu) in gpus {
        let kinds = gpu
            .map_err(|why| format!("it cannot be opened: {why}"))
            .and_then(|(device, uuid)| set.listen(device, uuid, XID | RECOVERY_ACTION).map_err(|error| error.to_string()));
        match kinds {
            Ok(kinds) if kinds & XID != 0 => {}
            Ok(_) => faults.push(format!("GPU {index}: it reports no XIDs")),
            Err(error) => faults.push(format!("GPU {index}: {error}")),
        }
    }
    shared.say(if faults.is_empty() { Listening::All } else { Listening::Failed(faults.join(", ")) });
    Some(set)
}

/// Waits until told to stop.
pub(super) fn run(set: &EventSet<'_>, happened: &Sender<Happened>, shared: &Shared) {
    let registered = shared.listening();
    let _waiting = WhileWaiting(shared);
    let mut failing = false;
    while !shared.stop.load(Ordering::Relaxed) {
        match set.wait(WAIT) {
            Ok(event) => {
                if tell(happened, event).is_err() {
                    return;
                }
            }
            Err(NvmlError::Timeout) => {}
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "waiting for events failed");
                }
                failing = true;
                shared.say(Listening::Failed(format!("waiting for events: {error}")));
                std::thread::sleep(PAUSE);
                continue;
            }
        }
        if failing {
            failing = false;
            shared.say(registered.clone());
        }
    }
}

/// Every event is a reason to look again; XIDs are told on.
fn tell(happened: &Sender<Happened>, raw: RawEvent) -> Result<(), ()> {
    if raw.kind == XID {
        let xid = Xid {
            // No XID is that large: 999 stands for an unknown one.
            code: u32::try_from(raw.data).unwrap_or(999),
            gpu_uuid: raw.gpu_uuid.unwrap_or_default(),
            gpu_instance: raw.gpu_instance,
            compute_instance: raw.compute_instance,
        };
        tracing::warn!(code = xid.code, gpu = xid.gpu_uuid, "XID");
        let event = Event { number: 0, at: Some(now()), kind: Some(event::Kind::Xid(xid)) };
        // Waits where many come at once; the driver keeps the rest.
        happened.blocking_send(Happened::Event(event)).map_err(drop)?;
    }
    happened.blocking_send(Happened::LookAgain).map_err(drop)
}
