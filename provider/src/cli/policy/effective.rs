//! A policy written out again with every default filled in.

mod warm;

use std::fmt::Display;

use serde_json::Number;
use stoker_core::base::kinds::{Evidence, QuotaUnit, Taint};
use stoker_core::base::text::length;
use stoker_core::base::units::{MICROS_PER_USD, Milli, UsdPerHour};
use stoker_core::market::sharing::{MigLayout, Sharing, Split};
use stoker_core::policy::rules::advise::Thresholds;
use stoker_core::policy::rules::commitment::{
    Capacity, Commitment, CommittedGpus, CommittedNodes, CommittedSpend, Paid, Terms,
};
use stoker_core::policy::rules::demand::{Amount, DemandSignal};
use stoker_core::policy::rules::health::{HealthRules, UnhealthyAction};
use stoker_core::policy::rules::karpenter::BesideKarpenter;
use stoker_core::policy::rules::month::MonthBudget;
use stoker_core::policy::rules::outdated::OutdatedRules;
use stoker_core::policy::rules::spot::{Saving, SpotRules};
use stoker_core::policy::rules::stabilization::Stabilization;
use stoker_core::policy::rules::supplier::{SupplierKind, SupplierRule};
use stoker_core::policy::{
    API_VERSION, Counts, OneOrMany, Policy, Pool, PriceRow, Prometheus, Quota, RawAdvise, RawCapacity, RawCommitment,
    RawDefaults, RawDiscount, RawGpu, RawIsolation, RawKarpenter, RawLimits, RawMig, RawOutdated, RawOverallLimits, RawPolicy,
    RawPool, RawPrice, RawPrometheus, RawQuota, RawSharing, RawSignal, RawSpot, RawStabilization, RawSupplier, RawSupplierKind,
    RawTaint, RawTemplate, RawUnhealthy, RawWhere, Throughput, TypePattern,
};

/// The policy as a file that says everything: read again, it is the same policy.
pub(in crate::cli) fn effective(policy: &Policy) -> RawPolicy {
    let Policy {
        cluster,
        boot_deadline,
        max_usd_per_hour,
        month,
        suppliers,
        pools,
        quotas,
        unknown_quota,
        prices,
        commitments,
        advise,
        prometheus,
        karpenter,
    } = policy;
    RawPolicy {
        api_version: API_VERSION.to_owned(),
        kind: "Policy".to_owned(),
        cluster_name: cluster.to_string(),
        // Each pool that reckons with its data says where it lies.
        // Each schedule says by which clock.
        defaults: RawDefaults {
            data_region: None,
            boot_deadline: Some(length(*boot_deadline)),
            unknown_quota: *unknown_quota,
            time_zone: None,
        },
        suppliers: suppliers.iter().map(supplier).collect(),
        limits: RawOverallLimits {
            max_usd_per_hour: max_usd_per_hour.map(dollars),
            max_usd_per_month: month.map(monthly),
            monthly_pace: month.map(|month| factor(month.pace)),
        },
        pools: pools.iter().map(pool).collect(),
        quotas: quotas.iter().map(quota).collect(),
        prices: prices.iter().map(price).collect(),
        commitments: commitments.iter().map(commitment).collect(),
        advise: thresholds(*advise),
        prometheus: Some(asked(prometheus)),
        karpenter: (!karpenter.is_off()).then(|| beside_karpenter(karpenter)),
    }
}

fn beside_karpenter(karpenter: &BesideKarpenter) -> RawKarpenter {
    RawKarpenter {
        // Where they count by what is steered, it says so already.
        count_nodes: (karpenter.count_nodes == karpenter.counts_nodes()).then_some(karpenter.count_nodes),
        steer: karpenter.steer.iter().copied().collect(),
        dry_run: karpenter.dry_run,
    }
}

fn supplier(rule: &SupplierRule) -> RawSupplier {
    let of_kind =
        |kind| RawSupplier { name: rule.name.to_string(), kind, endpoint: None, boot_template: None, tls: None, config: None };
    match &rule.kind {
        SupplierKind::Simulated => of_kind(RawSupplierKind::Simulated),
        SupplierKind::Plugin { endpoint, boot_template, tls } => RawSupplier {
            endpoint: Some(endpoint.clone()),
            boot_template: boot_template.clone(),
            tls: tls.clone(),
            ..of_kind(RawSupplierKind::Plugin)
        },
        SupplierKind::Karpenter => of_kind(RawSupplierKind::Karpenter),
        SupplierKind::Aws { config } => RawSupplier { config: Some(config.clone()), ..of_kind(RawSupplierKind::Aws) },
    }
}

fn thresholds(thresholds: Thresholds) -> RawAdvise {
    let Thresholds { headroom, over_provisioned_below, memory_bound_from, compute_bound_from } = thresholds;
    let [headroom, over_provisioned_below, memory_bound_from, compute_bound_from] =
        [headroom, over_provisioned_below, memory_bound_from, compute_bound_from].map(|share| Some(share.to_string()));
    RawAdvise { headroom, over_provisioned_below, memory_bound_from, compute_bound_from }
}

fn pool(pool: &Pool) -> RawPool {
    let counts: Vec<u32> = pool.gpu_counts.iter().copied().collect();
    let set = pool.data.as_ref().and_then(|data| data.set);
    RawPool {
        name: pool.name.to_string(),
        workload: pool.workload,
        // All that it does is to set the default of `prefer`, which is said.
        tier: None,
        gpu: RawGpu {
            models: texts(&pool.models),
            count: match counts.as_slice() {
                [] => None,
                [one] => Some(OneOrMany::One(*one)),
                _ => Some(OneOrMany::Many(counts)),
            },
            min_memory_gib: Some(u32::try_from(pool.min_gpu_memory.0 / 1024).unwrap_or(u32::MAX)),
            min_memory_per_node_gib: Some(u32::try_from(pool.min_node_gpu_memory.0 / 1024).unwrap_or(u32::MAX)),
            min_compute_capability: pool.min_compute_capability.and_then(|least| least.to_string().parse().ok()),
            needs: pool.needs.iter().copied().collect(),
            throughput: match &pool.throughput {
                Throughput::Given(given) => {
                    Some(given.iter().map(|(model, work)| (model.to_string(), factor(*work))).collect())
                }
                Throughput::Alike | Throughput::From(_) => None,
            },
            throughput_from: match &pool.throughput {
                Throughput::From(figure) => Some(*figure),
                Throughput::Alike | Throughput::Given(_) => None,
            },
            max_share: pool.max_model_share.iter().map(|(model, share)| (model.to_string(), share.to_string())).collect(),
        },
        place: RawWhere {
            clouds: texts(&pool.clouds),
            regions: texts(&pool.regions),
            zones: pool.zones.iter().cloned().collect(),
            data_region: pool.data.as_ref().map(|data| data.at.to_string()),
            dataset_gib: set.map(|set| set.gib),
            dataset_read_every: set.map(|set| length(set.every)),
            max_distance: pool.data.as_ref().map(|data| data.within),
            max_zone_share: pool.max_zone_share.map(|share| share.to_string()),
        },
        instance_types: pool.instance_types.iter().map(pattern).collect(),
        supplier: pool.supplier.as_ref().map(ToString::to_string),
        node_class: pool.node_class.as_ref().map(ToString::to_string),
        capacity: RawCapacity { prefer: Some(pool.prefer.clone()), spot: pool.spot.as_ref().map(spot) },
        limits: RawLimits {
            min_nodes: Some(pool.limits.min_nodes),
            max_nodes: pool.limits.max_nodes,
            max_usd_per_hour: pool.limits.max_usd_per_hour.map(dollars),
            max_usd_per_month: pool.limits.month.map(monthly),
            monthly_pace: pool.limits.month.map(|month| factor(month.pace)),
            guaranteed_usd_per_hour: (!pool.limits.guaranteed.is_zero()).then(|| dollars(pool.limits.guaranteed)),
        },
        evidence: Some(pool.evidence),
        split_capacity_type: Some(pool.split_capacity_type),
        template: RawTemplate { labels: pool.labels.clone(), taints: Some(pool.taints.iter().map(taint).collect()) },
        warm_floor: pool.warm_floor.as_ref().map(warm::floor),
        stabilization: pool.stabilization.as_ref().map(windows),
        off_hours: pool.off_hours.as_ref().map(warm::off_hours),
        held_after: (pool.evidence == Evidence::Probe).then(|| length(pool.held_after)),
        unhealthy: (pool.evidence == Evidence::Probe).then(|| unhealthy(pool.unhealthy)),
        outdated: Some(outdated(&pool.outdated)),
        isolation: pool.isolation.map(|isolation| RawIsolation { max_cost_ratio: factor(isolation.max_cost_ratio) }),
        waiting_usd_per_gpu_hour: Some(dollars(pool.waiting)),
        sharing: pool.sharing.as_ref().map(sharing),
        signals: pool.signals.iter().map(signal).collect(),
    }
}

fn unhealthy(rules: HealthRules) -> RawUnhealthy {
    let HealthRules { action, after, max_replacements } = rules;
    let replaces = action != UnhealthyAction::Cordon;
    RawUnhealthy {
        action: Some(action),
        after: replaces.then(|| length(after)),
        max_replacements: replaces.then_some(max_replacements),
    }
}

fn outdated(rules: &OutdatedRules) -> RawOutdated {
    let OutdatedRules { maintenance, deadline, max_node_life, paused } = rules;
    RawOutdated {
        maintenance: maintenance.iter().map(warm::slot).collect(),
        deadline: deadline.map(length),
        max_node_life: max_node_life.map(length),
        paused: Some(*paused),
    }
}

fn windows(rules: &Stabilization) -> RawStabilization {
    let Stabilization { scale_down, window, minimum_life, after_scale_up, max_removals } = rules;
    RawStabilization {
        scale_down: Some(length(*scale_down)),
        window: Some(*window),
        minimum_life: Some(length(*minimum_life)),
        after_scale_up: Some(length(*after_scale_up)),
        max_removals_per_window: Some(max_removals.to_string()),
    }
}

fn asked(prometheus: &Prometheus) -> RawPrometheus {
    RawPrometheus {
        interval: Some(length(prometheus.interval)),
        stale_after: Some(length(prometheus.stale_after)),
        node_labels: prometheus.node_labels.clone(),
        match_labels: prometheus.match_labels.clone(),
    }
}

fn signal(signal: &DemandSignal) -> RawSignal {
    RawSignal {
        name: signal.name.to_string(),
        query: signal.query.clone(),
        per_replica: amount(signal.per_replica),
        per_second: signal.per_second.clone(),
    }
}

fn sharing(sharing: &Sharing) -> RawSharing {
    let mut raw = RawSharing {
        workloads: sharing.workloads.iter().copied().collect(),
        acknowledge: sharing.acknowledged.iter().copied().collect(),
        ..RawSharing::default()
    };
    match &sharing.split {
        Split::Mig { layout, strategy } => {
            raw.mig = Some(match layout {
                MigLayout::All(_) | MigLayout::Balanced => RawMig::Named(layout.config()),
                MigLayout::Own(own) => {
                    RawMig::Own(own.iter().map(|(profile, number)| (profile.to_string(), *number)).collect())
                }
            });
            raw.mig_strategy = Some(*strategy);
        }
        Split::TimeSlicing { replicas, renamed } => {
            (raw.time_slicing, raw.rename_by_default) = (Some(*replicas), Some(*renamed));
        }
    }
    raw
}

fn spot(rules: &SpotRules) -> RawSpot {
    let (checkpoint, checkpoint_overhead) = match rules.saving {
        Saving::Checkpoints { every, overhead } => (Some(length(every)), Some(overhead.to_string())),
        Saving::Nothing => (Some("none".to_owned()), None),
        // What inference is unless it says otherwise.
        Saving::Stateless => (None, None),
    };
    RawSpot {
        max_share: Some(rules.max_share.to_string()),
        max_market_share: Some(rules.max_market_share.to_string()),
        max_interruption: rules.max_interruption.map(|share| share.to_string()),
        checkpoint,
        checkpoint_overhead,
        checkpoint_save: rules.save.map(length),
        restart: Some(length(rules.restart)),
        return_to_spot: Some(rules.return_to_spot),
    }
}

fn texts<'a, T: Display + 'a>(names: impl IntoIterator<Item = &'a T>) -> Vec<String> {
    names.into_iter().map(ToString::to_string).collect()
}

fn pattern(pattern: &TypePattern) -> String {
    match pattern {
        TypePattern::Exact(name) => name.to_string(),
        TypePattern::Prefix(prefix) => format!("{prefix}*"),
    }
}

fn taint(taint: &Taint) -> RawTaint {
    RawTaint { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect }
}

fn quota(quota: &Quota) -> RawQuota {
    let limit = |unit| (quota.unit == unit).then_some(quota.limit);
    let raw = RawQuota {
        name: quota.name.clone(),
        cloud: quota.cloud.to_string(),
        region: quota.region.as_ref().map(ToString::to_string),
        models: Vec::new(),
        capacity_types: Vec::new(),
        limit: None,
        vcpus: None,
        gpus: None,
        used: Some(quota.used),
        safety: Some(quota.safety),
    };
    match &quota.counts {
        Counts::Known(_) => RawQuota { limit: Some(quota.limit), ..raw },
        Counts::Own { models, capacity_types } => RawQuota {
            models: texts(models),
            capacity_types: capacity_types.iter().copied().collect(),
            vcpus: limit(QuotaUnit::Vcpus),
            gpus: limit(QuotaUnit::Gpus),
            ..raw
        },
    }
}

fn price(row: &PriceRow) -> RawPrice {
    RawPrice {
        cloud: row.cloud.to_string(),
        region: row.region.to_string(),
        zone: row.zone.as_ref().map(ToString::to_string),
        instance_type: row.instance_type.to_string(),
        capacity_type: row.capacity_type,
        usd_per_hour: dollars(row.price),
    }
}

fn commitment(of: &Commitment) -> RawCommitment {
    let blank = RawCommitment {
        name: of.name.clone(),
        cloud: of.cloud.to_string(),
        kind: of.kind(),
        region: None,
        zone: None,
        instance_type: None,
        family: None,
        model: None,
        memory_gib: None,
        nodes: None,
        gpus: None,
        usd_per_hour: None,
        discount: None,
        from: of.from.map(|at| at.to_string()),
        until: of.until.map(|at| at.to_string()),
    };
    match &of.terms {
        Terms::Nodes(CommittedNodes { instance_type, region, zone, nodes, rate }) => RawCommitment {
            region: Some(region.to_string()),
            zone: zone.as_ref().map(ToString::to_string),
            instance_type: Some(instance_type.to_string()),
            nodes: Some(*nodes),
            usd_per_hour: Some(dollars(*rate)),
            ..blank
        },
        Terms::Gpus(CommittedGpus { model, memory, region, gpus, rate }) => RawCommitment {
            region: Some(region.to_string()),
            model: Some(model.to_string()),
            memory_gib: memory.map(|memory| u32::try_from(memory.0 / 1024).unwrap_or(u32::MAX)),
            gpus: Some(*gpus),
            usd_per_hour: Some(dollars(*rate)),
            ..blank
        },
        Terms::Spend(CommittedSpend { family, rate, discounts }) => RawCommitment {
            region: family.as_ref().map(|(_, region)| region.to_string()),
            family: family.as_ref().map(|(family, _)| family.clone()),
            usd_per_hour: Some(dollars(*rate)),
            discount: Some(discount(discounts)),
            ..blank
        },
        Terms::Capacity(Capacity { place, nodes, paid }) => RawCommitment {
            region: Some(place.region.to_string()),
            zone: Some(place.zone.to_string()),
            instance_type: Some(place.instance_type.to_string()),
            nodes: Some(*nodes),
            usd_per_hour: match paid {
                Paid::OnDemand => None,
                Paid::Ahead { rate, .. } => Some(dollars(*rate)),
            },
            ..blank
        },
    }
}

fn discount(discounts: &[(TypePattern, Milli)]) -> RawDiscount {
    let percent = |Milli(thousandths): &Milli| format!("{}.{}%", thousandths / 10, thousandths % 10);
    match discounts {
        [(TypePattern::Prefix(all), share)] if all.is_empty() => RawDiscount::One(percent(share)),
        by_type => RawDiscount::ByType(by_type.iter().map(|(types, share)| (pattern(types), percent(share))).collect()),
    }
}

/// A rate as the shortest decimal number that reads as the same rate.
/// What may be spent in a month, in dollars.
fn monthly(month: MonthBudget) -> Number {
    dollars(UsdPerHour(month.limit.0))
}

fn dollars(UsdPerHour(micros): UsdPerHour) -> Number {
    let (whole, rest) = (micros / MICROS_PER_USD, micros % MICROS_PER_USD);
    if rest == 0 {
        return whole.into();
    }
    let text = format!("{whole}.{rest:06}");
    // A policy holds rates above nought alone, and decimal digits with a point are always a number.
    text.trim_end_matches('0').parse().unwrap_or_else(|_| whole.into())
}

/// An amount as the shortest decimal number.
fn amount(amount: Amount) -> Number {
    // Decimal digits are always a number.
    amount.to_string().parse().unwrap_or_else(|_| (amount.0 / 1_000_000).into())
}

/// Thousandths as the shortest decimal number.
fn factor(Milli(milli): Milli) -> Number {
    let text = Milli(milli).to_string();
    // Without a point, noughts at the end count. Decimal digits are always a number.
    let short = if text.contains('.') { text.trim_end_matches('0') } else { &text };
    short.parse().unwrap_or_else(|_| (milli / 1_000).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_service::policy_file;

    fn comes_back(text: &str) {
        let policy = policy_file::parse("given", text, None).unwrap();
        let written = crate::cli::out::yaml(&effective(&policy)).unwrap();
        let again = policy_file::parse("written", &written, None).unwrap_or_else(|faults| panic!("{faults}\n{written}"));
        assert_eq!(again, policy, "{written}");
    }

    #[test]
    fn the_example_written_out_is_the_same_policy() {
        comes_back(policy_file::example());
    }

    #[test]
    fn a_policy_with_everything_comes_back() {
        comes_back(
            r##"
apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: "007"
limits: { maxUsdPerHour: 250.5 }
defaults: { bootDeadline: 1h, unknownQuota: deny, dataRegion: gcp/us-central1 }
karpenter: { countNodes: true }
pools:
- name: "on"
  workload: batch
  gpu:
    models: [L4, "1e3"]
    count: 8
    minMemoryGiB: 24
    minMemoryPerNodeGiB: 192
    minComputeCapability: 9.0
    needs: [fp8, nvlink]
    throughput: { L4: 100, "1e3": 2400.125 }
  where:
    clouds: [aws, gcp]
    regions: [us-east-1]
    zones: [use1-az6, us-east-1a]
    dataRegion: aws/us-east-1/use1-az6
    datasetGiB: 500
    datasetReadEvery: 8h30m
    maxDistance: continent
    maxZoneShare: 50%
  instanceTypes: ["g6.*", g5.xlarge]
  capacity: { prefer: [on-demand, spot, reserved] }
  limits: { minNodes: 1, maxNodes: 3, maxUsdPerHour: 0.010001 }
  evidence: none
  splitCapacityType: true
  template:
    labels: { team: "yes", "a.b/c": "" }
    taints: [{ key: x, effect: NoExecute }]
- name: warm
  workload: dev
  gpu: { models: [L4] }
  where: { clouds: [aws], regions: [r] }
  limits: { maxNodes: 9 }
  signals: [{ name: queue, query: up, perReplica: 1 }]
  warmFloor:
    nodes: 1
    percentOfBusy: 10%
    quantile: { window: 7d, horizon: 6m }
    schedule: [{ cron: 0  8 * * MON-FRI, for: 10h, nodes: 4 }, { cron: 0 9 * * 6, timeZone: asia/tokyo, for: 90m, nodes: 2 }]
    signals: true
  offHours: { schedule: [{ cron: 0 20 * * *, timeZone: Europe/Berlin, for: 11h }], maxNodes: 4 }
- { name: s, workload: dev, gpu: { models: [L4] }, where: { clouds: [aws], regions: [r] }, limits: { maxNodes: 1 }, sharing: { timeSlicing: 4, renameByDefault: true } }
- { name: t, workload: training, gpu: { models: [H100] }, where: { clouds: [aws], regions: [r] }, limits: { maxNodes: 1 }, sharing: { mig: { 1g.10gb: 2, 3g.40gb: 1 }, workloads: [training, inference], acknowledge: [mixedWorkloads] } }
- { name: u, workload: dev, gpu: { models: [H100] }, where: { clouds: [aws], regions: [r] }, limits: { maxNodes: 1 }, sharing: { mig: all-1g.10gb, migStrategy: mixed } }
- { name: v, workload: training, gpu: { models: [H100] }, where: { clouds: [aws], regions: [r] }, limits: { maxNodes: 1 }, evidence: probe, unhealthy: { action: drain, after: 10m, maxReplacements: 3 }, capacity: { spot: { checkpointSave: 1m30s } } }
- { name: w, workload: dev, gpu: { models: [H100] }, where: { clouds: [aws], regions: [r] }, limits: { maxNodes: 1 }, evidence: probe, unhealthy: { action: cordon } }
- { name: x, workload: dev, gpu: { models: [H100] }, where: { clouds: [aws], regions: [r] }, limits: { maxNodes: 1 }, stabilization: { scaleDown: 7m, window: equalCost, minimumLife: 0s, afterScaleUp: 90s, maxRemovalsPerWindow: 25% } }
quotas:
- { name: "# odd: name", cloud: aws, gpus: 4 }
- { name: q, cloud: aws, region: us-east-1, models: [L4], capacityTypes: [spot], vcpus: 8, used: 4 }
- { name: Standard NCASv3_T4 Family, cloud: azure, region: eastus, limit: 96, used: 8, safety: 4 }
- { name: GPUS_ALL_REGIONS, cloud: gcp, limit: 16 }
prices:
- { cloud: aws, region: us-east-1, instanceType: g6.xlarge, capacityType: on-demand, usdPerHour: 12.345678 }
- { cloud: aws, region: us-east-1, zone: use1-az6, instanceType: g6.xlarge, capacityType: spot, usdPerHour: 1 }
commitments:
- { name: a, cloud: aws, kind: reserved-instance, region: us-east-1, instanceType: g6.xlarge, nodes: 4, usdPerHour: 2.04 }
- { name: b, cloud: aws, kind: reserved-instance, region: r, zone: z, instanceType: g6.xlarge, nodes: 4, usdPerHour: 2, until: "2027-01-01T00:00:00Z" }
- { name: c, cloud: aws, kind: ec2-savings-plan, region: us-east-1, family: g6, usdPerHour: 4, discount: 37.5% }
- { name: d, cloud: aws, kind: compute-savings-plan, usdPerHour: 4, discount: { "g6.*": 28%, p5.48xlarge: 41% } }
- { name: e, cloud: aws, kind: capacity-reservation, region: us-east-1, zone: use1-az6, instanceType: g6.xlarge, nodes: 2 }
- { name: f, cloud: aws, kind: capacity-block, region: us-east-1, zone: use1-az6, instanceType: p5.48xlarge, nodes: 2, usdPerHour: 80, from: "2026-12-01T11:30:00Z", until: "2026-12-08T11:30:00Z" }
- { name: g, cloud: gcp, kind: committed-use, region: us-central1, model: L4, gpus: 8, usdPerHour: 3 }
- { name: g80, cloud: gcp, kind: committed-use, region: us-central1, model: A100, memoryGiB: 80, gpus: 8, usdPerHour: 12 }
- { name: h, cloud: gcp, kind: reservation, region: us-central1, zone: us-central1-a, instanceType: g2-standard-4, nodes: 2 }
- { name: i, cloud: gcp, kind: calendar-reservation, region: us-central1, zone: us-central1-a, instanceType: a3-highgpu-8g, nodes: 1, usdPerHour: 36, from: "2026-12-01T00:00:00Z", until: "2026-12-02T00:00:00Z" }
- { name: j, cloud: azure, kind: reservation, region: eastus, instanceType: Standard_NC24ads_A100_v4, nodes: 1, usdPerHour: 2 }
- { name: k, cloud: azure, kind: capacity-reservation, region: eastus, zone: eastus, instanceType: Standard_NC24ads_A100_v4, nodes: 1 }
- { name: l, cloud: azure, kind: savings-plan, usdPerHour: 2, discount: 17% }
"##,
        );
    }
}
