//! What EC2 says of machines that run: checks that fail, and maintenance that it has scheduled. It is asked and not only heard, so that a
//! restart forgets nothing.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::RegionSupplier;
use super::facts::moment;
use super::notices::{MAINTENANCE_AHEAD, Reclaim};
use crate::answers::{InstanceStatus, InstanceStatuses, StatusCheck};
use crate::wire::{Failure, Form};

/// How long a check must have failed to count: what passes sooner costs no node.
const FAILS_FOR: SignedDuration = SignedDuration::from_mins(2);

/// How old what was told may be: after that nobody knows.
const KNOWN_FOR: SignedDuration = SignedDuration::from_mins(5);

/// How long after its beginning maintenance is still told: the machine has gone, or nobody came for it.
const OVER_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Kinds of scheduled events: all but those of disks and networks, which take no machine.
const EVENTS: [&str; 5] = ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];

/// The health of a region's machines, by their ids in EC2. Those with which nothing is wrong are left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    as_of: Timestamp,
    /// Which check fails, and since when.
    failing: BTreeMap<(String, &'static str), Timestamp>,
    /// When scheduled events begin.
    scheduled: BTreeMap<String, Timestamp>,
}

impl Health {
    /// Whether it can still be relied on.
    pub(super) fn is_known(&self, now: Timestamp) -> bool {
        now.duration_since(self.as_of) <= KNOWN_FOR
    }

    /// What is wrong with a machine, as a sentence.
    pub(super) fn impaired(&self, id: &str, now: Timestamp) -> Option<String> {
        // What it fails of the host's tells more than what it fails of its own.
        ["system", "instance"].into_iter().find_map(|check| {
            let since = self.failing.get(&(id.to_owned(), check))?;
            let lasts = now.duration_since(*since) >= FAILS_FOR;
            lasts.then(|| format!("EC2's {check} status check fails since {}", since.strftime("%Y-%m-%d %H:%M:%SZ")))
        })
    }

    /// When a machine is taken for maintenance.
    pub(super) fn maintenance(&self, id: &str, now: Timestamp) -> Option<Reclaim> {
        let at = *self.scheduled.get(id).filter(|at| now.duration_since(**at) <= OVER_AFTER)?;
        Some(Reclaim { at, from: at.saturating_sub(MAINTENANCE_AHEAD).unwrap_or(at) })
    }

    /// Whether another says the same of machines.
    pub(super) fn says_as(&self, other: &Self) -> bool {
        (&self.failing, &self.scheduled) == (&other.failing, &other.scheduled)
    }

    fn take(&mut self, told: &InstanceStatus, before: Option<&Self>) {
        let id = &told.instance_id;
        for (check, is) in [("system", &told.system_status), ("instance", &told.instance_status)] {
            if is.status == "impaired" {
                let key = (id.clone(), check);
                let known = before.and_then(|before| before.failing.get(&key)).copied();
                let since = began(is).or(known).unwrap_or(self.as_of);
                self.failing.insert(key, since);
            }
        }
        // An event that is over stays in the list for a week.
        let is_over = |description: &str| ["[Completed]", "[Canceled]"].iter().any(|over| description.starts_with(over));
        let open = told.events_set.iter().filter(|event| !is_over(&event.description));
        if let Some(first) = open.filter_map(|event| moment(event.not_before.as_deref()?)).min() {
            self.scheduled.insert(id.clone(), first);
        }
    }
}

fn began(check: &StatusCheck) -> Option<Timestamp> {
    check.details.iter().filter_map(|detail| moment(detail.impaired_since.as_deref()?)).min()
}

impl RegionSupplier {
    /// Asks for what is wrong with machines. The account's others are left out by whoever looks a machine up.
    pub(super) async fn health(&self) -> Result<Health, Failure> {
        let asked = || Form::ec2("DescribeInstanceStatus").with("MaxResults", "1000");
        let wrong = [
            asked().filter("system-status.status", ["impaired"]),
            asked().filter("instance-status.status", ["impaired"]),
            asked().filter("event.code", EVENTS),
        ];
        let mut told = Vec::new();
        for form in &wrong {
            let take = |page: InstanceStatuses| {
                told.extend(page.instance_status_set);
                page.next_token
            };
            self.api.pages(form, take).await?;
        }
        let mut health = Health { as_of: self.api.now(), ..Health::default() };
        let known = self.known();
        for one in &told {
            health.take(one, known.facts.health());
        }
        Ok(health)
    }
}
