//! The doors over an engine's handle whose view the test sets, and over a whole engine.

mod confirm;
mod expander;
mod live;
mod pricing;
mod reads;
mod refusals;
mod serving;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use k8s_pb::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message as _;
use serde_json::json;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, NodeGroupId, NodeName, Region, SupplierName, ZoneId};
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::choose::score::Step;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::plan::Closed;
use stoker_core::policy::{Policy, RawPolicy};
use stoker_proto::Bytes;
use stoker_proto::externalgrpc::ExternalGrpcNode;
use tokio::sync::mpsc;

use crate::engine::EngineHandle;
use crate::kube::template::node_proto;
use crate::publish::view::NotReady;
use crate::publish::view::{GroupView, InstanceView, View};

/// One GPU at $0.80 and $0.90, two at $1.50.
const ONE_A: &str = "pool.gpu-1.zone-a";
const ONE_B: &str = "pool.gpu-1.zone-b";
const TWO_A: &str = "pool.gpu-2.zone-a";
const ALL: [&str; 3] = [ONE_A, ONE_B, TWO_A];

fn now() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

fn group_id(id: &str) -> NodeGroupId {
    NodeGroupId::new(id).unwrap()
}

/// A policy with one pool, and what its three groups cost.
fn policy() -> Policy {
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
        "pools": [{
            "name": "pool", "workload": "training",
            "gpu": { "models": ["L4"] },
            "where": { "clouds": ["aws"], "regions": ["r"] },
            "capacity": { "prefer": ["on-demand"] },
            "limits": { "maxNodes": 10, "maxUsdPerHour": 100 },
        }],
    }))
    .unwrap();
    Policy::try_from_raw(&raw).unwrap()
}

fn book() -> PriceBook {
    let mut book = PriceBook::new();
    let cloud = Cloud::new("aws").unwrap();
    for (gpus, vcpus, memory, prices) in
        [(1, 4, 16, vec![("zone-a", 800_000), ("zone-b", 900_000)]), (2, 8, 32, vec![("zone-a", 1_500_000)])]
    {
        let instance_type = InstanceType::new(format!("gpu.{gpus}")).unwrap();
        book.insert_spec(InstanceSpec {
            cloud: cloud.clone(),
            instance_type: instance_type.clone(),
            gpu_model: GpuModel::new("L4").unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(vcpus),
            memory: Some(MiB::from_gib(memory)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        for (zone, price) in prices {
            let (region, zone) = (Region::new("r").unwrap(), ZoneId::new(zone).unwrap());
            let place = Place { cloud: cloud.clone(), region, zone, instance_type: instance_type.clone() };
            let quote =
                Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: Some(now()), source: Arc::from("test") };
            book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
        }
    }
    book
}

fn catalogue() -> Catalogue {
    let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
    Catalogue::derive(&Arc::new(policy()), &book(), &[(SupplierName::new("test").unwrap(), facts)].into())
}

/// A whole view with the three groups, open and empty.
fn view() -> View {
    let catalogue = catalogue();
    let prices = [(ONE_A, 800_000), (ONE_B, 900_000), (TWO_A, 1_500_000)];
    assert_eq!(catalogue.groups.keys().map(NodeGroupId::as_str).collect::<Vec<_>>(), prices.map(|(id, _)| id));
    let groups = prices.map(|(id, price)| {
        let group = Arc::clone(&catalogue.groups[&NodeGroupId::new(id).unwrap()]);
        let next_price = Some(UsdPerHour(price));
        let supply = vec![Step { nodes: 10, price: UsdPerHour(price) }];
        let mut view = GroupView::empty(&group);
        view.limits.max = 10;
        (view.limits.next_price, view.limits.next_paid, view.limits.lasting_price) = (next_price, next_price, next_price);
        view.limits.supply = supply;
        view.template = Bytes::from(node_proto(&group.template, &NodeName::new("template").unwrap()));
        (group.id.clone(), Arc::new(view))
    });
    View { ready: Ok(()), groups: BTreeMap::from(groups), ..View::starting(now(), Arc::new(catalogue)) }
}

/// Changes a group of a view.
fn edit(view: &mut View, id: &str, change: impl FnOnce(&mut GroupView)) {
    change(Arc::make_mut(view.groups.get_mut(&NodeGroupId::new(id).unwrap()).unwrap()));
}

fn close(view: &mut View, id: &str) {
    edit(view, id, |group| {
        group.limits.max = group.limits.target;
        group.limits.next_price = None;
        group.limits.supply.clear();
        group.limits.closed = Some(Closed::Removed);
    });
}

/// Gives a group these instances, and says that they are its.
fn fill(view: &mut View, id: &str, instances: Vec<InstanceView>) {
    for instance in &instances {
        view.owners.insert(instance.id.clone(), group_id(id));
    }
    edit(view, id, |group| {
        group.limits.target = u32::try_from(instances.len()).unwrap();
        group.instances = instances;
    });
}

/// A handle without an engine behind it: what it shows is set by the test, and what is asked of it can be looked at.
struct Handle<C> {
    engine: EngineHandle,
    asked: mpsc::Receiver<C>,
}

impl<C> Handle<C> {
    fn show(&self, view: View) {
        self.engine.view.store(Arc::new(view));
    }

    fn show_not_ready(&self) {
        let mut view = view();
        view.ready = Err(NotReady::Kubernetes);
        self.show(view);
    }

    /// Nothing reached the engine.
    fn untouched(&mut self) -> bool {
        self.asked.is_empty()
    }
}

/// A handle that shows `view`, to an autoscaler whose session has begun.
macro_rules! handle {
    ($view:expr) => {{
        let (commands, asked) = mpsc::channel(8);
        // Calls made without a connection come as from connection nought.
        let connection = Arc::new(AtomicU64::new(0));
        let view = Arc::new(ArcSwap::from_pointee($view));
        Handle { engine: EngineHandle { commands, view, listing: Arc::default(), connection }, asked }
    }};
}
use handle;

fn node(provider_id: &str, name: &str) -> ExternalGrpcNode {
    ExternalGrpcNode { provider_id: provider_id.to_owned(), name: name.to_owned(), ..ExternalGrpcNode::default() }
}

/// A serialised Pod that asks for so much.
fn pod(name: &str, requests: &[(&str, &str)]) -> Bytes {
    let amounts = requests.iter().map(|(k, v)| ((*k).to_owned(), Quantity { string: Some((*v).to_owned()) })).collect();
    let resources = Some(ResourceRequirements { requests: amounts, ..Default::default() });
    let metadata = Some(ObjectMeta { name: Some(name.to_owned()), ..Default::default() });
    let spec = Some(PodSpec { containers: vec![Container { resources, ..Default::default() }], ..Default::default() });
    Bytes::from(Pod { metadata, spec, ..Default::default() }.encode_to_vec())
}

/// A pod of one GPU.
fn annotated_pod(name: &str, annotations: &[(&str, String)]) -> Bytes {
    let mut pod = Pod::decode(gpu_pod(name, 1)).unwrap();
    let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
    pod.metadata.as_mut().unwrap().annotations = annotations.collect();
    Bytes::from(pod.encode_to_vec())
}

fn gpu_pod(name: &str, gpus: u32) -> Bytes {
    pod(name, &[("cpu", "1"), ("nvidia.com/gpu", &gpus.to_string())])
}
