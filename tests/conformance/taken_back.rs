//! The three ways in which an autoscaler takes capacity back, for the same missing nodes.

use stoker_core::facts::supply::InstanceState;
use stoker_core::market::offer::CapacityType;
use stoker_proto::externalgrpc::instance_status::InstanceState as Shown;
use stoker_tests::client::{failed, status, synthetic};
use stoker_tests::harness::{Service, Setup};
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::rig::Rig;

use crate::world::{A10G, L4, mins, newest, no_l4, one_group, order, secs, two_groups};

/// Three nodes asked for: one has come, two are machines that never boot.
async fn one_of_three() -> Service {
    let setup = Setup::new(policy(&[Pool { prefer: "spot, on-demand", ..Pool::new("p") }])).world(|world| {
        world.markets.push(market::stock(market::of_kind("g6.xlarge", CapacityType::Spot), 1));
        world.broken_images.push(market::of_kind("g6.xlarge", CapacityType::OnDemand));
    });
    let service = setup.start().await;
    order(&service, L4, 3).await;
    service.pass(mins(5)).await;
    let instances = service.client().nodes(L4).await.unwrap();
    let running = instances.iter().filter(|instance| status(instance).0 == Shown::InstanceRunning).count();
    assert_eq!((instances.len(), running), (3, 1), "{instances:?}");
    service
}

/// A request that ran out of time is taken back by its whole size, also where a part has come: what has a machine stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_out_request_takes_back_only_what_is_missing() {
    let service = one_of_three().await;
    let client = service.client();
    client.decrease(L4, -3).await.unwrap();
    service.pass(mins(1)).await;
    assert_eq!(client.target(L4).await.unwrap(), 3, "each has a machine");
    assert!(service.machines().iter().all(|machine| machine.state != InstanceState::Stopping));
}

/// An instance that never registers is deleted by a made-up node that has its id and nothing else; also one that had another id before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_without_a_node_is_known_by_its_id_alone() {
    let service = one_of_three().await;
    let client = service.client();
    let instances = client.nodes(L4).await.unwrap();
    let late: Vec<_> = instances.iter().filter(|instance| status(instance).0 == Shown::InstanceCreating).collect();
    let node = synthetic(&late[0].id, "unregistered");
    client.refresh().await.unwrap();
    assert_eq!(client.group_of(Some(node.clone())).await.unwrap(), L4);
    client.delete(L4, vec![node]).await.unwrap();
    assert_eq!(client.target(L4).await.unwrap(), 2);
    service.pass(mins(1)).await;
    assert!(!service.machine_ids().contains(&late[0].id), "its machine has gone");

    let record = service
        .running()
        .handle
        .view()
        .memory
        .records
        .values()
        .find(|r| r.instance().is_some_and(|i| i.as_str() == late[1].id))
        .cloned();
    let placeholder = record.unwrap().placeholder.to_string();
    assert_ne!(placeholder, late[1].id);
    client.delete(L4, vec![synthetic(&placeholder, "unregistered")]).await.unwrap();
    assert_eq!(client.target(L4).await.unwrap(), 1);
}

/// A target without instances behind it is lowered by the size fixer, which ends every loop early until it is: ours falls before the
/// call is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_fix_lowers_the_target_at_once() {
    let service = one_group().world(no_l4).start().await;
    order(&service, L4, 3).await;
    let client = service.client();
    for (delta, target) in [(-1, 2), (-2, 0)] {
        client.decrease(L4, delta).await.unwrap();
        assert_eq!(client.target(L4).await.unwrap(), target);
        assert_eq!(client.ids(L4).await.unwrap().len(), usize::try_from(target).unwrap());
    }
}

/// All three may hit in one loop: a deletion lowers the target before it is answered, so that the next call sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_lowers_the_target_before_it_is_answered() {
    let service = one_of_three().await;
    let client = service.client();
    let mut ids = client.ids(L4).await.unwrap();
    for target in [2, 1, 0] {
        client.delete(L4, vec![synthetic(&ids.remove(0), "unregistered")]).await.unwrap();
        assert_eq!(client.target(L4).await.unwrap(), target);
    }
}

/// Every node that was accepted is listed as an instance from the start, under an id that leads to its group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_accepted_is_listed_under_an_id_of_its_own() {
    let setup = two_groups().world(|world| (world.api.latency_ms.min, world.api.latency_ms.max) = (1_500, 1_500));
    let service = setup.in_real_time().start().await;
    let client = service.client();
    service.eventually("the first refresh", || async { client.refresh().await.ok() }).await;
    client.increase(L4, 3).await.unwrap();
    let instances = client.nodes(L4).await.unwrap();
    assert_eq!((instances.len(), service.machine_ids().len()), (3, 0), "{instances:?}");
    for instance in &instances {
        assert_eq!(status(instance), (Shown::InstanceCreating, None));
        assert_eq!(client.group_of(Some(synthetic(&instance.id, "unregistered"))).await.unwrap(), L4);
        assert_eq!(instances.iter().filter(|other| other.id == instance.id).count(), 1, "{}", instance.id);
    }
}

/// A machine that does not join: left to the autoscaler it is deleted and bought again from the same market for ever. Ours becomes an
/// error before the autoscaler gives up, and so the next group is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_does_not_join_is_told_before_the_autoscaler_gives_up() {
    let setup = two_groups().world(|world| world.broken_images.push(market::of_type("g6.xlarge")));
    let mut rig = Rig::start(setup, newest()).await;
    rig.want("p", &["a"]);
    rig.run(mins(10)).await;
    assert!(failed(&rig.service.client().nodes(L4).await.unwrap()).is_empty(), "there is still time");
    rig.run(secs(60)).await;
    assert_eq!(rig.asked(), [(A10G.to_owned(), 1), (L4.to_owned(), 1)].into());
    rig.run(mins(4)).await;
    assert_eq!((rig.running_pods(), rig.service.machines_of(L4)), (1, 0));
}

/// An error in a group makes an autoscaler forget all that is on its way there: a late machine beside others goes without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_machine_does_not_hide_what_is_coming() {
    let setup = Setup::new(policy(&[Pool { prefer: "on-demand, spot", ..Pool::new("p") }])).world(|world| {
        world.markets.push(market::stock(market::of_kind("g6.xlarge", CapacityType::OnDemand), 1));
        world.broken_images.push(market::of_kind("g6.xlarge", CapacityType::OnDemand));
    });
    let service = setup.start().await;
    order(&service, L4, 1).await;
    service.pass(mins(9)).await;
    // The only market of the first choice is taken, so these are bought as spot, and boot well.
    order(&service, L4, 2).await;
    service.pass(secs(61)).await;
    let client = service.client();
    let instances = client.nodes(L4).await.unwrap();
    assert!(failed(&instances).is_empty(), "{instances:?}");
    assert_eq!(client.target(L4).await.unwrap(), 2);
    service.pass(mins(5)).await;
    assert_eq!(service.machines_of(L4), 2, "the late machine has gone");
}
