//! The published view: what read RPCs answer from. Immutable, swapped whole, never waited for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{NodeGroupId, NodeName};
use stoker_core::base::sabotage;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::template::NodeTemplate;
use stoker_core::limits::usage::group_of;
use stoker_core::plan::{Accounts, GroupLimits};
use stoker_core::state::memory::Memory;
use stoker_core::state::record::State;
use stoker_proto::Bytes;

/// Why the view must not be shown to an autoscaler: half a view makes it buy twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// No pass has been made yet.
    #[error("starting: no decision has been made yet")]
    Starting,
    /// A supplier has never answered completely.
    #[error("supplier {0} has not listed all its machines yet")]
    Supplier(String),
    /// The Kubernetes feed has not seen everything yet.
    #[error("the Kubernetes feed has not listed all nodes and pods yet")]
    Kubernetes,
    /// The Kubernetes feed is broken: who holds which node is not known any more.
    #[error("the Kubernetes feed is broken: it is unknown which nodes are in use")]
    KubernetesBroken,
    /// A supplier has never told of its markets.
    #[error("supplier {0} has not reported its markets yet")]
    Markets(String),
    /// The nodes that are not Stoker's are not known, and the policy counts them.
    #[error("karpenter: the API server has not listed the GPU nodes that others bought, or what Karpenter may buy")]
    Foreign,
    /// The journal cannot be written.
    #[error("the journal cannot be written: {0}")]
    Journal(String),
}

/// What read RPCs answer from.
#[derive(Debug)]
pub struct View {
    /// When it was true.
    pub at: Timestamp,
    /// What the wall showed then.
    pub wall: Wall,
    /// Whether it may be shown, and if not why.
    pub ready: Result<(), NotReady>,
    /// Every group, by id: listed or not.
    pub groups: BTreeMap<NodeGroupId, Arc<GroupView>>,
    /// The group of every node that is ours, by provider id, by placeholder and by node name.
    pub owners: HashMap<String, NodeGroupId>,
    /// How budgets and commitments stand.
    pub accounts: Accounts,
    /// The catalogue it was made from.
    pub catalogue: Arc<Catalogue>,
    /// The memory it was made from.
    pub memory: Arc<Memory>,
}

/// One group as published.
#[derive(Debug, Clone)]
pub struct GroupView {
    /// What it is.
    pub group: Arc<Group>,
    /// Its limits.
    pub limits: GroupLimits,
    /// The instances that the autoscaler is shown.
    pub instances: Vec<InstanceView>,
    /// The template Node as a core/v1 protobuf message.
    pub template: Bytes,
}

#[cfg(test)]
impl GroupView {
    /// A group without a node, as it is shown before anything is known of it.
    pub(crate) fn empty(group: &Arc<Group>) -> Self {
        let limits = GroupLimits {
            target: 0,
            min: 0,
            max: 0,
            busy: 0,
            paid: 0,
            free: stoker_core::plan::FreeNodes::default(),
            listed: true,
            next_price: None,
            next_paid: None,
            lasting_price: None,
            supply: Vec::new(),
            closed: None,
        };
        Self { group: Arc::clone(group), limits, instances: Vec::new(), template: Bytes::new() }
    }
}

/// One instance as the autoscaler is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceView {
    /// Its id: the Node's `spec.providerID`, or a placeholder before there is a machine.
    pub id: String,
    /// What it is doing.
    pub state: InstanceStatus,
}

/// What an instance is doing, as the autoscaler tells it apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceStatus {
    /// On its way.
    Creating,
    /// Joined.
    Running,
    /// On its way out; not in the target.
    Deleting,
    /// Could not be had: the autoscaler backs off and deletes it.
    Failed {
        /// One of a small fixed set.
        code: &'static str,
        /// For people.
        message: String,
        /// Whether the cause is a lack of resources.
        out_of_resources: bool,
    },
}

/// Makes views, and keeps the encoded templates of groups that did not change.
#[derive(Debug, Default)]
pub struct Publisher {
    templates: HashMap<NodeGroupId, (Arc<Group>, Option<NodeTemplate>, Bytes)>,
}

impl Publisher {
    /// The view of a pass.
    pub fn view(
        &mut self,
        Times { now: at, wall }: Times,
        ready: Result<(), NotReady>,
        limits: BTreeMap<NodeGroupId, GroupLimits>,
        accounts: Accounts,
        catalogue: &Arc<Catalogue>,
        memory: &Arc<Memory>,
    ) -> View {
        let mut instances: BTreeMap<&NodeGroupId, Vec<InstanceView>> = BTreeMap::new();
        let mut owners = HashMap::with_capacity(memory.records.len() * 3);
        for record in memory.records.values() {
            owners.insert(record.placeholder.to_string(), record.group.clone());
            if let Some(machine) = record.instance().filter(|_| memory.shows(record)) {
                owners.insert(machine.to_string(), record.group.clone());
            }
            if let State::Registered { node: Some(node), .. } = &record.state {
                owners.insert(node.to_string(), record.group.clone());
            }
            if let Some(state) = status(&record.state) {
                let id = if sabotage::on("instance-id-altered") { &record.placeholder } else { record.shown_id() };
                let shown = InstanceView { id: id.to_string(), state };
                instances.entry(&record.group).or_default().push(shown);
            }
        }
        let mut groups = BTreeMap::new();
        for (id, limits) in limits {
            let Some(group) = catalogue.group_or_remembered(&id, memory) else { continue };
            let instances = instances.remove(&id).unwrap_or_default();
            let template = self.template(group, memory);
            groups.insert(id, Arc::new(GroupView { group: Arc::clone(group), limits, instances, template }));
        }
        self.templates.retain(|id, _| groups.contains_key(id));
        View { at, wall, ready, groups, owners, accounts, catalogue: Arc::clone(catalogue), memory: Arc::clone(memory) }
    }

    /// A group's template, on the wire: as its nodes are.
    fn template(&mut self, group: &Arc<Group>, memory: &Memory) -> Bytes {
        let corrected = memory.corrected_template(group);
        if let Some((known, known_corrected, bytes)) = self.templates.get(&group.id)
            && *known_corrected == corrected
            && (Arc::ptr_eq(known, group) || known.template == group.template)
        {
            return bytes.clone();
        }
        let template = corrected.as_ref().unwrap_or(&group.template);
        let bytes = Bytes::from(crate::kube::template::node_proto(template, &NodeName::from(&group.id)));
        self.templates.insert(group.id.clone(), (Arc::clone(group), corrected, bytes.clone()));
        bytes
    }
}

/// What the autoscaler is shown of a record; `None` for one that it must not see.
fn status(state: &State) -> Option<InstanceStatus> {
    match state {
        State::Wanted | State::Launching { .. } if sabotage::on("placeholders-unlisted") => None,
        State::Deleting { .. } if sabotage::on("deleting-looks-running") => Some(InstanceStatus::Running),
        State::Wanted | State::Launching { .. } | State::Booting { .. } => Some(InstanceStatus::Creating),
        State::Registered { .. } => Some(InstanceStatus::Running),
        State::Deleting { .. } => Some(InstanceStatus::Deleting),
        State::Failed { kind, message, .. } => Some(InstanceStatus::Failed {
            code: kind.code(),
            message: message.clone(),
            out_of_resources: matches!(
                kind,
                stoker_core::facts::supply::RefusalKind::OutOfCapacity | stoker_core::facts::supply::RefusalKind::QuotaExceeded
            ),
        }),
        State::Cancelled { .. } => None,
    }
}

impl View {
    /// A view before the first pass.
    pub fn starting(at: Timestamp, catalogue: Arc<Catalogue>) -> Self {
        Self {
            at,
            wall: Wall(at),
            ready: Err(NotReady::Starting),
            groups: BTreeMap::new(),
            owners: HashMap::new(),
            accounts: Accounts::default(),
            catalogue,
            memory: Arc::default(),
        }
    }

    /// The groups worth listing, in id order.
    pub fn listed(&self) -> impl Iterator<Item = &Arc<GroupView>> {
        self.groups.values().filter(|group| group.limits.listed)
    }

    /// The group of a node, by its provider id or else by its name; `None` for a node that is not ours.
    pub fn owner(&self, provider_id: &str, name: &str) -> Option<&NodeGroupId> {
        // A machine that is named by its id is that one or none: a host's name may have been given to a new machine meanwhile.
        let by_name = provider_id.is_empty() || provider_id == name;
        self.owners.get(if by_name { name } else { provider_id })
    }

    /// The group that a record belongs to.
    pub fn group_of_record<'a>(&'a self, record: &stoker_core::state::record::Record) -> Option<&'a Group> {
        group_of(record, &self.memory, &self.catalogue)
    }
}
