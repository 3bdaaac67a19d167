//! What an autoscaler is shown of the view. The set of groups changes only at its Refresh, their figures at any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use stoker_core::base::ids::{MAX_ID_LEN, NodeGroupId};
use stoker_core::decide::orders::OrderRefused;
use stoker_proto::Bytes;
use stoker_proto::externalgrpc::NodeGroup;

use super::convert::{group_id, size};
use super::status::{Refused, clip};
use crate::engine::EngineHandle;
use crate::publish::view::{GroupView, InstanceView, View};

/// Longest remark on a group, in bytes. The autoscaler takes a list of at most 4 MiB: so 10,000 groups fit.
const MAX_REMARK: usize = 200;

type Groups = BTreeMap<NodeGroupId, Arc<GroupView>>;

/// The groups of the last listing and of the one before, as they were last seen. A group may go between two Refreshes; until the next
/// one, its size is nought and its template the last, since an error would end the autoscaler's loop. The autoscaler's own list is one
/// Refresh behind at most.
#[derive(Debug, Default)]
pub(super) struct Shown(ArcSwapOption<Listings>);

#[derive(Debug, Default)]
struct Listings {
    last: Groups,
    before: Groups,
}

impl Listings {
    fn get(&self, id: &str) -> Option<&GroupView> {
        NodeGroupId::find(&self.last, id).or_else(|| NodeGroupId::find(&self.before, id)).map(AsRef::as_ref)
    }
}

impl Shown {
    /// Notes what a Refresh has listed.
    pub(super) fn note(&self, engine: &EngineHandle) {
        let (view, listing) = (engine.view(), engine.listing());
        self.0.rcu(|known| {
            let last = listing.iter().filter_map(|id| Some((id.clone(), Arc::clone(view.groups.get(id)?)))).collect();
            let before = known.as_ref().map(|known| known.last.clone()).unwrap_or_default();
            Some(Arc::new(Listings { last, before }))
        });
    }

    /// What can be seen now.
    pub(super) fn read(&self, engine: &EngineHandle) -> Reading {
        Reading { view: engine.view(), listing: engine.listing(), known: self.0.load() }
    }
}

/// One moment's view, and the groups listed.
pub(super) struct Reading {
    pub(super) view: Guard<Arc<View>>,
    listing: Guard<Arc<Vec<NodeGroupId>>>,
    known: Guard<Option<Arc<Listings>>>,
}

impl Reading {
    /// The groups listed at the last Refresh.
    ///
    /// # Errors
    /// When there was none yet: an empty list would say that there are no groups.
    pub(super) fn listed(&self) -> Result<impl Iterator<Item = Seen<'_>>, Refused> {
        if self.known.is_none() && self.listing.is_empty() {
            self.view.ready.clone()?;
            return Err(Refused::NotListed);
        }
        Ok(self.listing.iter().filter_map(|id| self.listable(id)))
    }

    /// The listed group of a node, by its provider id or else by its name; `None` for a node that is not ours.
    pub(super) fn owner(&self, provider_id: &str, name: &str) -> Option<Seen<'_>> {
        // No id of ours is longer, and hashing a megabyte would take a millisecond.
        let short = |text: &str| text.len() <= MAX_ID_LEN;
        let provider_id = Some(provider_id).filter(|id| short(id)).unwrap_or_default();
        let name = Some(name).filter(|name| short(name)).unwrap_or_default();
        let id = self.view.owner(provider_id, name)?;
        // The listing is in id order.
        self.listing.binary_search(id).ok()?;
        self.listable(id)
    }

    /// A group, listed or not.
    ///
    /// # Errors
    /// When no such group is or was listed; while the view is not whole, that it is not.
    pub(super) fn group(&self, id: &str) -> Result<Seen<'_>, Refused> {
        if let Some(seen) = self.find(id) {
            return Ok(seen);
        }
        let id = group_id(id)?;
        self.view.ready.clone()?;
        Err(OrderRefused::UnknownGroup(id).into())
    }

    fn find(&self, id: &str) -> Option<Seen<'_>> {
        let now = NodeGroupId::find(&self.view.groups, id).map(|group| Seen::Now(group));
        now.or_else(|| Some(Seen::Gone(self.known.as_deref()?.get(id)?)))
    }

    /// A group whose template can be shown. One without would stop every scale-up.
    fn listable(&self, id: &NodeGroupId) -> Option<Seen<'_>> {
        self.find(id.as_str()).filter(|seen| !seen.template().is_empty())
    }
}

/// A group as it is seen.
#[derive(Clone, Copy)]
pub(super) enum Seen<'a> {
    /// It is in the view.
    Now(&'a GroupView),
    /// It is gone since the last Refresh: this is how it last was.
    Gone(&'a GroupView),
}

impl<'a> Seen<'a> {
    const fn last(self) -> &'a GroupView {
        match self {
            Self::Now(group) | Self::Gone(group) => group,
        }
    }

    /// Its id.
    pub(super) fn id(self) -> &'a NodeGroupId {
        &self.last().group.id
    }

    /// The template Node, serialised.
    pub(super) const fn template(self) -> &'a Bytes {
        &self.last().template
    }

    /// Records that count.
    pub(super) fn target(self) -> i32 {
        match self {
            Self::Now(group) => size(group.limits.target),
            Self::Gone(_) => 0,
        }
    }

    /// Its instances.
    pub(super) fn instances(self) -> &'a [InstanceView] {
        match self {
            Self::Now(group) => &group.instances,
            Self::Gone(_) => &[],
        }
    }

    /// What the autoscaler acts on.
    pub(super) fn node_group(self) -> NodeGroup {
        let (min_size, max_size) = match self {
            Self::Now(group) => (size(group.limits.min), size(group.limits.max)),
            Self::Gone(_) => (0, 0),
        };
        NodeGroup { id: self.id().to_string(), min_size, max_size, debug: String::new() }
    }

    /// The same with a remark for people: what the next node costs, or why there is none.
    pub(super) fn remarked(self) -> NodeGroup {
        let remark = match self {
            Self::Now(group) => match (&group.limits.closed, group.limits.next_price) {
                (Some(why), _) => format!("closed: {why}"),
                (None, Some(price)) => format!("next node {price}/h"),
                (None, None) => String::new(),
            },
            Self::Gone(_) => "closed: removed since the last Refresh".to_owned(),
        };
        NodeGroup { debug: clip(remark, MAX_REMARK), ..self.node_group() }
    }
}
