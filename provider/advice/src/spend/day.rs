//! Roll-up of a day: its spans and pods as rows, each with its time and money.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stoker_core::base::ids::{GpuModel, NodeName, PoolName, ProviderId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::{Market, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::commitment::Commitment;

use super::allocate::{Part, split};
use super::gpu_use::{GpuUse, NodeUse, Read, Whose};
use super::pay::{Line, LineKey, pay, times};
use super::rows::{Amount, Rows};
use super::{Figures, Known, NodeState, PodTime, Span};
use crate::rollup::PodLabels;

/// Who held it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Holder {
    /// Pods of one workload with the same labels.
    Pods {
        /// Their namespace.
        namespace: Arc<str>,
        /// What made them.
        workload: Arc<str>,
        /// Their labels.
        labels: PodLabels,
    },
    /// Pods of one namespace whose workloads are no longer [kept apart](super::KeptDay).
    Others {
        /// Their namespace.
        namespace: Arc<str>,
    },
    /// No pod.
    Nobody,
    /// Nobody knows: no pods were recorded then.
    Unknown,
}

/// What the money went for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Use {
    /// Nodes.
    Nodes {
        /// Their pool.
        pool: PoolName,
        /// Where and how they were bought.
        market: Market,
        /// Their GPU model.
        model: GpuModel,
        /// What they did. A part of a node that pods hold which no pod holds is idle.
        state: NodeState,
        /// Who held them.
        holder: Holder,
    },
    /// What a commitment costs that is not used.
    Unused {
        /// What the policy calls it.
        commitment: String,
    },
}

/// What the time and money of a row belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RowKey {
    /// What it went for.
    pub of: Use,
    /// The machine and its reservation, where rows are kept apart by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<(ProviderId, Option<String>)>,
    /// The discount that paid for it, by its name in the policy, where rows are kept apart by machine. Capacity that is kept is no
    /// discount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_by: Option<Arc<str>>,
}

/// One row of a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DayRow {
    /// What it belongs to.
    pub key: RowKey,
    /// Its time and money.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What is needed to bill a day, beside its spans and pods.
#[derive(Debug, Clone, Copy)]
pub struct Bill<'a> {
    /// The commitments of the policy.
    pub commitments: &'a [Commitment],
    /// What is sold where, and what it costs.
    pub prices: &'a PriceBook,
    /// What a node costs on demand where commitments keep capacity: so much an empty one costs.
    pub on_demand: &'a BTreeMap<Place, UsdPerHour>,
    /// When pods were recorded. At other times nobody knows who held a node.
    pub pods_known: &'a Known,
    /// When it is known what was held. Commitments cost at other times too, and nobody knows what they paid for.
    pub known: &'a Known,
    /// How busy GPUs were.
    pub gpu_use: &'a GpuUse,
    /// Whether machines are kept apart.
    pub by_instance: bool,
}

/// The rows of a day, or of a part of it, between two moments. `spans` and `pods` may reach beyond it. Each kind of money is rounded once, for
/// all of that time, and its rows add up to that exactly.
pub fn roll_up(
    (begin, end): (i64, i64),
    spans: &[Span],
    pods: &BTreeMap<Arc<str>, Vec<PodTime>>,
    bill: &Bill<'_>,
) -> Vec<DayRow> {
    let mut rows = Rows::default();
    // Without commitments no hour differs from the next, and effective is contracted.
    let times = times(bill, begin, end);
    let gpu_use = bill.gpu_use.of(spans);
    let mut lines: Vec<BTreeMap<LineKey<'_>, Line>> = times.iter().map(|_| BTreeMap::new()).collect();
    for span in spans {
        let (since, until) = (span.since.max(begin), span.until.min(end));
        if since >= until {
            continue;
        }
        // A service that sees no Nodes knows machines by their own names.
        let name = span.node.as_ref().map_or(span.instance.as_str(), NodeName::as_str);
        let of_node = pods.get(name).filter(|_| span.state.takes_pods());
        let of_node = of_node.map(Vec::as_slice).unwrap_or_default();
        let line = LineKey { market: &span.market, rate: span.rate };
        split((since, until), span.units.max(1), of_node, |(from, to), part, share| {
            let pod = match part {
                Part::Pod(at) => of_node.get(at),
                Part::Rest => None,
            };
            let known = bill.pods_known.seconds(from, to);
            for (is_known, seconds) in [(true, known), (false, to - from - known)] {
                if seconds == 0 {
                    continue;
                }
                let at = rows.at(key_of(span, pod, is_known, bill.by_instance));
                let amount = Amount::of(span, i128::from(seconds) * share);
                let of = rows.of(at);
                of.amount.add(amount);
                if times.is_empty() {
                    let (read, wasted) = read_of(&gpu_use, span, pod, is_known, (from, to)).of(amount.contracted, to - from);
                    of.effective += amount.contracted;
                    of.read += read;
                    of.wasted += wasted;
                }
            }
            if times.is_empty() {
                return;
            }
            for (time, lines) in times.iter().zip(&mut lines) {
                let (from, to) = (from.max(time.0), to.min(time.1));
                if from >= to {
                    continue;
                }
                let known = bill.pods_known.seconds(from, to);
                for (is_known, seconds) in [(true, known), (false, to - from - known)] {
                    if seconds > 0 {
                        let at = rows.at(key_of(span, pod, is_known, bill.by_instance));
                        let amount = Amount::of(span, i128::from(seconds) * share);
                        let (read, wasted) = read_of(&gpu_use, span, pod, is_known, (from, to)).of(amount.node, to - from);
                        let weight = lines.entry(line).or_default().rows.entry(at).or_default();
                        weight.amount.add(amount);
                        weight.read += read;
                        weight.wasted += wasted;
                    }
                }
            }
        });
        for (time, lines) in times.iter().zip(&mut lines) {
            let seconds = until.min(time.1) - since.max(time.0);
            if seconds > 0 {
                lines.entry(line).or_default().node_seconds += seconds;
            }
        }
    }
    for (time, lines) in times.iter().zip(&lines) {
        pay(&mut rows, *time, lines, bill);
    }
    rows.rounded()
}

fn key_of(span: &Span, pod: Option<&PodTime>, is_known: bool, by_instance: bool) -> RowKey {
    let (state, holder) = match pod {
        Some(PodTime { namespace, workload, labels, .. }) => {
            let (namespace, workload, labels) = (namespace.clone(), workload.clone(), labels.clone());
            // A pod holds it until it is gone, whatever is to become of the node.
            (NodeState::Held, Holder::Pods { namespace, workload, labels })
        }
        None if span.state == NodeState::Held && is_known => (NodeState::Idle, Holder::Nobody),
        None if span.state == NodeState::Held => (NodeState::Held, Holder::Unknown),
        None => (span.state, Holder::Nobody),
    };
    let of = Use::Nodes { pool: span.pool.clone(), market: span.market.clone(), model: span.model.clone(), state, holder };
    RowKey { of, instance: by_instance.then(|| (span.instance.clone(), span.reservation.clone())), paid_by: None }
}

/// What readings tell of a part of a node.
fn read_of(gpu_use: &NodeUse<'_>, span: &Span, pod: Option<&PodTime>, is_known: bool, time: (i64, i64)) -> Read {
    let whose = match pod {
        Some(pod) => Whose::Pod(pod),
        None if span.state == NodeState::Held && !is_known => Whose::Unknown,
        None => Whose::Nobody,
    };
    gpu_use.read(span.node.as_ref(), whose, time)
}
