//! The expander: of the ways to help the waiting pods, the one that costs least for what it brings, among those that are in time for their
//! deadlines. The rule is
//! [`stoker_core::choose::score`]; here the messages are read.
//!
//! It fails open. Where nothing can be ranked, all options go back as they came, and the autoscaler's next expander decides. An empty
//! answer vetoes the scale-up on releases that know it (since 1.32): it is given to a request without options, and where nodes that are on
//! their way, and that the autoscaler does not reckon with, will serve every pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use arc_swap::Guard;
use jiff::{SignedDuration, Timestamp};
use prost::encoding::decode_varint;
use stoker_core::base::ids::NodeGroupId;
use stoker_core::base::sabotage;
use stoker_core::base::units::Work;
use stoker_core::choose::score::{Asked, Needs, Score, Soon, Way};
use stoker_proto::Bytes;
use stoker_proto::expander::expander_server::Expander as ExpanderService;
use stoker_proto::expander::{BestOptionsRequest, BestOptionsResponse, ExpanderOption};
use tonic::{Request, Response, Status};

use super::counting::LARGE;
use super::intake::{HeldRoom, address_of};
use crate::engine::EngineHandle;
use crate::kube::pods::{Deadline, DeadlineError, PodFacts, Requests, pod_deadline, pod_facts, pod_requests};
use crate::listener::SharedByAddress;
use crate::publish::view::View;

/// The expander over an engine's published prices.
#[derive(Debug)]
pub struct Expander {
    engine: EngineHandle,
    /// One request is ranked at a time, and addresses take turns.
    turns: SharedByAddress,
}

impl Expander {
    /// An expander over this engine.
    pub fn new(engine: EngineHandle) -> Self {
        Self { engine, turns: SharedByAddress::new(1, 1) }
    }
}

#[tonic::async_trait]
impl ExpanderService for Expander {
    async fn best_options(&self, request: Request<BestOptionsRequest>) -> Result<Response<BestOptionsResponse>, Status> {
        // Only now: a turn is not for waiting until the rest of a request comes.
        let turn = self.turns.acquire(address_of(request.extensions()), 1).await;
        let room = request.extensions().get::<HeldRoom>().cloned();
        let request = request.into_inner();
        let view = Guard::into_inner(self.engine.view());
        let bytes: usize = request.options.iter().flat_map(ExpanderOption::pods).map(Bytes::len).sum();
        let kept = if bytes <= LARGE {
            keep(&request, &view)
        } else {
            // The ranking goes on when its call has timed out, and so it keeps its turn and its
            // room.
            let ranked = tokio::task::spawn_blocking(move || {
                let kept = keep(&request, &view);
                drop((request, room, turn));
                kept
            });
            let ranked = ranked.await;
            // An error leaves the autoscaler's options as they were.
            ranked.map_err(|_| Status::internal("BestOptions: ranking failed unexpectedly; report this as a bug"))?
        };
        Ok(Response::new(BestOptionsResponse::keeping(kept)))
    }
}

/// The groups to keep: the best one; none where nodes on their way will serve every pod; all, in the order of the request, where none can
/// be ranked.
fn keep(request: &BestOptionsRequest, view: &View) -> Vec<String> {
    let options = &request.options;
    let mut read = PodsRead::of(options, view);
    let best = best(options, view, &mut read);
    if let Some(error) = &read.unread {
        tracing::warn!(error = error as &dyn std::error::Error, "a pod's deadline cannot be read and does not count");
    }
    if let Some(best) = best {
        let all_served = best.asked == Asked::default() && !read.served.is_empty();
        // Options that cannot be ranked may have pods that nobody will serve.
        if all_served && options.iter().all(|option| read.asked(option.pods()) == Asked::default()) {
            tracing::info!(
                options = options.len(),
                "no option is chosen: nodes that are already booting will serve all of these pods"
            );
            return Vec::new();
        }
        tracing::info!(
            group = %best.group,
            options = options.len(),
            price = best.micros,
            gpus = best.asked.gpus,
            pods = best.asked.pods,
            late = best.late.is_some(),
            "best option"
        );
        return vec![best.group.to_string()];
    }
    if !options.is_empty() {
        tracing::info!(options = options.len(), "no option can be ranked: none belongs to an open group with a price");
    }
    if sabotage::on("expander-empty") {
        return Vec::new();
    }
    options.iter().map(|option| option.node_group_id.clone()).collect()
}

/// The group of the option that costs least for what it brings; `None` where no option is of an open group with a price.
pub fn best_option<'v>(options: &[ExpanderOption], view: &'v View) -> Option<&'v NodeGroupId> {
    best(options, view, &mut PodsRead::of(options, view)).map(|best| best.group)
}

/// The option that costs least for what it brings; `None` where no option is of an open group with a price.
fn best<'p, 'v>(options: &'p [ExpanderOption], view: &'v View, read: &mut PodsRead<'p>) -> Option<Score<'v>> {
    options.iter().filter_map(|option| Score::of(&way(option, view, read)?)).min()
}

/// An option as the choice weighs it; `None` for one that makes no sense, or of a group that nobody knows.
fn way<'p, 'v>(option: &'p ExpanderOption, view: &'v View, read: &mut PodsRead<'p>) -> Option<Way<'v>> {
    let shown = NodeGroupId::find(&view.groups, option.node_group_id.as_str())?;
    let nodes = u32::try_from(option.node_count).ok().filter(|nodes| *nodes > 0)?;
    Some(Way { group: &shown.group, supply: &shown.limits.supply, nodes, asked: read.asked(option.pods()) })
}

/// What tells a pod from others: its length, and its beginning up to the end of its name and namespace. To compare or hash more of each
/// pod of each option would be most of the work.
type Mark<'p> = (usize, &'p [u8]);

pub(super) fn mark(pod: &[u8]) -> Mark<'_> {
    /// So many bytes surely hold both where they cannot be found.
    const TELLING: usize = 768;
    (pod.len(), pod.get(..end_of_names(pod).unwrap_or(TELLING)).unwrap_or(pod))
}

/// Where the names of a pod end: it begins with its metadata, whose fields 1 to 3 are the name, what it was made from, and the namespace.
/// `None` where the bytes are otherwise.
fn end_of_names(pod: &[u8]) -> Option<usize> {
    let mut rest = pod.strip_prefix(&[FIRST])?;
    decode_varint(&mut rest).ok()?;
    for field in [FIRST, FIRST + 8, FIRST + 16] {
        if let Some(value) = rest.strip_prefix(&[field]) {
            rest = value;
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            rest = rest.get(length..)?;
        }
    }
    Some(pod.len() - rest.len())
}

/// The tag of a message's field 1 where that is a text or a message; that of the next field is 8 more.
const FIRST: u8 = 0x0a;

/// Each distinct pod, read once: the same pods come with every option, and mostly in the same order.
struct PodsRead<'p> {
    places: HashMap<Mark<'p>, usize>,
    /// Pods in the order of their first appearance, with what they count for.
    pods: Vec<(Mark<'p>, Asked)>,
    /// Where the next pod of this option is, if it comes in that order. Comparing is ten times faster than hashing.
    next: usize,
    /// Pods that nodes on their way will serve. They count for nothing.
    served: HashSet<Mark<'p>>,
    until: Until,
    /// The first annotation of a deadline that could not be read.
    unread: Option<DeadlineError>,
}

impl<'p> PodsRead<'p> {
    fn of(options: &'p [ExpanderOption], view: &View) -> Self {
        let mut soon = Soon::of(&view.memory, view.at);
        let until = Until { wall: view.wall.0, boot: view.catalogue.policy.boot_deadline };
        let read = |served| Self { places: HashMap::new(), pods: Vec::new(), next: 0, served, until, unread: None };
        if soon.is_empty() {
            return read(HashSet::new());
        }
        let marks = options.iter().flat_map(ExpanderOption::pods).map(|pod| (mark(pod), pod));
        let distinct: BTreeMap<Mark<'p>, &Bytes> = marks.collect();
        let mut waiting: Vec<(Needs, Mark<'p>, PodFacts)> = distinct
            .into_iter()
            .filter_map(|(mark, pod)| pod_facts(pod).ok().map(|facts| (needs(facts.requests.clone()), mark, facts)))
            .filter(|(_, _, facts)| !facts.choosy)
            .collect();
        // The largest first, which packs best.
        waiting.sort_by_key(|(needs, mark, _)| (Reverse(u64::from(needs.gpus) + needs.slices.total()), *mark));
        let takes = |(needs, _, facts): &(Needs, Mark<'p>, PodFacts)| soon.takes(needs, |node| facts.admits(node));
        read(waiting.into_iter().filter(takes).map(|(_, mark, _)| mark).collect())
    }

    /// What the pods of an option ask for.
    fn asked(&mut self, pods: &'p [Bytes]) -> Asked {
        pods.iter().fold(Asked::default(), |sum, pod| sum.plus(self.one(pod)))
    }

    /// What a pod asks for.
    fn read(&mut self, pod: &[u8]) -> Asked {
        let gpus = gpus(pod);
        let speed = match pod_deadline(pod) {
            Ok(deadline) => deadline.map_or(Work(0), |deadline| self.until.speed(&deadline, gpus)),
            Err(error) => {
                self.unread.get_or_insert(error);
                Work(0)
            }
        };
        Asked { gpus, pods: 1, speed }
    }

    fn one(&mut self, pod: &'p [u8]) -> Asked {
        let mark = mark(pod);
        let place = match self.pods.get(self.next) {
            Some((expected, _)) if *expected == mark => self.next,
            _ => {
                if let Some(place) = self.places.get(&mark) {
                    *place
                } else {
                    let asked = if self.served.contains(&mark) { Asked::default() } else { self.read(pod) };
                    self.pods.push((mark, asked));
                    self.places.insert(mark, self.pods.len() - 1);
                    self.pods.len() - 1
                }
            }
        };
        self.next = place + 1;
        self.pods.get(place).map(|(_, asked)| *asked).unwrap_or_default()
    }
}

/// How much time there is until deadlines: from the wall's time on, without what a node may take to boot.
#[derive(Clone, Copy)]
struct Until {
    wall: Timestamp,
    boot: SignedDuration,
}

impl Until {
    /// How fast each GPU of a pod must be for its work to be done in time: faster than any where a node boots for as long as there is.
    /// A deadline that is over does not count: of a template it would have every later pod get the fastest GPU.
    fn speed(self, deadline: &Deadline, gpus: u32) -> Work {
        if deadline.at <= self.wall {
            return Work(0);
        }
        let seconds = deadline.at.duration_since(self.wall).saturating_sub(self.boot).as_secs();
        let Some(seconds) = u128::try_from(seconds).ok().filter(|seconds| *seconds > 0) else { return Work(u64::MAX) };
        let work = u128::from(deadline.gpu_hours.0) * 3600;
        Work(u64::try_from(work.div_ceil(seconds * u128::from(gpus.max(1)))).unwrap_or(u64::MAX))
    }
}

fn needs(requests: Requests) -> Needs {
    let Requests { milli_cpu, memory_bytes, gpus, slices } = requests;
    Needs { gpus: u32::try_from(gpus).unwrap_or(u32::MAX), slices, milli_cpu, memory_bytes }
}

/// The GPUs, or slices of them, that a pod asks for; nought for what is no pod.
fn gpus(pod: &[u8]) -> u32 {
    if let Some(requests) = pod_requests(pod) {
        return u32::try_from(requests.all_gpus()).unwrap_or(u32::MAX);
    }
    if let Err(error) = pod_facts(pod) {
        tracing::debug!(error = &error as &dyn std::error::Error, "a pod cannot be read and counts as one without GPUs");
    }
    0
}
