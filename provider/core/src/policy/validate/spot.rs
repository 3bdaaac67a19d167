//! The rules of spot: what a reclaim costs a pool's work, and how much of the pool may be at risk at once.

use jiff::SignedDuration;

use super::{Faults, grammar};
use crate::offer::CapacityType;
use crate::policy::{MoveBack, Path, RawPool, RawSpot, Tier, Workload, quoted};
use crate::spot::{Saving, SpotRules};
use crate::units::Percent;

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
        let message = "bestEffort is said of inference pools alone, the others take spot first anyway: take it out";
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
        faults.add(&path, "has rules, but the pool buys no spot: name spot in capacity.prefer, or take the rules out");
    }
    if max_market_share == Some(Percent(0)) {
        faults.add(&path.key("maxMarketShare"), "is 0%, which no node fits: raise it, or take spot out of capacity.prefer");
    }
    if prefer == [CapacityType::Spot] && max_share.is_some_and(|share| share < Percent::ALL) {
        let message = "leaves a share that nothing is named to buy: name on-demand in capacity.prefer too";
        faults.add(&path.key("maxShare"), message);
    }
    let move_back = move_back(faults, &path.key("moveBack"), spot, prefer, saving);
    let rules = SpotRules {
        max_share: max_share?,
        max_market_share: max_market_share?,
        max_interruption: max_interruption?,
        saving: saving?,
        save: save?,
        restart: restart?,
        move_back: move_back?,
    };
    Some(buys_spot.then_some(rules))
}

/// Which nodes move back to spot. That a pool's work is taken to write checkpoints is no leave to interrupt it: for that it must say so.
fn move_back(
    faults: &mut Faults,
    path: &Path,
    spot: &RawSpot,
    prefer: &[CapacityType],
    saving: Option<Saving>,
) -> Option<MoveBack> {
    let place = |capacity_type| prefer.iter().position(|known| *known == capacity_type);
    let comes_back = match (place(CapacityType::Spot), place(CapacityType::OnDemand)) {
        (Some(spot), Some(on_demand)) => spot < on_demand,
        _ => false,
    };
    let saves = matches!(saving?, Saving::Checkpoints { .. });
    match spot.move_back {
        None if !comes_back => Some(MoveBack::Never),
        None if saves && spot.checkpoint.is_some() => Some(MoveBack::Busy),
        None => Some(MoveBack::Idle),
        Some(MoveBack::Idle | MoveBack::Busy) if !comes_back => {
            faults.add(path, "has no effect: it is for pools that name spot before on-demand in capacity.prefer, take it out");
            None
        }
        Some(MoveBack::Busy) if !saves => {
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
                faults.add(&path, "is 0: name the time between checkpoints, or none");
            }
            Some(every)
        }
    };
    if every.is_none() && spot.checkpoint_overhead.is_some() {
        faults.add(&overhead_path, "is of checkpoints, and the pool writes none: take it out, or name checkpoint");
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
            faults.add(path, "is 0: name how long a save takes, or take it out");
        }
        Saving::Checkpoints { every, .. } if save >= every => {
            let message =
                "is no shorter than the time between checkpoints, which leaves no time for work: name a longer checkpoint";
            faults.add(path, format!("{} {message}", quoted(text)));
        }
        Saving::Checkpoints { .. } => {}
        Saving::Nothing | Saving::Stateless => {
            faults.add(path, "is of checkpoints, and the pool writes none: take it out, or name checkpoint");
        }
    }
    Some(Some(save))
}

fn length(faults: &mut Faults, path: &Path, text: &str) -> Option<SignedDuration> {
    let length = faults.keep(path, grammar::duration(text))?;
    if length > LONGEST {
        faults.add(path, format!("{} is above a week, longer than a spot node lives: shorten it", quoted(text)));
    }
    Some(length)
}
