use std::collections::BTreeSet;

use super::*;
use stoker_core::facts::supply::InstanceState;

#[test]
fn a_key_makes_one_machine_for_ever() {
    let mut world = world(calm());
    let first = launch_one(&mut world, at(0), 1, &l4());
    let again = launch_one(&mut world, at(9), 1, &l4());
    assert_eq!(first, again);
    assert_eq!(world.observe(at(9), &cluster()).unwrap().instances.len(), 1);

    world.terminate(at(10), std::slice::from_ref(&first.provider_id));
    assert_eq!(state(&mut world, at(39), &first.provider_id), Some(InstanceState::Stopping));
    assert_eq!(state(&mut world, at(40), &first.provider_id), None);
    let outcome = launch(&mut world, at(41), 1, &[l4()]).remove(0);
    let expected = "launch key test/pool.shape/1/1 was used by an instance that ended";
    assert_eq!(refusal(&outcome), (RefusalKind::Config, expected));
}

#[test]
fn terminating_is_idempotent() {
    let mut world = world(calm());
    let id = launch_one(&mut world, at(0), 1, &l4()).provider_id;
    let unknown = ProviderId::new("sim:///elsewhere/i-000000000000").unwrap();
    for seconds in [10, 20, 60] {
        let answers = world.terminate(at(seconds), &[id.clone(), unknown.clone()]);
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "{answers:?}");
    }
    // The second word did not lengthen the way out that the first began.
    assert_eq!(state(&mut world, at(60), &id), None);
}

#[test]
fn a_market_sells_no_more_than_it_has() {
    let mut config = calm();
    config.markets = vec![MarketConfig { stock: Some(3), ..MarketConfig::default() }];
    let mut world = world(config);
    let mut outcomes = launch(&mut world, at(0), 1, &vec![l4(); 5]);
    assert_eq!(world.observe(at(0), &cluster()).unwrap().instances.len(), 3);
    let (kind, message) = refusal(&outcomes[3]);
    assert_eq!(kind, RefusalKind::OutOfCapacity);
    assert_eq!(message, "no on-demand capacity for g6.xlarge in use1-az1: 3 of 3 are running");
    // The other capacity type is another market.
    assert_eq!(world.stock_left(&l4()), 0);
    assert_eq!(world.stock_left(&l4_spot()), 3);
    // What is on its way out still takes up stock; what is gone does not.
    let LaunchOutcome::Launched(first) = outcomes.remove(0) else { panic!() };
    world.terminate(at(10), &[first.provider_id]);
    assert!(matches!(launch(&mut world, at(20), 6, &[l4()])[0], LaunchOutcome::Refused(_)));
    assert!(matches!(launch(&mut world, at(40), 7, &[l4()])[0], LaunchOutcome::Launched(_)));
}

#[test]
fn what_is_not_sold_is_refused_for_good() {
    let mut world = world(calm());
    let unknown = market("use1-az9", "g6.xlarge", SPOT);
    let list_only = market("use1-az4", "p5.48xlarge", ON_DEMAND);
    let pinned = market("use1-az4", "p5.48xlarge", SPOT);
    let outcomes = launch(&mut world, at(0), 1, &[unknown.clone(), list_only.clone(), pinned]);
    assert_eq!(refusal(&outcomes[0]).0, RefusalKind::Config);
    assert_eq!(refusal(&outcomes[1]).0, RefusalKind::Config);
    assert_eq!(refusal(&outcomes[2]).0, RefusalKind::OutOfCapacity);
    assert!(!world.sells(&unknown) && !world.sells(&list_only) && world.sells(&l4()));
}

#[test]
fn stock_is_by_the_size_of_the_gpu() {
    let mut config = calm();
    config.stock.some = 0;
    let world = world(config);
    assert_eq!(world.stock_left(&l4()), 64);
    assert_eq!(world.stock_left(&market("use1-az1", "p5.48xlarge", ON_DEMAND)), 2);
}

#[test]
fn an_unclear_launch_is_found_by_looking() {
    let mut config = calm();
    config.api.error_rate = 0.5;
    config.stock.plenty = 1000;
    let mut world = world(config);
    let outcomes = launch(&mut world, at(0), 0, &vec![l4(); 400]);
    let observation = (1..99).find_map(|second| world.observe(at(second), &cluster()).ok()).unwrap();
    let keys: BTreeSet<_> = observation.instances.values().map(|instance| instance.key.clone()).collect();
    let (mut unclear, mut made) = (0, 0);
    for (number, outcome) in outcomes.iter().enumerate() {
        let exists = keys.contains(&request(number, &l4()).key);
        match outcome {
            LaunchOutcome::Launched(_) => assert!(exists),
            LaunchOutcome::Unclear { .. } => {
                unclear += 1;
                made += usize::from(exists);
            }
            LaunchOutcome::Refused(refusal) => panic!("{refusal:?}"),
        }
    }
    assert!((150..250).contains(&unclear), "{unclear}");
    assert!((unclear * 2 / 5..unclear * 3 / 5).contains(&made), "{made} of {unclear}");
    // Asking again with the same key settles it in the end, with one machine.
    let mut number = 0;
    for second in 100..160 {
        if let LaunchOutcome::Launched(_) = launch(&mut world, at(second), number, &[l4()])[0] {
            number += 1;
        }
    }
    assert!(number > 20);
    let observation = (160..199).find_map(|second| world.observe(at(second), &cluster()).ok()).unwrap();
    assert!(observation.instances.len() <= 400);
}

#[test]
fn a_termination_that_failed_may_have_worked() {
    let mut config = calm();
    let mut quiet = world(config.clone());
    let ids: Vec<_> = (0..60).map(|n| launch_one(&mut quiet, at(0), n, &l4()).provider_id).collect();
    let rows = quiet.take_dirty().into_iter().map(|(_, row)| row).collect();
    config.api.error_rate = 1.0;
    let mut world = World::restore(config, &book(), start(), rows).unwrap();
    assert!(world.terminate(at(1), &ids).iter().all(|(_, answer)| answer.is_err()));
    let stopping = ids.iter().filter(|id| world.instance(id).unwrap().state == InstanceState::Stopping).count();
    assert!((20..40).contains(&stopping), "{stopping}");
    assert!(world.observe(at(2), &cluster()).is_err());
}

#[test]
fn a_partial_listing_says_so() {
    let mut config = calm();
    config.api.partial_listing_rate = 1.0;
    let mut world = world(config);
    assert!(!world.observe(at(0), &cluster()).unwrap().complete);
    launch(&mut world, at(0), 0, &[l4()]);
    assert!(world.observe(at(1), &cluster()).unwrap().instances.is_empty());
    launch(&mut world, at(2), 1, &vec![l4(); 59]);
    let (one, other) = (world.observe(at(3), &cluster()).unwrap(), world.observe(at(4), &cluster()).unwrap());
    assert!(!one.complete && (30..50).contains(&one.instances.len()), "{}", one.instances.len());
    assert_ne!(one.instances, other.instances);
}

#[test]
fn clusters_do_not_see_each_other() {
    let mut world = world(calm());
    launch(&mut world, at(0), 0, &[l4()]);
    let other = ClusterName::new("other").unwrap();
    assert!(world.observe(at(0), &other).unwrap().instances.is_empty());
}

#[test]
fn names_are_good_and_never_repeat() {
    let mut config = calm();
    config.stock.plenty = 100_000;
    let mut world = world(config);
    let azure = market_of("azure", "eastus", "eastus-1", "Standard_NC4as_T4_v3", ON_DEMAND);
    let mut requests: Vec<_> = (0..3_000).map(|number| request(number, &l4())).collect();
    requests.push(request(3_000, &azure));
    let (mut ids, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    for (_, outcome) in world.launch(at(0), &cluster(), &requests) {
        let LaunchOutcome::Launched(instance) = outcome else { panic!("{outcome:?}") };
        let (id, node) = (instance.provider_id.to_string(), instance.node_name.to_string());
        let (stem, tag) = node.rsplit_once('-').unwrap();
        assert!(["g6-xlarge", "standard-nc4as-t4-v3"].contains(&stem) && tag.len() == 8, "{node}");
        let tail = id.rsplit_once("/i-").unwrap().1;
        assert!(id.starts_with("sim:///use1-az1/i-") || id.starts_with("sim:///eastus-1/i-"), "{id}");
        assert!(tail.len() == 12 && tail.starts_with(tag), "{id} {node}");
        assert!(ids.insert(id) && nodes.insert(node));
    }
}

#[test]
fn unruly_types_still_make_host_names() {
    let mut book = book();
    for name in ["___".to_owned(), "Ünïcode GPU/8×".to_owned(), "x".repeat(200), format!("{}.y", "x".repeat(53))] {
        let market = market("use1-az1", &name, ON_DEMAND);
        book.insert(market.clone(), price(1_000_000, QuoteKind::List));
        let mut world = World::new(calm(), &book, start()).unwrap();
        let node = launch_one(&mut world, at(0), 1, &market).node_name.to_string();
        assert!(node.len() <= 63 && !node.starts_with('-') && !node.contains("--0"), "{node}");
        assert!(node.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{node}");
    }
    // A zone name that leaves no room for an id is the request's fault, not ours.
    let mut long = request(1, &l4());
    long.zone_name = ZoneName::new("z".repeat(500)).unwrap();
    let (_, outcome) = world(calm()).launch(at(0), &cluster(), &[long]).remove(0);
    assert_eq!(refusal(&outcome).0, RefusalKind::Config);
}
