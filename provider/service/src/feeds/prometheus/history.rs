//! The past of a cluster by what a Prometheus kept of it: kube-state-metrics tells which nodes and GPU pods there were, a DCGM exporter how
//! busy GPUs were.
//!
//! Questions are cut into windows, as Prometheus answers with at most 11,000 points a series; one whose answer is too much is halved. What
//! series there are decides how often the cluster is looked at. What was not scraped stays unknown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use stoker_advice::before::{Grid, Kind, Observed, PodKey};
use stoker_core::base::ids::{Cloud, InstanceType, NodeName, Region, ZoneId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::labels::{LABELS, is_of_capacity_type};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::price::{Entry, PriceBook};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::Prometheus as Rules;

use super::ask::{AskFailed, Asker, Series};
use super::dcgm::{Level, braces, either, matchers};
use super::labels::{Nodes, UUIDS};
use crate::kube::gpu_labels::GPU_LABELS;
use crate::kube::node_labels::{INSTANCE_TYPE, REGION, ZONE, ZONE_ID, bought_as, cloud_of, spec_of};

/// Points that are asked of a series at once; Prometheus answers with at most 11,000.
const MOST_POINTS: u64 = 10_000;
/// Samples that one answer should have: some 20 MB of JSON.
const SAMPLES: u64 = 1_000_000;
/// Samples of one question over all windows, beyond which the cluster is looked at less often.
const MOST_SAMPLES: u64 = 5_000_000;
/// How often the cluster is looked at, in seconds: every minute, as kube-state-metrics is scraped, or else less often.
const STEPS: [i64; 4] = [60, 300, 900, 3_600];
/// Points of a first look at how many series there are.
const GLANCE: i64 = 500;
/// Windows that are not halved where they take too long.
const SHORTEST: u32 = 60;
/// Questions that are asked at every step.
const QUESTIONS: u64 = 7;

/// What a node's GPUs are called in kube-state-metrics.
const GPU: &str = "resource=\"nvidia_com_gpu\"";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// From when on.
    pub since: Timestamp,
    /// Until when, not included.
    pub until: Timestamp,
    /// Labels that series must have: a Prometheus may keep several clusters.
    pub match_labels: BTreeMap<String, String>,
}

/// Something that the Prometheus does not have, and the figures lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// The series.
    pub series: &'static str,
    /// What is not known without it.
    pub unknown: &'static str,
    /// How to get it.
    pub cure: &'static str,
}

const NO_TYPES: Missing = Missing {
    series: "kube_node_labels with label_node_kubernetes_io_instance_type",
    unknown: "what nodes are and cost",
    cure: "start kube-state-metrics with --metric-labels-allowlist=nodes=[node.kubernetes.io/instance-type,\
           topology.kubernetes.io/region,topology.kubernetes.io/zone,karpenter.sh/capacity-type] and your cloud's own label of the \
           capacity type",
};

const NO_CLOUDS: Missing = Missing {
    series: "kube_node_info with provider_id",
    unknown: "which cloud nodes are of, and what they cost",
    cure: "update kube-state-metrics, and let its metric lists keep kube_node_info",
};

/// Nothing of any pod.
pub const NO_PODS: Missing = Missing {
    series: "kube_pod_container_resource_requests{resource=\"nvidia_com_gpu\"} with kube_pod_status_phase",
    unknown: "which pods held GPUs, and so what else they could run on",
    cure: "let the metric lists of kube-state-metrics keep both; none is there where no pod asked for a GPU",
};

const NO_USE: Missing = Missing {
    series: "DCGM_FI_DEV_GPU_UTIL or DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    unknown: "how busy GPUs were, and what was wasted",
    cure: "run NVIDIA's dcgm-exporter on the GPU nodes and scrape it",
};

const FOREIGN_USE: Missing = Missing {
    series: "DCGM_FI_DEV_GPU_UTIL or DCGM_FI_PROF_GR_ENGINE_ACTIVE with the name of the node in Hostname, node or instance",
    unknown: "how busy GPUs were, and what was wasted",
    cure: "set NODE_NAME for dcgm-exporter, or add the label node when scraping it",
};

/// Why nothing can be told of the past.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    /// A question was not answered.
    #[error("{what} cannot be read: {why}")]
    Ask {
        /// What was asked for.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// There is nothing of kube-state-metrics.
    #[error(
        "no series of kube-state-metrics (kube_node_info, kube_node_status_capacity) in that time: install kube-state-metrics and \
         have this Prometheus scrape it, ask for later days, or look at --match"
    )]
    NoCluster,
    /// There is no GPU node.
    #[error(
        "no GPU node in that time: kube_node_status_capacity{{resource=\"nvidia_com_gpu\"}} has no series; it is there once NVIDIA's device \
         plugin runs on a node, unless the metric lists of kube-state-metrics leave it out"
    )]
    NoNodes,
    /// Labels of kube-state-metrics are overwritten.
    #[error(
        "kube-state-metrics is scraped without honor_labels, so that its own pod's name stands in place of every pod's: set honor_labels: \
         true in its scrape job (honorLabels in a ServiceMonitor); what was scraped before stays so"
    )]
    NotHonoured,
}

/// What is known of a machine beside its times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Told {
    labels: BTreeMap<String, String>,
    provider_id: Option<String>,
}

/// The past of a cluster.
#[derive(Debug, Clone)]
pub struct Past {
    /// Its nodes, pods and use.
    pub observed: Observed,
    /// What is not known of it.
    pub missing: Vec<Missing>,
    /// The most nodes at once that offered shares of GPUs under names of their own: they are not in it.
    pub shared_nodes: u32,
    machines: BTreeMap<String, Told>,
}

impl Past {
    /// Reads it; `progress` hears how much of how much is done.
    ///
    /// # Errors
    /// See [`PastError`].
    pub async fn read(asker: &Asker, ask: &Ask, progress: impl Fn(u64, u64)) -> Result<Self, PastError> {
        let queries = Queries::new(ask);
        let (since, until) = (ask.since.as_second(), ask.until.as_second());
        let mut reader = Reader { asker, grid: glance(since, until), done: 0, all: 0, progress };
        if reader.most("GPU pods", &queries.overwritten).await? > 0 {
            return Err(PastError::NotHonoured);
        }
        let nodes = reader.most("GPU nodes", &format!("count({})", queries.nodes)).await?;
        let pods = reader.most("GPU pods", &format!("count({})", queries.pods)).await?;
        let shared_nodes = reader.most("nodes with shares of GPUs", &queries.shared).await?;
        reader.grid = grid(since, until, nodes.max(pods).into());
        reader.all = QUESTIONS * u64::from(reader.grid.steps());
        let mut observed = Observed::new(reader.grid);
        let each = |series: &[(Labels, Vec<(u32, f64)>)], take: &mut dyn FnMut(&Labels, u32, f64)| {
            for (labels, points) in series {
                for (step, value) in points {
                    take(labels, *step, *value);
                }
            }
        };
        reader
            .windows("kube-state-metrics", &queries.known, 1, |series| {
                each(&series, &mut |_, step, _| observed.take_known(step));
            })
            .await?;
        if observed.known().count() == 0 {
            return Err(PastError::NoCluster);
        }
        reader
            .windows("GPU nodes", &queries.nodes, nodes, |series| {
                each(&series, &mut |labels, step, gpus| {
                    if let Some(node) = labels.get("node") {
                        observed.take_node(node, step, whole(gpus));
                    }
                });
            })
            .await?;
        if observed.nodes().next().is_none() {
            return Err(PastError::NoNodes);
        }
        let mut machines: BTreeMap<String, Told> = BTreeMap::new();
        for query in [&queries.clouds, &queries.labels] {
            let take = |series: Vec<(Labels, Vec<(u32, f64)>)>| {
                for (labels, _) in series {
                    let Some(node) = labels.get("node") else { continue };
                    machines.entry(node.clone()).or_default().take(&labels);
                }
            };
            reader.windows("labels of nodes", query, nodes, take).await?;
        }
        reader
            .windows("GPU pods", &queries.pods, pods, |series| {
                for (labels, points) in series {
                    let Some(key) = pod_key(&labels) else { continue };
                    let node = labels.get("node").map(String::as_str).filter(|node| !node.is_empty());
                    for (step, gpus) in points {
                        observed.take_pod(&key, step, whole(gpus), node);
                    }
                }
            })
            .await?;
        reader
            .windows("CPUs and memory of GPU pods", &queries.sizes, pods * 2, |series| {
                for (labels, points) in series {
                    let (Some(key), Some((_, most))) = (pod_key(&labels), points.last()) else { continue };
                    match labels.get("resource").map(String::as_str) {
                        Some("cpu") => observed.take_size(&key, whole((most * 1_000.0).ceil()), 0),
                        Some("memory") => observed.take_size(&key, 0, whole((most / 1_048_576.0).ceil())),
                        _ => {}
                    }
                }
            })
            .await?;
        let known = observed.nodes().filter_map(|(name, _)| NodeName::new(name).ok()).collect();
        let (finder, mut of_us, mut of_all) = (Nodes::new(known), false, false);
        let node_labels = Rules::default().node_labels;
        reader
            .windows("how busy GPUs were", &queries.busy, nodes * 2, |series| {
                of_all |= !series.is_empty();
                for ((node, step), (gpus, permille)) in busy(&series, &finder, &node_labels) {
                    of_us = true;
                    observed.take_use(node.as_str(), step, gpus, permille);
                }
            })
            .await?;
        let has = |of: fn(&Told) -> bool| machines.values().any(of);
        let missing = [
            (!has(|told| told.labels.contains_key(INSTANCE_TYPE)), NO_TYPES),
            (!has(|told| told.provider_id.is_some()), NO_CLOUDS),
            (observed.pods() == stoker_advice::before::PodTimes::default(), NO_PODS),
            (!of_all, NO_USE),
            (of_all && !of_us, FOREIGN_USE),
        ];
        let missing = missing.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, what)| what).collect();
        Ok(Self { observed, missing, shared_nodes, machines })
    }

    /// What each node is, and what it costs: at list, and where it was bought as spot at what `spot` tells of its market.
    pub fn kinds(&self, book: &PriceBook, spot: impl Fn(&Market) -> Option<UsdPerHour>) -> BTreeMap<String, Kind> {
        let kind = |(name, gpus): (&str, u32)| {
            let told = self.machines.get(name).cloned().unwrap_or_default();
            (name.to_owned(), told.kind(gpus, book, &spot))
        };
        self.observed.nodes().map(kind).collect()
    }

    /// The book with what ran there: a type whose zones no source tells is sold in a zone where a node of it was.
    pub fn sold(&self, book: &PriceBook) -> PriceBook {
        let mut sold = book.clone();
        for (name, gpus) in self.observed.nodes() {
            let Some(place) = self.machines.get(name).and_then(|told| told.place(gpus, book)) else { continue };
            let quote = book.unzoned_quote(&place).cloned();
            let is_zoned = zoned(book, &place, CapacityType::OnDemand).next().is_some();
            if let Some(quote) = quote.filter(|_| !is_zoned) {
                sold.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
            }
        }
        sold
    }

    /// Its nodes, for a first policy to be drafted from.
    pub fn nodes(&self) -> Vec<Node> {
        let node = |(name, gpus): (&str, u32)| {
            let told = self.machines.get(name)?;
            let node = json!({
                "metadata": { "name": name, "labels": told.labels },
                "spec": { "providerID": told.provider_id },
                "status": { "capacity": { GPU_RESOURCE: gpus.to_string() } },
            });
            serde_json::from_value::<Node>(node).ok()
        };
        self.observed.nodes().filter_map(node).collect()
    }
}

type Labels = BTreeMap<String, String>;

impl Told {
    /// Takes what a series says of the machine.
    fn take(&mut self, series: &Labels) {
        if let Some(id) = series.get("provider_id").filter(|id| !id.is_empty()) {
            self.provider_id = Some(id.clone());
        }
        for key in told_labels() {
            let value = exported(key).into_iter().find_map(|name| series.get(&name)).filter(|value| !value.is_empty());
            if let Some(value) = value {
                self.labels.insert(key.to_owned(), value.clone());
            }
        }
    }

    fn cloud(&self) -> Option<Cloud> {
        self.provider_id.as_deref().and_then(cloud_of).and_then(|cloud| Cloud::new(cloud).ok())
    }

    /// Where it is, by its zone's id where it has that, else by the zone's name; its type as the tables call it.
    fn place(&self, gpus: u32, book: &PriceBook) -> Option<Place> {
        let cloud = self.cloud()?;
        let instance_type = match spec_of(book, &cloud, &self.labels, gpus.into()) {
            Some(spec) => spec.instance_type.clone(),
            None => InstanceType::new(self.labels.get(INSTANCE_TYPE)?).ok()?,
        };
        let zone = self.labels.get(ZONE_ID).or_else(|| self.labels.get(ZONE))?;
        Some(Place { cloud, region: Region::new(self.labels.get(REGION)?).ok()?, zone: ZoneId::new(zone).ok()?, instance_type })
    }

    fn kind(&self, gpus: u32, book: &PriceBook, spot: impl Fn(&Market) -> Option<UsdPerHour>) -> Kind {
        let spec = self.cloud().and_then(|cloud| spec_of(book, &cloud, &self.labels, gpus.into()));
        let name = || self.labels.get(INSTANCE_TYPE).cloned();
        let instance_type = spec.map(|spec| spec.instance_type.to_string()).or_else(name);
        // Where types are told, a node that does not say otherwise is on demand.
        let bought = bought_as(&self.labels).or_else(|| name().map(|_| CapacityType::OnDemand));
        let rate = self.place(gpus, book).and_then(|place| match bought {
            Some(CapacityType::Spot) => {
                let own = Market { place: place.clone(), capacity_type: CapacityType::Spot };
                spot(&own).or_else(|| zoned(book, &place, CapacityType::Spot).filter_map(|(market, _)| spot(market)).min())
            }
            _ => list(book, &place),
        });
        Kind {
            instance_type,
            region: self.labels.get(REGION).cloned(),
            bought,
            model: spec.map(|spec| spec.gpu_model.to_string()),
            rate,
        }
    }
}

/// What the book holds of a type in all zones of its region.
fn zoned<'b>(book: &'b PriceBook, at: &'b Place, bought: CapacityType) -> impl Iterator<Item = (&'b Market, &'b Entry)> {
    book.entries().filter(move |(market, _)| {
        let Place { cloud, region, instance_type, .. } = &market.place;
        market.capacity_type == bought && (cloud, region, instance_type) == (&at.cloud, &at.region, &at.instance_type)
    })
}

/// The published on-demand price of a type in a region.
fn list(book: &PriceBook, place: &Place) -> Option<UsdPerHour> {
    let price = |(_, entry): (&Market, &Entry)| match entry {
        Entry::Price(quote) => Some(quote.price),
        Entry::NoSignal(_) => None,
    };
    let zoned = zoned(book, place, CapacityType::OnDemand).filter_map(price).min();
    zoned.or_else(|| book.unzoned_quote(place).map(|quote| quote.price))
}

/// Labels of nodes that are read: type, place, GPU, and how it was bought.
fn told_labels() -> impl Iterator<Item = &'static str> {
    let bought = LABELS.iter().map(|label| label.key).filter(|key| is_of_capacity_type(key));
    [INSTANCE_TYPE, REGION, ZONE, ZONE_ID].into_iter().chain(GPU_LABELS).chain(bought)
}

/// What kube-state-metrics calls the label of a Node: in snake case since release 2, before that with its capitals.
fn exported(key: &str) -> [String; 2] {
    let mut name = "label_".to_owned();
    let mut snake = name.clone();
    let mut before = '_';
    for c in key.chars() {
        let clean = if c.is_ascii_alphanumeric() { c } else { '_' };
        if clean.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            snake.push('_');
        }
        snake.push(clean.to_ascii_lowercase());
        name.push(clean);
        before = clean;
    }
    [snake, name]
}

fn pod_key(labels: &Labels) -> Option<PodKey> {
    let label = |name: &str| labels.get(name).cloned();
    Some((label("namespace")?, label("pod")?, label("uid").unwrap_or_default()))
}

/// The number that a sample means; nothing below zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn whole(value: f64) -> u32 {
    value.round().clamp(0.0, f64::from(u32::MAX)) as u32
}

/// How busy each node was at each step: the GPUs that were read, and their use together in thousandths of one.
fn busy(series: &[(Labels, Vec<(u32, f64)>)], nodes: &Nodes, labels: &[String]) -> BTreeMap<(NodeName, u32), (u32, u64)> {
    let mut busy: BTreeMap<(NodeName, u32), (u32, u64)> = BTreeMap::new();
    for (metric, points) in series {
        let Ok(node) = nodes.of_labels(metric, labels) else { continue };
        let is_count = metric.get(STAT).is_some_and(|stat| stat == "gpus");
        for (step, value) in points {
            let (gpus, permille) = busy.entry((node.clone(), *step)).or_default();
            if is_count {
                *gpus = gpus.saturating_add(whole(*value));
            } else {
                *permille = permille.saturating_add(whole(*value).into());
            }
        }
    }
    busy
}

/// The label that tells the two figures of one question apart.
const STAT: &str = "stoker_figure";

/// The questions.
struct Queries {
    overwritten: String,
    known: String,
    nodes: String,
    shared: String,
    clouds: String,
    labels: String,
    pods: String,
    sizes: String,
    busy: String,
}

impl Queries {
    fn new(ask: &Ask) -> Self {
        let rules = Rules { match_labels: ask.match_labels.clone(), ..Rules::default() };
        let of = |name: &str, more: &[&str]| {
            let mut all: Vec<String> = more.iter().map(|matcher| (*matcher).to_owned()).collect();
            all.extend(matchers(&rules));
            format!("{name}{}", braces(&all))
        };
        let (capacity, allocatable) = ("kube_node_status_capacity", "kube_node_status_allocatable");
        let nodes = format!("max by (node) ({} or {}) > 0", of(capacity, &[GPU]), of(allocatable, &[GPU]));
        let requests = "kube_pod_container_resource_requests";
        let gpus = of(requests, &[GPU]);
        // Pods that have ended keep their requests until they are deleted.
        let alive = format!("{} == 1", of("kube_pod_status_phase", &["phase=~\"Pending|Running\""]));
        let told: Vec<String> =
            told_labels().flat_map(exported).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        let node_labels = rules.node_labels.join(", ");
        let by_gpu = format!("{}, {}, {node_labels}", UUIDS[0], UUIDS[1]);
        // Modes that share a GPU copy its level to each pod: the highest counts, never the sum.
        let level = |level: Level, scale: u32, most: &str| {
            format!("max by ({by_gpu}) ({scale} * ({} >= 0 <= {most}))", either(level, &braces(&matchers(&rules))))
        };
        let gpu = format!("({} or {})", level(Level::Utilization, 10, "100"), level(Level::EngineActivity, 1_000, "1.01"));
        let figure = |function: &str, name: &str| {
            format!("label_replace({function} by ({node_labels}) {gpu}, \"{STAT}\", \"{name}\", \"\", \"\")")
        };
        Self {
            overwritten: format!("count({})", of(requests, &[GPU, "exported_pod!=\"\""])),
            known: format!("count({}) or count({})", of("kube_node_info", &[]), of(capacity, &[])),
            shared: format!(
                "count(max by (node) ({}) > 0)",
                of(capacity, &["resource=~\"nvidia_com_mig_.*|nvidia_com_gpu_shared\""])
            ),
            clouds: format!("max by (node, provider_id) ({} and on (node) ({nodes}))", of("kube_node_info", &[])),
            labels: format!("max by (node, {}) ({} and on (node) ({nodes}))", told.join(", "), of("kube_node_labels", &[])),
            pods: format!(
                "sum by (namespace, pod, uid, node) (max by (namespace, pod, uid, node, container) ({gpus} and on (namespace, pod, uid) \
                 ({alive})))"
            ),
            sizes: format!(
                "sum by (namespace, pod, uid, resource) (max by (namespace, pod, uid, container, resource) ({} and on (namespace, pod, \
                 uid) {gpus}))",
                of(requests, &["resource=~\"cpu|memory\""])
            ),
            busy: format!("{} or {}", figure("sum", "busy"), figure("count", "gpus")),
            nodes,
        }
    }
}

/// A first look over all of the time.
fn glance(since: i64, until: i64) -> Grid {
    Grid::new(since, until, ((until - since) / GLANCE).max(60))
}

/// The times at which the cluster is looked at where so many series are there at once.
fn grid(since: i64, until: i64, series: u64) -> Grid {
    let mut grids = STEPS.map(|step| Grid::new(since, until, step)).into_iter();
    let last = Grid::new(since, until, STEPS[STEPS.len() - 1]);
    grids.find(|grid| u64::from(grid.steps()) * series.max(1) <= MOST_SAMPLES).unwrap_or(last)
}

/// Asks window by window.
struct Reader<'a, P> {
    asker: &'a Asker,
    grid: Grid,
    done: u64,
    all: u64,
    progress: P,
}

impl<P: Fn(u64, u64)> Reader<'_, P> {
    /// The highest value of a query without labels.
    async fn most(&mut self, what: &'static str, query: &str) -> Result<u32, PastError> {
        let mut most = 0;
        let take = |series: Vec<(Labels, Vec<(u32, f64)>)>| {
            let values = series.iter().flat_map(|(_, points)| points).map(|(_, value)| whole(*value));
            most = values.fold(most, u32::max);
        };
        self.windows(what, query, 1, take).await?;
        Ok(most)
    }

    /// Gives the series of each window to `take`, in the order of time.
    async fn windows(
        &mut self,
        what: &'static str,
        query: &str,
        series: u32,
        mut take: impl FnMut(Vec<(Labels, Vec<(u32, f64)>)>),
    ) -> Result<(), PastError> {
        let points = u32::try_from((SAMPLES / u64::from(series.max(1))).clamp(1, MOST_POINTS)).unwrap_or(1);
        let steps = self.grid.steps();
        let starts = (0..steps).step_by(usize::try_from(points).unwrap_or(1));
        let mut windows: Vec<(u32, u32)> = starts.map(|first| (first, first.saturating_add(points).min(steps) - 1)).collect();
        windows.reverse();
        while let Some((first, last)) = windows.pop() {
            let times = (self.grid.begins(first), self.grid.begins(last));
            match self.asker.ask_range(query, times, self.grid.step()).await {
                Ok(series) => take(series.into_iter().map(|of| self.points(of)).collect()),
                Err(why) if last > first && is_too_much(&why, last - first) => {
                    let middle = first + (last - first) / 2;
                    windows.extend([(middle + 1, last), (first, middle)]);
                    continue;
                }
                Err(why) => return Err(PastError::Ask { what, why: why.to_string() }),
            }
            if self.all > 0 {
                self.done += u64::from(last - first) + 1;
                (self.progress)(self.done, self.all);
            }
        }
        Ok(())
    }

    /// The samples of a series by step; what is no number is none.
    fn points(&self, series: Series) -> (Labels, Vec<(u32, f64)>) {
        let point = |(at, value): &(f64, String)| {
            #[expect(clippy::cast_possible_truncation, reason = "a moment in seconds; one that does not fit is in no step")]
            let step = self.grid.step_of(at.round() as i64)?;
            Some((step, value.parse().ok().filter(|value: &f64| value.is_finite())?))
        };
        let points = series.values.iter().filter_map(point).collect();
        (series.metric, points)
    }
}

/// What a rate by the second came to over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many there were, in millionths.
    pub millionths: u128,
    /// Seconds of which the rate is known.
    pub seconds: i64,
}

impl Counted {
    /// Asks for it from `since` until `until`. A value that no rate can be is unknown.
    ///
    /// # Errors
    /// See [`PastError::Ask`]; a query that gives several series tells no rate.
    pub async fn read(asker: &Asker, query: &str, (since, until): (Timestamp, Timestamp)) -> Result<Self, PastError> {
        let grid = grid(since.as_second(), until.as_second(), 1);
        let mut reader = Reader { asker, grid, done: 0, all: 0, progress: |_, _| {} };
        let (mut counted, mut series) = (Self::default(), 0);
        let take = |of: Vec<(Labels, Vec<(u32, f64)>)>| {
            series = series.max(of.len());
            for (_, rate) in of.iter().flat_map(|(_, points)| points).filter(|(_, rate)| (0.0..=1e12).contains(rate)) {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1e18")]
                let millionths = (rate * 1e6).round() as u64;
                counted.millionths += u128::from(millionths) * u128::try_from(grid.step()).unwrap_or_default();
                counted.seconds += grid.step();
            }
        };
        reader.windows(SIGNAL, query, 1, take).await?;
        if series > 1 {
            let why = "it gives several series at once: join them, as with sum()".to_owned();
            return Err(PastError::Ask { what: SIGNAL, why });
        }
        Ok(counted)
    }
}

/// What is asked for a unit cost.
const SIGNAL: &str = "the signal";

/// Whether half of the time may be answered.
fn is_too_much(why: &AskFailed, steps: u32) -> bool {
    match why {
        AskFailed::TooLarge => true,
        AskFailed::TimedOut => steps > SHORTEST,
        AskFailed::Refused(text) => ["too many samples", "maximum resolution", "limit"].iter().any(|word| text.contains(word)),
        AskFailed::Token { .. } | AskFailed::Unreachable(_) | AskFailed::Malformed(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_as_kube_state_metrics_calls_them() {
        for (key, snake) in [
            ("node.kubernetes.io/instance-type", "label_node_kubernetes_io_instance_type"),
            ("eks.amazonaws.com/capacityType", "label_eks_amazonaws_com_capacity_type"),
            ("topology.k8s.aws/zone-id", "label_topology_k8s_aws_zone_id"),
        ] {
            assert_eq!(exported(key)[0], snake);
        }
        assert_eq!(exported("eks.amazonaws.com/capacityType")[1], "label_eks_amazonaws_com_capacityType");
    }

    #[test]
    fn a_large_cluster_is_looked_at_less_often() {
        let fortnight = 14 * 86_400;
        // 20,160 minutes of 100 series are two million samples.
        for (series, step) in [(0, 60), (100, 60), (248, 60), (249, 300), (1_240, 300), (3_000, 900), (40_000, 3_600)] {
            assert_eq!(grid(0, fortnight, series).step(), step, "{series}");
        }
    }

    #[test]
    fn every_question_is_promql_and_keeps_to_the_cluster() {
        let match_labels = BTreeMap::from([("cluster".to_owned(), "a\"b".to_owned())]);
        let ask = Ask { since: Timestamp::UNIX_EPOCH, until: Timestamp::UNIX_EPOCH, match_labels };
        let Queries { overwritten, known, nodes, shared, clouds, labels, pods, sizes, busy } = Queries::new(&ask);
        for query in [overwritten, known, nodes, shared, clouds, labels, pods, sizes, busy] {
            promql_parser::parser::parse(&query).unwrap_or_else(|why| panic!("{query}: {why}"));
            assert_eq!(query.matches("cluster=\"a\\\"b\"").count(), query.matches('{').count(), "{query}");
        }
    }
}
