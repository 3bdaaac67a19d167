//! When the next loop can differ, so that a caller in virtual time may skip those between.

use jiff::{SignedDuration, Timestamp};

use super::autoscaler::Autoscaler;
use super::ca_client::CaClient;
use super::cluster::Cluster;
use super::time::after;

/// How soon a loop follows one that scaled, with frequent loops: what a real one takes to run.
pub const LOOP_GAP: SignedDuration = SignedDuration::from_millis(50);

impl<D: CaClient, C: Cluster> Autoscaler<D, C> {
    /// When the process would start its next loop by itself. With frequent loops a pod that the scheduler could not place starts
    /// one at once.
    pub fn next_scan(&self, now: Timestamp) -> Timestamp {
        let scaled = |at: Option<Timestamp>| at.is_some() && at == self.state.last.as_ref().map(|last| last.at);
        let productive = scaled(self.state.last_scale_up) || scaled(self.state.last_delete);
        after(now, if self.settings.frequent_loops && productive { LOOP_GAP } else { self.settings.scan_interval })
    }

    /// The next moment after `now` at which a loop could do anything else than the last one did, if nothing happens outside:
    /// `None` where there is none, `now` before the first loop.
    ///
    /// A loop at an earlier moment changes nothing. The real process loops at the first scan at or after that moment.
    pub fn next_interesting(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(last) = &self.state.last else { return Some(now) };
        let settings = &self.settings;
        let mut at = self.state.registry.deadlines(settings, now);
        at.extend(last.active.then(|| self.next_scan(last.at)));
        at.extend(last.held_until);
        at.extend(self.state.deletions.deadlines());
        at.extend(self.state.planner.deadlines());
        at.extend(self.cooldown_ends(now).filter(|_| self.state.planner.has_unneeded()));
        at.extend(&last.of_nodes);
        at.into_iter().filter(|at| now < *at).min()
    }

    /// When a caller in virtual time should run the next loop, at a moment at which the process would start one: the first where something
    /// `changed` outside since the last loop, else the first at which anything can differ; `None` where that is never.
    ///
    /// A caller that runs all of these does the same as one that runs every loop.
    pub fn next_regular_loop(&self, now: Timestamp, changed: bool) -> Option<Timestamp> {
        let Some(last) = &self.state.last else { return Some(now) };
        let due = if changed { now } else { self.next_interesting(last.at)?.max(now) };
        let scan = self.next_scan(last.at);
        let late = due.duration_since(scan).as_nanos().max(0);
        let every = self.settings.scan_interval.as_nanos().max(1);
        let skipped = late.div_euclid(every) + i128::from(late.rem_euclid(every) > 0);
        let skipped = i64::try_from(skipped.saturating_mul(every)).unwrap_or(i64::MAX);
        Some(after(scan, SignedDuration::from_nanos(skipped)))
    }

    /// When a caller in virtual time should run the next loop, not before `now`: the next scan where something `changed` outside
    /// since the last loop, else the first scan at which anything can differ; `None` where that is never.
    pub fn next_loop(&self, now: Timestamp, changed: bool) -> Option<Timestamp> {
        let Some(last) = &self.state.last else { return Some(now) };
        let scan = self.next_scan(last.at).max(now);
        if changed {
            return Some(scan);
        }
        let due = self.next_interesting(last.at)?;
        let late = due.duration_since(scan).as_millis().max(0);
        let every = self.settings.scan_interval.as_millis().max(1);
        let scans = i64::try_from(late.saturating_add(every - 1) / every).unwrap_or(i64::MAX);
        let skipped = i64::try_from(every).ok().and_then(|every| every.checked_mul(scans)).unwrap_or(i64::MAX);
        Some(after(scan, SignedDuration::from_millis(skipped)))
    }
}
