//! The expander: of the ways to help the waiting pods, the one that costs least for what it brings.
//!
//! It fails open. An empty answer would veto the scale-up, so it is given only to a request without options; where nothing can be ranked,
//! all options go back as they came, and the autoscaler's next expander decides.

use std::cmp::Ordering;
use std::collections::HashMap;

use arc_swap::Guard;
use stoker_core::sabotage;
use stoker_core::units::UsdPerHour;
use stoker_proto::Bytes;
use stoker_proto::expander::expander_server::Expander as ExpanderService;
use stoker_proto::expander::{BestOptionsRequest, BestOptionsResponse, ExpanderOption};
use tonic::{Request, Response, Status};

use crate::engine::EngineHandle;
use crate::kube::pods::pod_facts;
use crate::view::View;

/// Above so many bytes of pods a request is ranked on a thread of its own: it takes milliseconds, in which other calls would wait.
const LARGE: usize = 256 << 10;

/// The expander over an engine's published prices.
#[derive(Debug)]
pub struct Expander {
    engine: EngineHandle,
}

impl Expander {
    /// An expander over this engine.
    pub const fn new(engine: EngineHandle) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl ExpanderService for Expander {
    async fn best_options(&self, request: Request<BestOptionsRequest>) -> Result<Response<BestOptionsResponse>, Status> {
        let request = request.into_inner();
        let view = Guard::into_inner(self.engine.view());
        let bytes: usize = request.options.iter().flat_map(ExpanderOption::pods).map(Bytes::len).sum();
        let kept = if bytes <= LARGE {
            keep(&request, &view)
        } else {
            let ranked = tokio::task::spawn_blocking(move || keep(&request, &view)).await;
            // An error leaves the autoscaler's options as they were.
            ranked.map_err(|_| Status::internal("BestOptions: ranking ended abnormally; report this as a bug"))?
        };
        Ok(Response::new(BestOptionsResponse::keeping(kept)))
    }
}

/// The groups to keep: the best one; all, in the order of the request, where none can be ranked.
fn keep(request: &BestOptionsRequest, view: &View) -> Vec<String> {
    let price = |group: &str| {
        let shown = view.groups.get(group)?;
        shown.limits.next_price.map(|price| shown.group.weighed(price))
    };
    let options = &request.options;
    if let Some(best) = best(options, price) {
        tracing::info!(
            group = best.group,
            options = options.len(),
            price = best.micros,
            gpus = best.gpus,
            pods = best.pods,
            "best option"
        );
        return vec![best.group.to_owned()];
    }
    if !options.is_empty() {
        tracing::info!(options = options.len(), "no option can be ranked: none is of an open group with a price");
    }
    if sabotage::on("expander-empty") {
        return Vec::new();
    }
    options.iter().map(|option| option.node_group_id.clone()).collect()
}

/// The group of the option that costs least for what it brings; `None` where no option is of an open group with a price.
pub fn best_option(options: &[ExpanderOption], price: impl Fn(&str) -> Option<UsdPerHour>) -> Option<&str> {
    best(options, price).map(|best| best.group)
}

/// The option that costs least for what it brings; `None` where no option is of an open group with a price.
pub(super) fn best(options: &[ExpanderOption], price: impl Fn(&str) -> Option<UsdPerHour>) -> Option<Score<'_>> {
    let mut read = PodsRead::default();
    options.iter().filter_map(|option| Score::of(option, price(&option.node_group_id)?, &mut read)).min()
}

/// What an option costs and brings. Less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Score<'a> {
    /// What all its nodes cost, in micro-dollars per hour.
    pub(super) micros: u128,
    /// GPUs, or slices of them, that its pods ask for.
    pub(super) gpus: u32,
    /// Its pods.
    pub(super) pods: u32,
    /// Its group.
    pub(super) group: &'a str,
}

impl<'a> Score<'a> {
    /// `None` for an option that makes no sense.
    fn of(option: &'a ExpanderOption, price: UsdPerHour, read: &mut PodsRead<'a>) -> Option<Self> {
        let price = u64::try_from(price.0).ok()?;
        let nodes = u32::try_from(option.node_count).ok().filter(|nodes| *nodes > 0)?;
        let pods = option.pods();
        let gpus = pods.iter().map(|pod| read.gpus(pod)).fold(0, u32::saturating_add);
        let micros = u128::from(price) * u128::from(nodes);
        Some(Self { micros, gpus, pods: u32::try_from(pods.len()).unwrap_or(u32::MAX), group: &option.node_group_id })
    }

    /// What its price is divided by: GPUs where its pods ask for any, else pods.
    const fn useful(&self) -> u32 {
        if self.gpus > 0 { self.gpus } else { self.pods }
    }
}

impl Ord for Score<'_> {
    /// What serves pods that ask for GPUs comes first: dollars per GPU do not compare with dollars per pod. Then the price of what is
    /// useful, and of equal ones the group's id.
    fn cmp(&self, other: &Self) -> Ordering {
        // A price of 63 bits for 31 bits of nodes, times 32 bits: 126 bits at most.
        let price = |a: &Self, b: &Self| a.micros * u128::from(b.useful());
        (self.gpus == 0)
            .cmp(&(other.gpus == 0))
            .then_with(|| (self.useful() == 0).cmp(&(other.useful() == 0)))
            .then_with(|| price(self, other).cmp(&price(other, self)))
            .then_with(|| self.group.cmp(other.group))
    }
}

impl PartialOrd for Score<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// So many bytes tell a pod from every other of the same length: it begins with its name and namespace, which take less. Reading all of
/// a large request again for every option would be most of the work.
const TELLING: usize = 768;

/// What tells a pod from others: its length and its beginning.
type Mark<'a> = (usize, &'a [u8]);

/// Each distinct pod, read once: the same pods come with every option, and mostly in the same order.
#[derive(Default)]
struct PodsRead<'a> {
    places: HashMap<Mark<'a>, usize>,
    /// Pods in the order of their first appearance, with the GPUs that they ask for.
    pods: Vec<(Mark<'a>, u32)>,
    /// Where the next pod of this option is, if it comes in that order. Comparing is ten times faster than hashing.
    next: usize,
}

impl<'a> PodsRead<'a> {
    /// The GPUs that a pod asks for; nought for what is no pod.
    fn gpus(&mut self, pod: &'a [u8]) -> u32 {
        let mark = (pod.len(), pod.get(..TELLING).unwrap_or(pod));
        let place = match self.pods.get(self.next) {
            Some((expected, _)) if *expected == mark => self.next,
            _ => *self.places.entry(mark).or_insert_with(|| {
                self.pods.push((mark, gpus(pod)));
                self.pods.len() - 1
            }),
        };
        self.next = place + 1;
        self.pods.get(place).map_or(0, |(_, gpus)| *gpus)
    }
}

fn gpus(pod: &[u8]) -> u32 {
    match pod_facts(pod) {
        Ok(facts) => u32::try_from(facts.requests.all_gpus()).unwrap_or(u32::MAX),
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "a pod cannot be read and counts as one without GPUs");
            0
        }
    }
}
