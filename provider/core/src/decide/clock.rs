//! What is remembered of the future.
//!
//! A clock that ran ahead and was set back leaves moments behind that have not come, and whatever waits for them would wait until the clock
//! is there once more: a market left alone, a node that ends. So each begins now, and nothing waits for longer than it would from now on. What others
//! noted by clocks of their own, clouds and the API server, stays as they say, but for the launch of a machine that boots: its boot is
//! counted from there.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Draft;
use crate::state::disruption::{DrainReason, LONGEST_REST, STAYS_FOR, Stage};
use crate::state::memory::Memory;
use crate::state::node_verdict::{Judged, Reason};
use crate::state::record::{Record, State};
use crate::state::spot_history::REGION_LEFT_ALONE;

/// Pulls every moment that this service noted and that has not come back to now.
pub(super) fn set_back(memory: &mut Memory, now: Timestamp) {
    for record in memory.records.values_mut() {
        // Of a large fleet none is, nearly always.
        if latest(record) > now {
            pull_back(Arc::make_mut(record), now);
        }
    }
    let began = |at: &mut Timestamp| *at = (*at).min(now);
    let ends = |at: &mut Option<Timestamp>, within: SignedDuration| *at = at.map(|at| at.min(Draft::after(now, within)));
    for backoff in memory.refused.values_mut().filter(|backoff| backoff.since > now) {
        let backoff = Arc::make_mut(backoff);
        backoff.until = Draft::after(now, backoff.until.duration_since(backoff.since));
        backoff.since = now;
    }
    mend(memory.spot.values_mut(), |known| {
        began(&mut known.since);
        known.event_at.iter_mut().for_each(began);
    });
    mend(memory.reclaims.values_mut(), |region| {
        region.events.iter_mut().for_each(began);
        ends(&mut region.left_alone_until, REGION_LEFT_ALONE);
    });
    mend(memory.groups.values_mut().filter(|group| group.suspended_since.is_some()), |group| {
        group.suspended_since.iter_mut().for_each(began);
    });
    mend(memory.leaving.values_mut(), |leaving| {
        // The cloud's word of when it takes the machine stands, and yet no more time is left than when that was heard.
        if let DrainReason::Reclaimed { at, .. } = &mut leaving.why
            && leaving.since > now
        {
            let left = at.duration_since(leaving.since).max(SignedDuration::ZERO);
            *at = (*at).min(Draft::after(now, left));
        }
        began(&mut leaving.since);
        match &mut leaving.stage {
            Stage::Emptying { closed_at, counted_at, .. } => [closed_at, counted_at].into_iter().for_each(began),
            Stage::DrainAbandoned { until } => *until = (*until).min(Draft::after(now, STAYS_FOR)),
            Stage::Closing | Stage::Ending => {}
        }
    });
    mend(memory.moves.values_mut(), |moves| {
        moves.began_at.iter_mut().for_each(began);
        ends(&mut moves.rests_until, LONGEST_REST);
    });
    mend(memory.aside.values_mut(), |aside| {
        began(&mut aside.since);
        ends(&mut aside.left_open_until, STAYS_FOR);
    });
    for announced in memory.announced.values_mut().filter(|announced| announced.since > now) {
        let announced = Arc::make_mut(announced);
        announced.at = Draft::after(now, announced.at.duration_since(announced.since));
        announced.since = now;
    }
    mend(memory.replaced.values_mut(), |lately| lately.at.iter_mut().chain(&mut lately.stopped_since).for_each(began));
    mend(memory.windows.values_mut(), |released| {
        released.nodes.iter_mut().map(|(_, at)| at).chain(&mut released.grew_at).for_each(began);
    });
    mend(memory.images.values_mut(), |images| images.set_back(now));
    for floor in memory.floors.values_mut().filter(|floor| floor.unmet_since > Some(now)) {
        Arc::make_mut(floor).unmet_since = Some(now);
    }
    let moments = memory.free.values_mut().chain(memory.lapsed.values_mut()).chain(memory.unlisted.values_mut());
    moments.chain(&mut memory.exposure_at).for_each(began);
}

/// Changes those of the values that are other ones then.
fn mend<'a, T: Clone + PartialEq + 'a>(values: impl Iterator<Item = &'a mut Arc<T>>, change: impl Fn(&mut T)) {
    for value in values {
        let mut changed = T::clone(value);
        change(&mut changed);
        if changed != **value {
            *value = Arc::new(changed);
        }
    }
}

/// The latest moment of a record that is pulled back.
fn latest(record: &Record) -> Timestamp {
    let noted = match &record.state {
        State::Wanted => Timestamp::MIN,
        State::Launching { since: at, .. }
        | State::Booting { launched_at: at, .. }
        | State::Registered { at, .. }
        | State::Failed { at, .. }
        | State::Cancelled { since: at, .. }
        | State::Deleting { since: at, .. } => *at,
    };
    let retried = if let State::Launching { retry_at: Some(_), .. } = &record.state { Timestamp::MAX } else { noted };
    let judged = record.judged.as_ref().map_or(Timestamp::MIN, |judged| judged.since);
    let ordered = if record.is_coming() { record.ordered_at } else { Timestamp::MIN };
    retried.max(ordered).max(judged)
}

fn pull_back(record: &mut Record, now: Timestamp) {
    let began = |at: &mut Timestamp| *at = (*at).min(now);
    // When a node that is there was ordered holds nothing by itself; of now, it would tell of growth.
    if record.is_coming() {
        began(&mut record.ordered_at);
    }
    if let Some(Judged { since, why, .. }) = &mut record.judged {
        began(since);
        if let Reason::WindowOver { free_since } | Reason::Closed { free_since, .. } | Reason::Away { free_since, .. } = why {
            began(free_since);
        }
    }
    match &mut record.state {
        State::Launching { since, retry_at, .. } => {
            began(since);
            let latest = Draft::after(now, super::absorb::ASK_AGAIN_AFTER);
            *retry_at = retry_at.map(|at| at.min(latest));
        }
        // Its boot would have no end.
        State::Booting { launched_at: at, .. }
        | State::Registered { at, .. }
        | State::Failed { at, .. }
        | State::Cancelled { since: at, .. }
        | State::Deleting { since: at, .. } => began(at),
        State::Wanted => {}
    }
}
