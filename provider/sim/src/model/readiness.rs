//! Counting the nodes of each group by what has become of them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::by_group::{ByGroup, Slot};
use super::ca_client::{CaClient, FAKE_UNREGISTERED, NodeRef};
use super::registry::Scope;
use super::seen::Seen;
use super::time::after;

/// What the nodes and instances of a group are.
#[derive(Debug, Clone, Default)]
pub(super) struct Readiness {
    pub(super) ready: i32,
    pub(super) unready: i32,
    /// Registered, not Ready yet and young enough; by node name.
    pub(super) not_started: Vec<String>,
    pub(super) registered: i32,
    pub(super) unregistered: i32,
    pub(super) long_unregistered: i32,
}

impl Readiness {
    fn count(&mut self, seen: &Seen, max_startup: SignedDuration, now: Timestamp) {
        self.registered += 1;
        if seen.leaving_since.is_some() {
            // The provider cannot say whether the instance is still there; the mark decides.
        } else if seen.ready {
            self.ready += 1;
        } else if now < after(seen.view.created_at, max_startup) {
            self.not_started.push(seen.view.name.clone());
        } else {
            self.unready += 1;
        }
    }
}

/// The count of one loop.
#[derive(Debug, Clone, Default)]
pub(super) struct Census {
    /// By group; a group without any node or instance is not in it.
    pub(super) groups: ByGroup<Readiness>,
    /// Over all nodes of the cluster, foreign ones too.
    pub(super) total: Readiness,
}

impl Census {
    /// Counts the nodes and the instances without one.
    pub(super) async fn take<D: CaClient>(
        scope: &mut Scope<'_, D>,
        nodes: &[Seen],
        unregistered: &BTreeMap<String, Timestamp>,
    ) -> Self {
        let defaults = scope.settings.group_options();
        // A node whose options cannot be read is judged by those of the node before it, as in the original.
        let mut max_startup = scope.settings.max_node_startup;
        let mut known = ByGroup::default();
        let mut census = Self::default();
        for seen in nodes {
            if let Some(group) = scope.client.known_group_of_seen(seen).await {
                max_startup = startup_time(scope, group, max_startup, &mut known).await;
                if let Some(of_group) = census.groups.or_default(group) {
                    of_group.count(seen, max_startup, scope.now);
                }
            }
            // Where the group has a say in it, the total over all groups asks for each node again.
            if scope.settings.generation.startup_time_from_options()
                && let Some(group) = scope.client.known_group_of_seen(seen).await
            {
                max_startup = startup_time(scope, group, max_startup, &mut known).await;
            }
            census.total.count(seen, max_startup, scope.now);
        }
        for (id, since) in unregistered {
            let Some(group) = scope.client.known_group_of(&NodeRef::fake(id, FAKE_UNREGISTERED)).await else { continue };
            let Ok(options) = scope.client.options(group, &defaults).await else { continue };
            let Some(side) = census.groups.or_default(group) else { continue };
            if after(*since, options.max_node_provision) <= scope.now {
                side.long_unregistered += 1;
            } else {
                side.unregistered += 1;
            }
        }
        census
    }
}

/// How long a node of that group may take to become Ready. A filled answer has no field for it and so makes it nought. Without a transcript
/// it is asked for once a group.
async fn startup_time<D: CaClient>(
    scope: &mut Scope<'_, D>,
    group: Slot,
    before: SignedDuration,
    known: &mut ByGroup<SignedDuration>,
) -> SignedDuration {
    if !scope.settings.generation.startup_time_from_options() {
        return before;
    }
    if let Some(known) = known.get(group).filter(|_| scope.client.quiet) {
        return *known;
    }
    let time = match scope.client.own_options(group, &scope.settings.group_options()).await {
        Ok(None) => scope.settings.max_node_startup,
        Ok(Some(_)) => SignedDuration::ZERO,
        Err(_) => return before,
    };
    known.insert(group, time);
    time
}
