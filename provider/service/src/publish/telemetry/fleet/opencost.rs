//! Costs and allocation of GPUs under OpenCost's names and labels, for dashboards that read those.
//!
//! OpenCost splits the price of a node into vCPUs, memory and GPUs by a guess. Stoker allocates a node by its GPUs alone, so that the price
//! of one GPU here is that of the node by its GPUs. What OpenCost knows and Stoker does not has no series: containers, UIDs of Nodes, disks.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use stoker_advice::spend::units_of;
use stoker_core::market::offer::CapacityType;
use stoker_core::state::record::Purchase;
use tokio::sync::watch;

use super::super::published::{Published, dollars, gauges};
use super::{Fleet, Node, count};
use crate::kube::feed::GpuPods;

/// The collector.
#[derive(Debug)]
pub(in crate::publish::telemetry) struct OpenCost {
    /// What the last pass knew.
    pub(in crate::publish::telemetry) published: Published,
    /// The GPU pods; `None` without a Kubernetes feed.
    pub(in crate::publish::telemetry) pods: Option<watch::Receiver<Arc<GpuPods>>>,
}

impl Collector for OpenCost {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(fleet) = self.published.last_fleet() else { return Ok(()) };
        let nodes = fleet.nodes();
        let bought = || nodes.values().filter_map(|node| Some((node, node.record.purchase()?)));
        let total = bought().map(|(node, purchase)| (labels(node, purchase), dollars(purchase.price)));
        let help = "Price at which a node was bought, in US dollars per hour, before commitments; with --opencost-metrics";
        gauges(&mut encoder, "node_total_hourly_cost", help, None, total)?;
        let gpus = bought().map(|(node, purchase)| (labels(node, purchase), count(node.group)));
        gauges(&mut encoder, "node_gpu_count", "GPUs of a node; with --opencost-metrics", None, gpus)?;
        let by_gpu = bought().filter(|(node, _)| count(node.group) > 0);
        let by_gpu = by_gpu.map(|(node, purchase)| {
            (labels(node, purchase), dollars(purchase.price) / f64::from(node.group.spec.advertised_gpus()))
        });
        let help = "Price of a node by its GPUs, in US dollars per hour: vCPUs and memory are in it; with --opencost-metrics";
        gauges(&mut encoder, "node_gpu_hourly_cost", help, None, by_gpu)?;
        let is_spot = |purchase: &Purchase| i64::from(purchase.market.capacity_type == CapacityType::Spot);
        let spot = bought().map(|(node, purchase)| (labels(node, purchase), is_spot(purchase)));
        gauges(&mut encoder, "kubecost_node_is_spot", "1 for a spot node; with --opencost-metrics", None, spot)?;
        self.encode_pods(&mut encoder, &fleet)
    }
}

impl OpenCost {
    /// The GPUs that pods hold of Stoker's nodes: of shared ones their part. A pod whose resource claim does not tell its size has none.
    fn encode_pods(&self, encoder: &mut DescriptorEncoder<'_>, fleet: &Fleet) -> fmt::Result {
        let Some(pods) = self.pods.as_ref().map(|pods| Arc::clone(&pods.borrow())) else { return Ok(()) };
        let nodes = fleet.nodes();
        let series = pods.iter().filter_map(|(name, bound)| {
            let ((namespace, pod), node) = (name.split_once('/')?, nodes.get(bound.asks.node.as_str())?);
            let requests = bound.asks.requests.as_ref()?;
            let units = units_of(u32::try_from(requests.gpus).unwrap_or(u32::MAX), &requests.slices);
            let allocatable = &node.group.template;
            let all = units_of(allocatable.allocatable.gpus, &allocatable.slices);
            if units == 0 || all == 0 {
                return None;
            }
            let labels = [
                ("namespace", namespace.to_owned()),
                ("pod", pod.to_owned()),
                ("instance", bound.asks.node.clone()),
                ("node", bound.asks.node.clone()),
                ("uid", bound.pod.uid.as_deref().unwrap_or_default().to_owned()),
            ];
            Some((labels, f64::from(units.min(all)) * f64::from(node.group.spec.advertised_gpus()) / f64::from(all)))
        });
        let help = "GPUs that a pod holds, of shared ones its part; with --opencost-metrics";
        gauges(encoder, "container_gpu_allocation", help, None, series)
    }
}

fn labels(node: &Node<'_>, purchase: &Purchase) -> [(&'static str, String); 6] {
    let instance = node.record.instance().map_or_else(String::new, ToString::to_string);
    [
        ("instance", node.name.to_owned()),
        ("node", node.name.to_owned()),
        ("instance_type", purchase.market.place.instance_type.to_string()),
        ("region", purchase.market.place.region.to_string()),
        ("provider_id", instance),
        ("arch", node.group.spec.arch.as_str().to_owned()),
    ]
}
