//! Nodes that are taken: only what is free, or what the cloud, the policy or a user takes in any case.

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::kinds::{Evidence, ReturnToSpot};
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::health::UnhealthyAction;
use stoker_core::state::node_verdict::Verdict;

use crate::desk::Taken;
use crate::scene::Scene;

/// After so long without a reading a node's probe is silent; some seconds are left for it to be noticed.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(20);

/// How long before its end capacity is emptied, at the longest: 40 min before a capacity block's.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// How soon what is withdrawn is heard, and what was begun in good faith is done.
const HEARS_IN: SignedDuration = SignedDuration::from_secs(2);

/// After so long a probe that is heard again is believed.
pub(super) const BELIEVED_AFTER: SignedDuration = SignedDuration::from_secs(75);

impl Scene {
    /// Whether a node's probe is heard for so long that it is believed.
    fn is_believed(&self, node: &str) -> bool {
        self.truth.speaks_since.get(node).is_some_and(|since| self.now.duration_since(*since) > BELIEVED_AFTER)
    }

    /// Notes of which withdrawals the provider cannot hear: its supplier does not answer, or the node's probe, which may have told it of
    /// the notice, is silent.
    pub(super) fn notes_withdrawals(&mut self) {
        let asks = self.desk().works() && !self.desk().faults.stale;
        // One that began anew hears each probe from the start.
        let began = self.now.duration_since(self.truth.began_at) <= BELIEVED_AFTER;
        let deaf = self.truth.withdrawn.keys().filter(|node| !asks || began || !self.is_believed(node));
        let deaf: Vec<String> = deaf.cloned().collect();
        for node in deaf {
            self.truth.withdrawn.insert(node, self.now);
        }
    }

    /// A pod is told to go by us: only where its machine goes in any case, or the policy says so of such a node.
    pub(crate) fn evicted_by_us(&mut self, pod: &str, node: &str) {
        self.truth.count("pods told to go");
        let by_policy = self.pool_of_node(node).is_some_and(|(pool, ..)| {
            let sick = self.truth.sick.contains(node) && pool.unhealthy.action == UnhealthyAction::Drain;
            let forgotten = self.pods.get(pod).is_some_and(|pod| !pod.spec.works)
                && pool.off_hours.as_ref().is_some_and(|hours| hours.evict_held_after.is_some());
            sick || forgotten
        });
        if self.desk().cloud.of_node(node).is_some_and(|machine| machine.reclaim.is_some()) {
            self.truth.given_back.insert(node.to_owned());
        }
        if !self.goes_anyway(node) && !by_policy {
            let now = self.now;
            self.truth.breaks(now, &format!("{pod} was told to leave {node}, and nothing excuses it"));
        }
    }

    /// Whether the cloud takes a node, its capacity ends, or it is moved back to spot.
    fn goes_anyway(&self, node: &str) -> bool {
        let Some(machine) = self.desk().cloud.of_node(node) else { return true };
        let by_policy = self.pool_of_node(node).is_some_and(|(pool, _, bought)| {
            let moves = pool.spot.as_ref().is_some_and(|spot| spot.return_to_spot == ReturnToSpot::Busy);
            let back = moves && bought == CapacityType::OnDemand && self.goes_back_to_spot(machine);
            let commitments = &self.desk().catalogue.policy.commitments;
            let ends_soon = |until: Timestamp| until.duration_since(self.desk().wall().0) <= ENDS_WITHIN;
            let ends = commitments.iter().filter_map(|commitment| commitment.until).any(ends_soon);
            back || (bought == CapacityType::Reserved && ends)
        });
        let unheard = |since: &Timestamp| self.now.duration_since(*since) <= HEARS_IN;
        let taken_back = machine.reclaim.is_some() || self.truth.withdrawn.get(node).is_some_and(unheard);
        taken_back || self.truth.given_back.contains(node) || by_policy
    }

    /// What the provider itself calls busy, held or unknown is taken by nobody: not by the autoscaler through the door, and by the provider
    /// only where the cloud takes it, its capacity ends, work is moved back to spot, or off-hours give up what is held.
    pub(super) fn judges_taken(&mut self) {
        let now = self.now;
        for Taken { node, verdict, why, by_autoscaler } in std::mem::take(&mut self.desk_mut().taken) {
            let pool = self.pool_of_node(node.as_str()).map(|(pool, ..)| pool);
            let off = pool.and_then(|pool| pool.off_hours.as_ref());
            let given_up = off.is_some_and(|off| off.evict_held_after.is_some() && off.at(self.desk().wall().0).0);
            let allowed = self.goes_anyway(node.as_str()) || (verdict == Verdict::Held && given_up);
            if by_autoscaler || !allowed {
                let who = if by_autoscaler { "the autoscaler" } else { "the provider" };
                self.truth.breaks(now, &format!("{who} takes {node}, which is {verdict}: {why}"));
            }
        }
    }

    /// A Node object goes only when its machine does: its pods go with it.
    pub(crate) fn node_removed(&mut self, node: &str) {
        let now = self.now;
        if self.desk().cloud.of_node(node).is_some_and(|machine| machine.ends_at.is_none()) {
            self.truth.breaks(now, &format!("the Node object of {node} is removed, and its machine runs"));
        }
    }

    /// The autoscaler takes a node for unneeded and marks it.
    pub(crate) fn chosen(&mut self, node: &str) {
        let Some(pool) = self.pool_of_node(node).map(|(pool, ..)| pool.name.clone()) else { return };
        let asked = (!self.is_unfit(node)).then(|| self.asked_of(&pool));
        self.truth.chosen.insert(node.to_owned(), asked);
        self.window_is_over(node, "chosen");
    }

    /// The autoscaler deleted a node through the door, and the provider took it.
    pub(crate) fn deleted(&mut self, node: &str) {
        let (now, pods) = (self.now, self.pods_on(node));
        self.truth.count("nodes deleted by the autoscaler");
        if pods.is_empty() {
            self.truth.went_free.insert(node.to_owned());
        } else {
            self.truth.breaks(now, &format!("{node} was deleted under {}", pods.join(", ")));
        }
        let Some((pool, group, _)) = self.pool_of_node(node) else { return };
        let (name, judged_by_probe) = (pool.name.clone(), pool.evidence == Evidence::Probe);
        // Where fewer than half of a pool's are believed, its pods go on to tell: one probe that works says nothing of why the others do not.
        let of_pool = self.probes.keys().filter(|node| self.pool_of_node(node).is_some_and(|(pool, ..)| pool.name == name));
        let of_pool: Vec<&String> = of_pool.collect();
        let others_speak = of_pool.iter().filter(|node| self.is_believed(node)).count() * 2 >= of_pool.len();
        let silent = self.truth.silent_since.get(node).is_some_and(|since| now.duration_since(*since) > SILENT_AFTER);
        // Broken hardware need not tell: what keeps it is what runs on it.
        if judged_by_probe && silent && others_speak && !self.truth.sick.contains(node) {
            self.truth.breaks(now, &format!("{node} was deleted while its probe was silent"));
        }
        self.given_up(node, group, &name);
    }
}
