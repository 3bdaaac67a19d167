//! A pool that is drafted.

use std::collections::{BTreeMap, BTreeSet};

use stoker_core::base::ids::{Cloud, InstanceType, ZoneId, ZoneName};
use stoker_core::base::kinds::{Taint, Workload};
use stoker_core::market::offer::{CapacityType, InstanceSpec};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::{MAX_POOL_NAME, RawCapacity, RawGpu, RawLimits, RawPool, RawTaint, RawTemplate, RawWhere};

use super::cluster::{Cluster, listed};
use crate::print::count;

/// A pool, and what is said of it.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) raw: RawPool,
    /// Comments above it.
    pub(super) notes: Vec<String>,
    /// The comment on its limit of nodes.
    pub(super) limit: String,
    /// Nodes of today, where they are its limit.
    pub(super) today: Option<u32>,
}

impl Draft {
    /// A pool of that name, as far as a pool can be called that.
    pub(super) fn new(called: &str) -> Self {
        let name = name(called);
        let notes = if name == called { Vec::new() } else { vec![format!("The cluster calls it {called}.")] };
        Self { raw: blank(name), notes, limit: String::new(), today: None }
    }

    /// Its nodes are those of today.
    pub(super) fn limit_to_today(&mut self, nodes: usize) {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        self.raw.limits.max_nodes = nodes.max(1);
        self.today = Some(nodes);
    }

    /// Lets it grow to twice its size where pods wait that could run in it, and says what its limit is.
    pub(super) fn settle_limit(&mut self, waiting: usize) {
        let Some(today) = self.today else { return };
        let runs = if today == 0 { "none runs today" } else { "what runs today" };
        if waiting == 0 {
            runs.clone_into(&mut self.limit);
            return;
        }
        self.raw.limits.max_nodes = self.raw.limits.max_nodes.saturating_mul(2);
        let pods = count(waiting, "GPU pod");
        let wait = if waiting == 1 { "waits" } else { "wait" };
        self.limit = match today {
            0 => format!("{runs}, and {pods} that could run here {wait}"),
            _ => format!("twice {runs}, as {pods} that could run here {wait}"),
        };
    }

    /// Buys in these zones, by name or id, where the tables know them or their ids are known; else in all of the region.
    pub(super) fn set_zones(&mut self, cluster: &Cluster, book: &PriceBook, zones: &BTreeSet<&str>) {
        let known: BTreeSet<&str> = book.entries().map(|(market, _)| market.place.zone.as_str()).collect();
        let id = |zone: &&str| {
            let id = ZoneName::find(&cluster.zone_ids, zone).map_or(*zone, ZoneId::as_str);
            known.contains(id).then(|| id.to_owned())
        };
        let ids: Option<BTreeSet<String>> = zones.iter().map(id).collect();
        if let Some(ids) = ids {
            self.raw.place.zones = ids.into_iter().collect();
        } else {
            let zones: Vec<&str> = zones.iter().copied().collect();
            self.notes.push(format!(
                "All zones of the region are allowed, as the price tables do not know each of these: {}.",
                listed(&zones, 10)
            ));
        }
    }

    /// Gives its nodes these taints.
    pub(super) fn set_taints(&mut self, taints: &[Taint]) {
        let raw = |taint: &Taint| RawTaint { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect };
        self.raw.template.taints = Some(taints.iter().map(raw).collect());
        if taints.is_empty() {
            self.notes.push("It has no taint, so pods without a GPU may use its nodes.".to_owned());
        }
    }

    /// Buys these types of a cloud, written as shortly as can be: all with their models, whole families, or each.
    pub(super) fn set_types(&mut self, book: &PriceBook, types: &[&InstanceSpec]) {
        let models: BTreeSet<&str> = types.iter().map(|spec| spec.gpu_model.as_str()).collect();
        let chosen: BTreeSet<(&Cloud, &InstanceType)> = types.iter().map(|spec| (&spec.cloud, &spec.instance_type)).collect();
        let clouds: BTreeSet<&Cloud> = types.iter().map(|spec| &spec.cloud).collect();
        let mut families: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for spec in book.specs().filter(|spec| clouds.contains(&spec.cloud)) {
            let is_chosen = chosen.contains(&(&spec.cloud, &spec.instance_type));
            if models.contains(spec.gpu_model.as_str()) || is_chosen {
                families.entry(family(&spec.instance_type)).or_default().push(is_chosen);
            }
        }
        self.raw.gpu.models = models.into_iter().map(str::to_owned).collect();
        if families.values().flatten().all(|is_chosen| *is_chosen) {
            return;
        }
        let is_whole = |family: &str| families.get(family).is_some_and(|all| all.len() > 1 && all.iter().all(|one| *one));
        let written = types.iter().map(|spec| match family(&spec.instance_type) {
            family if is_whole(family) && spec.instance_type.as_str().contains('.') => format!("{family}.*"),
            _ => spec.instance_type.to_string(),
        });
        self.raw.instance_types = written.collect::<BTreeSet<_>>().into_iter().collect();
    }

    /// Buys so, in the order in which capacity is cheaper.
    pub(super) fn set_prefer(&mut self, types: &BTreeSet<CapacityType>) {
        self.raw.capacity.prefer = Some(types.iter().copied().collect());
        if types.contains(&CapacityType::Reserved) {
            self.notes.push("Write what is reserved under commitments: without it nothing is bought as reserved.".to_owned());
        }
    }
}

/// What stands before the dot of an instance type.
fn family(instance_type: &InstanceType) -> &str {
    let name = instance_type.as_str();
    name.split_once('.').map_or(name, |(family, _)| family)
}

/// A text as the name of a pool: lower-case letters, digits and `-`.
pub(super) fn name(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let clean: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(MAX_POOL_NAME).collect();
    match clean.trim_matches('-') {
        "" => "gpu".to_owned(),
        clean => clean.to_owned(),
    }
}

/// Gives each pool a name of its own: where several are called the same, all but the largest get more to their name, as far as needed.
pub(super) fn name_apart(drafts: &mut [Draft]) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    drafts.sort_by_key(|draft| std::cmp::Reverse(draft.today));
    for draft in drafts {
        let own = draft.raw.name.clone();
        let with = |more: &str| {
            let room = MAX_POOL_NAME.saturating_sub(more.len() + 1);
            name(&format!("{}-{more}", own.chars().take(room).collect::<String>().trim_end_matches('-')))
        };
        let is_spot = draft.raw.capacity.prefer.as_deref() == Some(&[CapacityType::Spot]);
        let model = draft.raw.gpu.models.first().filter(|model| name(model) != own);
        let spot = is_spot.then(|| with("spot"));
        let numbered = (2_u32..).map(|number| with(&number.to_string()));
        let mut names = std::iter::once(own.clone()).chain(spot).chain(model.map(|model| with(model))).chain(numbered);
        if let Some(free) = names.find(|name| !taken.contains(name)) {
            taken.insert(free.clone());
            draft.raw.name = free;
        }
    }
}

fn blank(name: String) -> RawPool {
    RawPool {
        name,
        workload: Workload::Inference,
        tier: None,
        gpu: RawGpu {
            models: Vec::new(),
            count: None,
            min_memory_gib: None,
            min_memory_per_node_gib: None,
            min_compute_capability: None,
            needs: Vec::new(),
            throughput: None,
            throughput_from: None,
            max_share: BTreeMap::new(),
        },
        place: RawWhere {
            clouds: Vec::new(),
            regions: Vec::new(),
            zones: Vec::new(),
            data_region: None,
            dataset_gib: None,
            dataset_read_every: None,
            max_distance: None,
            max_zone_share: None,
        },
        instance_types: Vec::new(),
        supplier: None,
        node_class: None,
        capacity: RawCapacity::default(),
        limits: RawLimits::default(),
        evidence: None,
        split_capacity_type: None,
        template: RawTemplate::default(),
        warm_floor: None,
        stabilization: None,
        off_hours: None,
        held_after: None,
        unhealthy: None,
        outdated: None,
        isolation: None,
        waiting_usd_per_gpu_hour: None,
        sharing: None,
        signals: Vec::new(),
    }
}
