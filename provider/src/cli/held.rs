//! Verdicts as `nodes` shows them, and what nodes cost that pods hold and do nothing with, by whose pods they are.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use stoker_advice::rollup::{Holder, Owner, PodLabels};
use stoker_core::base::units::UsdPerHour;
use stoker_core::state::node_verdict::{Judged, Verdict};

use super::idle::By;
use super::out::age;

/// What is concluded of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VerdictShown {
    /// The verdict.
    pub(super) verdict: Verdict,
    /// Since when.
    since: Timestamp,
    /// From what, in words.
    why: String,
}

impl From<&Judged> for VerdictShown {
    fn from(Judged { verdict, why, since }: &Judged) -> Self {
        Self { verdict: *verdict, since: *since, why: why.to_string() }
    }
}

impl VerdictShown {
    /// The verdict and how long it has been this one: `held 3h`.
    pub(super) fn cell(&self, now: Timestamp) -> String {
        format!("{} {}", self.verdict, age(Some(now.duration_since(self.since))))
    }
}

/// Reads a verdict's word.
pub(super) fn verdict(text: &str) -> Result<Verdict, String> {
    let known = Verdict::ALL.into_iter().find(|verdict| verdict.as_str() == text);
    known.ok_or_else(|| format!("invalid verdict: write one of {}", Verdict::ALL.map(Verdict::as_str).join(", ")))
}

/// What held nodes cost an hour, by whose pods hold them.
#[derive(Debug, Default)]
pub(super) struct HeldBy(BTreeMap<(Owner, PodLabels), UsdPerHour>);

impl HeldBy {
    /// Counts a node that is held: its whole price, by the GPUs that readings give to each owner; where they give none, evenly by the pods
    /// on it. One of which not even that is known is nobody's.
    pub(super) fn add<'a>(&mut self, price: UsdPerHour, gpus: impl Iterator<Item = &'a Holder>, pods: &[String]) {
        let mut shares: BTreeMap<(Owner, PodLabels), u32> = BTreeMap::new();
        for holder in gpus {
            if let Holder::Pod { owner, labels, .. } = holder {
                *shares.entry((owner.clone(), labels.clone())).or_default() += 1;
            }
        }
        if shares.is_empty() {
            for (namespace, pod) in pods.iter().filter_map(|pod| pod.split_once('/')) {
                *shares.entry((Owner::of(namespace, pod, None, None), PodLabels::default())).or_default() += 1;
            }
        }
        let whole = shares.values().sum();
        for (whose, share) in shares {
            let cost = self.0.entry(whose).or_default();
            *cost = cost.plus(price.times(share).per(whole));
        }
    }

    /// By the names that `by` adds up to, and whether each says whose it is.
    pub(super) fn named(&self, by: &By) -> BTreeMap<(bool, String), UsdPerHour> {
        let mut named: BTreeMap<(bool, String), UsdPerHour> = BTreeMap::new();
        for ((owner, labels), cost) in &self.0 {
            let sum = named.entry(by.name(owner, labels)).or_default();
            *sum = sum.plus(*cost);
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, owner: &str) -> Holder {
        Holder::Pod { name: format!("ml/{name}").into(), owner: owner_of(owner), labels: PodLabels::of([("team", owner)]) }
    }

    fn owner_of(name: &str) -> Owner {
        Owner { namespace: "ml".into(), name: name.into() }
    }

    #[test]
    fn a_held_node_costs_those_whose_pods_have_its_gpus() {
        let mut held = HeldBy::default();
        // Of four GPUs three are told: two of one owner, one of another.
        held.add(UsdPerHour(900), [pod("a", "recs"), pod("b", "recs"), pod("c", "notebook"), Holder::Nobody].iter(), &[]);
        // Nothing is read: evenly by pods, called by their names without what Kubernetes made up.
        held.add(UsdPerHour(100), std::iter::empty(), &["ml/notebook".into(), "dev/jupyter-x4c8v".into()]);
        held.add(UsdPerHour(7), std::iter::empty(), &[]);
        let owners = [("dev/jupyter", 50), ("ml/notebook", 350), ("ml/recs", 600)];
        let of = |name: &str, cost| ((true, name.to_owned()), UsdPerHour(cost));
        assert_eq!(held.named(&By::Owner), owners.map(|(name, cost)| of(name, cost)).into());
        let namespaces = [("dev", 50), ("ml", 950)];
        assert_eq!(held.named(&By::Namespace), namespaces.map(|(name, cost)| of(name, cost)).into());
        let unlabelled = ((false, "pods without label team".to_owned()), UsdPerHour(100));
        let teams = [unlabelled, of("team=notebook", 300), of("team=recs", 600)];
        assert_eq!(held.named(&By::Label("team".to_owned())), teams.into());
    }

    #[test]
    fn a_verdict_is_shown_with_its_age_and_read_by_its_word() {
        let since: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        let judged = Judged { verdict: Verdict::Held, why: stoker_core::state::node_verdict::Reason::Pods, since };
        assert_eq!(VerdictShown::from(&judged).cell("2026-11-01T03:59:00Z".parse().unwrap()), "held 3h");
        assert_eq!(verdict("held"), Ok(Verdict::Held));
        assert!(verdict("free").unwrap_err().contains("booting, warm, idle"));
    }
}
