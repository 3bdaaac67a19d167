use std::cmp::Ordering;

use stoker_core::units::UsdPerHour;
use stoker_proto::Bytes;
use stoker_proto::expander::expander_server::Expander as _;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use tonic::Request;

use super::super::expander::{Expander, best};
use super::*;

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
    assert_eq!(kept(View::starting(now(), Arc::new(menu())), all()).await, as_they_came);
    assert_eq!(kept(view(), vec![option("x", 1, &one), option("", 1, &one)]).await, ["x", ""]);
    assert_eq!(kept(view(), vec![option(ONE_B, 0, &one), option(ONE_A, -1, &one)]).await, [ONE_B, ONE_A]);
    let mut negative = view();
    edit(&mut negative, ONE_A, |group| group.limits.next_price = Some(UsdPerHour(-1)));
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

#[test]
fn extremes_do_not_wrap() {
    let price = |group: &str| Some(UsdPerHour(if group == "dear" { i64::MAX } else { i64::MAX - 1 }));
    let huge = [pod("p", &[("nvidia.com/gpu", "18446744073709551615")])];
    let options = [option("dear", i32::MAX, &huge), option("b", i32::MAX, &huge), option("a", i32::MAX, &huge)];
    let best = best(&options, price).unwrap();
    assert_eq!((best.group, best.gpus), ("a", u32::MAX));
    assert!(super::super::expander::best(&options, |_| None).is_none());
    // What is paid for already is cheapest of all; of two such, the first by name.
    let free = |_: &str| Some(UsdPerHour::ZERO);
    assert_eq!(super::super::expander::best(&options, free).unwrap().group, "a");
}

/// A generator of numbers below `most`, the same in every run.
struct Lots(u64);

impl Lots {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// The slow and obvious way: every price as a fraction, compared with every other.
fn oracle(
    options: &[ExpanderOption],
    price: impl Fn(&str) -> Option<UsdPerHour>,
    gpus_of: impl Fn(&Bytes) -> u64,
) -> Option<&str> {
    let worth = |option: &ExpanderOption| -> Option<(bool, i128, i128)> {
        let price = price(&option.node_group_id)?;
        let nodes = i128::from(option.node_count);
        (nodes > 0).then_some(())?;
        let gpus: u64 = option.pod_bytes.iter().map(&gpus_of).sum();
        let units = if gpus > 0 { i128::from(gpus) } else { i128::try_from(option.pod_bytes.len()).unwrap() };
        Some((gpus == 0, i128::from(price.0) * nodes, units))
    };
    let beats = |a: &ExpanderOption, b: &ExpanderOption| {
        let (Some((a_plain, a_price, a_units)), Some((b_plain, b_price, b_units))) = (worth(a), worth(b)) else { return false };
        let order = a_plain
            .cmp(&b_plain)
            .then((a_price * b_units).cmp(&(b_price * a_units)))
            .then(a.node_group_id.cmp(&b.node_group_id));
        order == Ordering::Less
    };
    let ranked: Vec<_> = options.iter().filter(|o| worth(o).is_some()).collect();
    ranked.iter().find(|a| !ranked.iter().any(|b| beats(b, a))).map(|o| o.node_group_id.as_str())
}

#[test]
fn the_best_is_the_oracle_s_in_any_order_of_options_and_pods() {
    let all: Vec<(Bytes, u64)> = (0..12).map(|n| (gpu_pod(&format!("p{n}"), n % 3), u64::from(n % 3))).collect();
    let gpus_of = |pod: &Bytes| all.iter().find(|(known, _)| known == pod).unwrap().1;
    let price = |group: &str| match group {
        "g0" => None,
        // Few different prices, so that ties are common.
        other => Some(UsdPerHour(100_000 * i64::from(other.as_bytes()[1] % 3))),
    };
    for seed in 0..500 {
        let mut lots = Lots(seed);
        let mut options: Vec<ExpanderOption> = (0..8)
            .map(|n| {
                let helped: Vec<Bytes> =
                    (0..=lots.below(6)).map(|_| all[usize::try_from(lots.below(12)).unwrap()].0.clone()).collect();
                option(&format!("g{n}"), i32::try_from(lots.below(4)).unwrap(), &helped)
            })
            .collect();
        let expected = oracle(&options, price, gpus_of).map(str::to_owned);
        for _ in 0..4 {
            assert_eq!(best(&options, price).map(|best| best.group.to_owned()), expected, "seed {seed}: {options:?}");
            let middle = usize::try_from(lots.below(8)).unwrap();
            options.rotate_left(middle);
            for option in &mut options {
                option.pod_bytes.reverse();
            }
        }
    }
}
