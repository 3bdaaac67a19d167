//! The rules of spot: what a reclaim costs a pool's work, and how much of the pool may be at risk at once.

use jiff::SignedDuration;

use super::{Faults, grammar};
use crate::base::kinds::{ReturnToSpot, Workload};
use crate::base::text::{quoted, read_length};
use crate::base::units::Percent;
use crate::market::offer::CapacityType;
use crate::policy::rules::spot::{Saving, SpotRules};
use crate::policy::{Path, RawPool, RawSpot, Tier};

/// What a checkpoint interval says where nothing is saved.
const NONE: &str = "none";
/// Share of the time that goes into writing checkpoints, where the pool does not say.
const DEFAULT_OVERHEAD: Percent = Percent(3);
/// Longest time between checkpoints, and longest restart: no spot node of the measured markets could be expected to live for a week.
const LONGEST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Whether the pool says that a reclaim loses all of the work.
pub(super) fn saves_nothing(raw: &RawPool) -> bool {
    raw.capacity.spot.as_ref().is_some_and(|spot| spot.checkpoint.as_deref() == Some(NONE))
}

/// Time between checkpoints and time to restart, where the pool does not say. Training and dev: half an
/// hour, as many training runs save, and a restart at the lower end of the 5 to 10 min that starting a fine-tune of 14B takes on eight GPUs (`SkyNomad`).
/// Batch: a checkpoint is an item done, some 10 min (the median GPU pod of Alibaba's trace gpu-v2023 takes 655 s), and 2 min to the
/// next. Inference keeps nothing, and a replica loads its model in a minute or two (Alibaba's trace v2026-GenAI: p95 45 s for a base model, the
/// image on top).
const fn defaults(workload: Workload) -> (Option<SignedDuration>, SignedDuration) {
    let mins = SignedDuration::from_mins;
    match workload {
        Workload::Training | Workload::Dev => (Some(mins(30)), mins(5)),
        Workload::Batch => (Some(mins(10)), mins(2)),
        Workload::Inference => (None, mins(2)),
    }
}

/// The spot rules of a pool that buys in this order: `None` is a fault, `Some(None)` a pool that buys no spot.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn rules(faults: &mut Faults, path: &Path, raw: &RawPool, prefer: &[CapacityType]) -> Option<Option<SpotRules>> {
    if raw.tier == Some(Tier::BestEffort) && raw.workload != Workload::Inference {
        let message = "bestEffort applies to inference pools only, the others take spot first anyway: remove it";
        faults.add(&path.key("tier"), message);
    }
    let path = path.key("capacity").key("spot");
    let absent = RawSpot::default();
    let spot = raw.capacity.spot.as_ref().unwrap_or(&absent);
    let share = |faults: &mut Faults, key: &str, text: Option<&str>| match text {
        None => Some(Percent::ALL),
        Some(text) => faults.keep(&path.key(key), grammar::percent(text)),
    };
    let max_share = share(faults, "maxShare", spot.max_share.as_deref());
    let max_market_share = share(faults, "maxMarketShare", spot.max_market_share.as_deref());
    let max_interruption = match spot.max_interruption.as_deref() {
        None => Some(None),
        Some(text) => faults.keep(&path.key("maxInterruption"), grammar::percent(text)).map(Some),
    };
    let (_, default_restart) = defaults(raw.workload);
    let restart = match spot.restart.as_deref() {
        None => Some(default_restart),
        Some(text) => length(faults, &path.key("restart"), text),
    };
    let saving = saving(faults, &path, raw.workload, spot);
    let save = save(faults, &path.key("checkpointSave"), spot, saving);
    let buys_spot = prefer.contains(&CapacityType::Spot);
    if raw.capacity.spot.is_some() && !buys_spot && !saves_nothing(raw) {
        faults.add(&path, "has rules, but the pool buys no spot: name spot in capacity.prefer, or remove the rules");
    }
    if max_market_share == Some(Percent(0)) {
        faults.add(&path.key("maxMarketShare"), "is 0%, which no node fits: raise it, or remove spot from capacity.prefer");
    }
    if prefer == [CapacityType::Spot] && max_share.is_some_and(|share| share < Percent::ALL) {
        let message = "leaves a share that no other capacity type may fill: name on-demand in capacity.prefer too";
        faults.add(&path.key("maxShare"), message);
    }
    let return_to_spot = return_to_spot(faults, &path.key("returnToSpot"), spot, prefer, saving);
    let rules = SpotRules {
        max_share: max_share?,
        max_market_share: max_market_share?,
        max_interruption: max_interruption?,
        saving: saving?,
        save: save?,
        restart: restart?,
        return_to_spot: return_to_spot?,
    };
    Some(buys_spot.then_some(rules))
}

/// Which nodes move back to spot. That a pool's work is taken to write checkpoints is no leave to interrupt it: for that it must say so.
fn return_to_spot(
    faults: &mut Faults,
    path: &Path,
    spot: &RawSpot,
    prefer: &[CapacityType],
    saving: Option<Saving>,
) -> Option<ReturnToSpot> {
    let place = |capacity_type| prefer.iter().position(|known| *known == capacity_type);
    let comes_back = match (place(CapacityType::Spot), place(CapacityType::OnDemand)) {
        (Some(spot), Some(on_demand)) => spot < on_demand,
        _ => false,
    };
    let saves = matches!(saving?, Saving::Checkpoints { .. });
    match spot.return_to_spot {
        None if !comes_back => Some(ReturnToSpot::Never),
        None if saves && spot.checkpoint.is_some() => Some(ReturnToSpot::Busy),
        None => Some(ReturnToSpot::Idle),
        Some(ReturnToSpot::Idle | ReturnToSpot::Busy) if !comes_back => {
            faults.add(path, "has no effect: it is for pools that name spot before on-demand in capacity.prefer, remove it");
            None
        }
        Some(ReturnToSpot::Busy) if !saves => {
            faults.add(path, "is busy, and work that saves nothing must not be moved: name checkpoint, or write idle");
            None
        }
        Some(said) => Some(said),
    }
}

fn saving(faults: &mut Faults, path: &Path, workload: Workload, spot: &RawSpot) -> Option<Saving> {
    let overhead_path = path.key("checkpointOverhead");
    let overhead = match spot.checkpoint_overhead.as_deref() {
        None => Some(DEFAULT_OVERHEAD),
        Some(text) => {
            let share = faults.keep(&overhead_path, grammar::percent(text));
            if share == Some(Percent::ALL) {
                faults.add(&overhead_path, "is 100%, which leaves no time for work: lower it");
            }
            share
        }
    };
    let every = match spot.checkpoint.as_deref() {
        Some(NONE) => None,
        None => defaults(workload).0,
        Some(text) => {
            let path = path.key("checkpoint");
            let every = length(faults, &path, text)?;
            if every.is_zero() {
                faults.add(&path, "is 0, below 1s: name the time between checkpoints, or none");
            }
            Some(every)
        }
    };
    if every.is_none() && spot.checkpoint_overhead.is_some() {
        faults.add(&overhead_path, "applies to checkpoints, and the pool writes none: remove it, or name checkpoint");
    }
    Some(match every {
        Some(every) => Saving::Checkpoints { every, overhead: overhead? },
        None if spot.checkpoint.is_some() => Saving::Nothing,
        None => Saving::Stateless,
    })
}

/// How long a save takes; `Some(None)` where the pool does not say.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
fn save(faults: &mut Faults, path: &Path, spot: &RawSpot, saving: Option<Saving>) -> Option<Option<SignedDuration>> {
    let Some(text) = spot.checkpoint_save.as_deref() else { return Some(None) };
    let save = length(faults, path, text)?;
    match saving? {
        Saving::Checkpoints { .. } if save.is_zero() => {
            faults.add(path, "is 0, below 1s: name how long a save takes, or remove it");
        }
        Saving::Checkpoints { every, .. } if save >= every => {
            let message =
                "is no shorter than the time between checkpoints, which leaves no time for work: name a longer checkpoint";
            faults.add(path, format!("{} {message}", quoted(text)));
        }
        Saving::Checkpoints { .. } => {}
        Saving::Nothing | Saving::Stateless => {
            faults.add(path, "applies to checkpoints, and the pool writes none: remove it, or name checkpoint");
        }
    }
    Some(Some(save))
}

fn length(faults: &mut Faults, path: &Path, text: &str) -> Option<SignedDuration> {
    let length = faults.keep(path, read_length(text))?;
    if length > LONGEST {
        faults.add(path, format!("{} is above 168h, longer than a spot node lives: shorten it", quoted(text)));
    }
    Some(length)
}
