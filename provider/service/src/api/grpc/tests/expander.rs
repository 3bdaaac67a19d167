use jiff::SignedDuration;
use k8s_pb::api::core::v1::{Affinity, Toleration};
use stoker_core::base::ids::{NodeGroupId, ProviderId, RecordId};
use stoker_core::base::units::Work;
use stoker_core::state::memory::{GroupMemory, Memory};
use stoker_core::state::record::{PodsSeen, Record, State};
use stoker_proto::Bytes;
use stoker_proto::expander::expander_server::Expander as _;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use tonic::Request;

use super::super::expander::{Expander, mark};
use super::*;
use crate::kube::pods::{DEADLINE, GPU_HOURS};

fn option(group: &str, node_count: i32, pods: &[Bytes]) -> ExpanderOption {
    ExpanderOption { node_group_id: group.to_owned(), node_count, pod_bytes: pods.to_vec(), ..ExpanderOption::default() }
}

/// One GPU each.
fn pods(count: u32) -> Vec<Bytes> {
    (0..count).map(|n| gpu_pod(&format!("p{n}"), 1)).collect()
}

async fn kept(view: View, options: Vec<ExpanderOption>) -> Vec<String> {
    let handle: Handle<_> = handle!(view);
    let request = BestOptionsRequest { options, ..BestOptionsRequest::default() };
    let reply = Expander::new(handle.engine).best_options(Request::new(request)).await.unwrap().into_inner();
    reply.options.into_iter().map(|option| option.node_group_id).collect()
}

#[tokio::test]
async fn the_cheapest_per_gpu_helped_wins() {
    // Two pods: two nodes at $0.80 are $0.80 a GPU; one node of two GPUs at $1.50 is $0.75.
    let both = pods(2);
    let options = vec![option(ONE_A, 2, &both), option(ONE_B, 2, &both), option(TWO_A, 1, &both)];
    assert_eq!(kept(view(), options).await, [TWO_A]);
    // One pod: half of the two GPUs would be for nothing.
    let one = pods(1);
    let options = vec![option(TWO_A, 1, &one), option(ONE_B, 1, &one), option(ONE_A, 1, &one)];
    assert_eq!(kept(view(), options).await, [ONE_A]);
    // What costs more but helps more pods is cheaper for what it brings.
    let options = vec![option(ONE_A, 1, &one), option(TWO_A, 1, &both)];
    assert_eq!(kept(view(), options).await, [TWO_A]);
}

#[tokio::test]
async fn pods_without_gpus_are_counted_only_where_no_pod_has_any() {
    let plain: Vec<Bytes> = (0..9).map(|n| pod(&format!("p{n}"), &[("cpu", "1")])).collect();
    let options = vec![option(ONE_A, 1, &plain), option(ONE_B, 9, &pods(9))];
    assert_eq!(kept(view(), options).await, [ONE_B]);
    let options = vec![option(TWO_A, 1, &plain), option(ONE_A, 2, &plain)];
    assert_eq!(kept(view(), options).await, [TWO_A]);
}

#[tokio::test]
async fn pods_that_ask_for_slices_are_gpu_pods() {
    let sliced: Vec<Bytes> = (0..2).map(|n| pod(&format!("s{n}"), &[("nvidia.com/mig-1g.10gb", "3")])).collect();
    let plain: Vec<Bytes> = (0..9).map(|n| pod(&format!("p{n}"), &[("cpu", "1")])).collect();
    // However cheap it is to help pods without GPUs, the others come first.
    assert_eq!(kept(view(), vec![option(ONE_A, 1, &plain), option(TWO_A, 9, &sliced)]).await, [TWO_A]);
    // Six slices for $0.80 are cheaper than two GPUs for $1.50.
    assert_eq!(kept(view(), vec![option(TWO_A, 1, &pods(2)), option(ONE_A, 1, &sliced)]).await, [ONE_A]);
}

#[tokio::test]
async fn legacy_pods_are_read_too() {
    let both = pods(2);
    let legacy = |group: &str, nodes| ExpanderOption { pod: both.clone(), ..option(group, nodes, &[]) };
    assert_eq!(kept(view(), vec![legacy(ONE_A, 2), legacy(TWO_A, 1)]).await, [TWO_A]);
}

#[tokio::test]
async fn doubt_never_vetoes() {
    let one = pods(1);
    let all = || vec![option(TWO_A, 1, &one), option(ONE_B, 1, &one), option(ONE_A, 1, &one)];
    let as_they_came = [TWO_A, ONE_B, ONE_A];
    // All closed; no view yet; groups that nobody knows; counts that make no sense.
    let mut closed = view();
    for id in ALL {
        close(&mut closed, id);
    }
    assert_eq!(kept(closed, all()).await, as_they_came);
    assert_eq!(kept(View::starting(now(), Arc::new(catalogue())), all()).await, as_they_came);
    assert_eq!(kept(view(), vec![option("x", 1, &one), option("", 1, &one)]).await, ["x", ""]);
    assert_eq!(kept(view(), vec![option(ONE_B, 0, &one), option(ONE_A, -1, &one)]).await, [ONE_B, ONE_A]);
    let mut negative = view();
    edit(&mut negative, ONE_A, |group| group.limits.supply[0].price = UsdPerHour(-1));
    assert_eq!(kept(negative, vec![option(ONE_A, 1, &one)]).await, [ONE_A]);
    // One closed: the best of the others.
    let mut closed = view();
    close(&mut closed, ONE_A);
    assert_eq!(kept(closed, all()).await, [ONE_B]);
    assert_eq!(kept(view(), vec![option("x", 1, &one), option(TWO_A, 1, &one)]).await, [TWO_A]);
    // Half a view still ranks: prices are known, and the order itself is refused if it must be.
    let mut half = view();
    half.ready = Err(NotReady::Kubernetes);
    assert_eq!(kept(half, all()).await, [ONE_A]);
    // Nothing in, nothing out.
    assert_eq!(kept(view(), vec![]).await, [""; 0]);
}

#[tokio::test]
async fn pods_that_cannot_be_read_count_as_pods_without_gpus() {
    let broken = [Bytes::from_static(b"\xff\xff"), Bytes::new(), pod("p", &[("nvidia.com/gpu", "many")])];
    assert_eq!(kept(view(), vec![option(TWO_A, 1, &broken), option(ONE_A, 1, &broken)]).await, [ONE_A]);
    let mixed: Vec<Bytes> = broken.into_iter().chain(pods(1)).collect();
    assert_eq!(kept(view(), vec![option(ONE_B, 1, &mixed), option(ONE_A, 1, &mixed)]).await, [ONE_A]);
    // Without pods an option helps nobody: it comes last, and is still better than a veto.
    assert_eq!(kept(view(), vec![option(ONE_A, 1, &[]), option(TWO_A, 9, &pods(1))]).await, [TWO_A]);
    assert_eq!(kept(view(), vec![option(ONE_B, 1, &[]), option(ONE_A, 2, &[])]).await, [ONE_A]);
}

#[tokio::test]
async fn a_large_request_is_ranked_alike() {
    let filler = "x".repeat(4096);
    let many: Vec<Bytes> = (0..100).map(|n| gpu_pod(&format!("{n}{filler}"), 1)).collect();
    let options = vec![option(ONE_B, 100, &many), option(ONE_A, 100, &many), option(TWO_A, 50, &many)];
    assert_eq!(kept(view(), options).await, [TWO_A]);
}

/// A node of `ONE_A` on its way, which this autoscaler did not ask for.
fn on_its_way(view: &mut View) {
    let mut memory = Memory::default();
    let group = Arc::clone(&view.catalogue.groups[&NodeGroupId::new(ONE_A).unwrap()]);
    let remembered = GroupMemory { group, unused: 0, unused_order: None, suspended_since: None };
    memory.groups.insert(group_id(ONE_A), Arc::new(remembered));
    let record = Record {
        id: RecordId(0),
        group: group_id(ONE_A),
        order: None,
        ordered_at: now(),
        credited_to: None,
        floor: false,
        attempts: 0,
        placeholder: ProviderId::new("placeholder").unwrap(),
        pods: PodsSeen::NotYet,
        judged: None,
        state: State::Wanted,
    };
    memory.records.insert(record.id, Arc::new(record));
    view.memory = Arc::new(memory);
}

/// A pod of one GPU that runs on our nodes, and is bound to nothing else.
fn ours(name: &str, affinity: Option<Affinity>) -> Bytes {
    let mut pod = Pod::decode(gpu_pod(name, 1)).unwrap();
    if let Some(spec) = &mut pod.spec {
        let tolerates =
            Toleration { key: Some("nvidia.com/gpu".into()), operator: Some("Exists".into()), ..Default::default() };
        spec.tolerations = vec![tolerates];
        spec.affinity = affinity;
    }
    Bytes::from(pod.encode_to_vec())
}

#[tokio::test]
async fn a_dear_shape_is_not_opened_for_pods_that_a_node_on_its_way_will_serve() {
    let mut coming = view();
    on_its_way(&mut coming);
    // One pod, one cheap node that boots: nothing more is to be bought for it.
    let one = [ours("a", None)];
    assert_eq!(kept(view(), vec![option(TWO_A, 1, &one)]).await, [TWO_A], "with nothing on its way");
    let mut again = view();
    on_its_way(&mut again);
    assert_eq!(kept(again, vec![option(TWO_A, 1, &one)]).await, [""; 0]);
    // Two pods: one is left, and it alone is weighed. A node for it costs $0.90; two GPUs for one pod $1.50.
    let both = [ours("a", None), ours("b", None)];
    let options = || vec![option(TWO_A, 1, &both), option(ONE_B, 1, &both[1..])];
    assert_eq!(kept(view(), options()).await, [TWO_A], "$0.75 a GPU");
    assert_eq!(kept(coming, options()).await, [ONE_B]);
}

#[tokio::test]
async fn what_may_not_run_there_is_not_waited_for() {
    // No toleration, or more conditions than are looked at here.
    for pod in [gpu_pod("a", 1), ours("a", Some(Affinity::default()))] {
        let mut coming = view();
        on_its_way(&mut coming);
        assert_eq!(kept(coming, vec![option(TWO_A, 1, &[pod])]).await, [TWO_A]);
    }
}

#[tokio::test]
async fn an_option_is_weighed_by_the_nodes_that_its_group_may_get() {
    // A commitment covers two nodes of ONE_B, and then it is dearer: 0.90 × 2 of 4, against 0.80 × 4.
    let mut covered = view();
    edit(&mut covered, ONE_B, |group| {
        group.limits.supply = vec![Step { nodes: 2, price: UsdPerHour(1) }, Step { nodes: 8, price: UsdPerHour(900_000) }];
    });
    let four = pods(4);
    assert_eq!(kept(covered, vec![option(ONE_A, 4, &four), option(ONE_B, 4, &four)]).await, [ONE_B]);
    // A quota leaves ONE_A one node: as cheap for it, and three pods stay without.
    let mut short = view();
    edit(&mut short, ONE_A, |group| group.limits.supply[0].nodes = 1);
    edit(&mut short, ONE_B, |group| group.limits.supply[0].price = UsdPerHour(800_000));
    assert_eq!(kept(short, vec![option(ONE_A, 4, &four), option(ONE_B, 4, &four)]).await, [ONE_B]);
}

#[test]
fn pods_are_told_apart_by_their_names_wherever_those_end() {
    let named = |name: &str, namespace: &str, label: &str| {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            generate_name: Some("web-".to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: [("x".to_owned(), label.to_owned())].into(),
            ..Default::default()
        };
        Bytes::from(Pod { metadata: Some(metadata), ..Default::default() }.encode_to_vec())
    };
    let long = "l".repeat(300);
    let pods = [named("web-a", "ml", &long), named("web-b", "ml", &long), named("web-a", "mm", &long)];
    let marks: Vec<_> = pods.iter().map(|pod| mark(pod)).collect();
    assert!(marks[0] != marks[1] && marks[0] != marks[2] && marks.iter().all(|(_, told)| told.len() < 30), "{marks:?}");
    assert_eq!(mark(&pods[0].clone()), marks[0]);
    // What is no pod is told apart by all of it.
    for odd in [&b""[..], b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0a\x05\x0a\x7fxy", b"\xff\xff"] {
        assert_eq!(mark(odd), (odd.len(), odd));
    }
}

#[tokio::test]
async fn the_choice_is_the_same_in_any_order_of_options_and_pods() {
    let all: Vec<Bytes> = (0..12).map(|n| gpu_pod(&format!("p{n}"), n % 3)).collect();
    // Which pods each option helps, as bits; the nodes that it takes.
    for seed in 1..60_u64 {
        let bits = |at: u32| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at * 13) & 0xfff;
        let helped = |at: u32| -> Vec<Bytes> {
            all.iter().enumerate().filter(|(n, _)| bits(at) >> n & 1 == 1).map(|(_, pod)| pod.clone()).collect()
        };
        let mut options: Vec<_> = (0_u32..3)
            .zip(ALL)
            .map(|(at, group)| option(group, i32::try_from(bits(at) % 4 + 1).unwrap(), &helped(at)))
            .collect();
        let first = kept(view(), options.clone()).await;
        for _ in 0..3 {
            options.rotate_left(1);
            for option in &mut options {
                option.pod_bytes.reverse();
            }
            assert_eq!(kept(view(), options.clone()).await, first, "seed {seed}");
        }
    }
}

/// $0.80 for a GPU that does one unit of work an hour, $3.00 for one that does three: $1.00 a unit.
#[tokio::test]
async fn a_pod_with_a_deadline_gets_the_cheapest_gpu_that_is_fast_enough() {
    let weighed = || {
        let mut view = view();
        for (id, work, price) in [(ONE_A, 1_000_000, 800_000), (ONE_B, 3_000_000, 3_000_000)] {
            edit(&mut view, id, |shown| {
                Arc::make_mut(&mut shown.group).work = Some(Work(work));
                shown.limits.supply = vec![Step { nodes: 10, price: UsdPerHour(price) }];
            });
        }
        view
    };
    let best = async |annotations: &[(&str, String)]| {
        let pods = [annotated_pod("train-0", annotations)];
        let kept = kept(weighed(), vec![option(ONE_A, 1, &pods), option(ONE_B, 1, &pods)]).await;
        kept.concat()
    };
    // A node may take the ten minutes of bootDeadline, and ten hours are left.
    let at = now().saturating_add(SignedDuration::from_mins(610)).unwrap().to_string();
    let by = |hours: &str| [(DEADLINE, at.clone()), (GPU_HOURS, hours.to_owned())];
    assert_eq!(best(&[]).await, ONE_A);
    assert_eq!(best(&by("10")).await, ONE_A);
    assert_eq!(best(&by("10.1")).await, ONE_B);
    assert_eq!(best(&by("100")).await, ONE_B, "none is fast enough: the fastest");
    assert_eq!(best(&by("many")).await, ONE_A, "what cannot be read does not count");
    let over = [(DEADLINE, now().to_string()), (GPU_HOURS, "100".to_owned())];
    assert_eq!(best(&over).await, ONE_A, "nor does what is over");
}
