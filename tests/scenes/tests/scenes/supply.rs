//! Orders, stock, quotas, budgets, and machines that do not come.

use stoker_scenes::{Pod, Scene};

use crate::common::{PLAIN, SPOT, end};

/// A pod comes to an empty cluster, works for an hour, and the node goes when nothing needs it.
#[test]
fn a_pod_comes_and_goes() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("1h"));
    scene.run("10m");
    assert_eq!((scene.node_of("web/a").as_str(), scene.verdict("n0"), scene.is_held("n0")), ("n0", "busy", true));
    scene.run("2h");
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_pod_comes_and_goes");
}

/// The cheapest market has no stock: the order goes to another zone's spot, and no pod waits longer for it than a loop of the autoscaler.
#[test]
fn the_cheapest_market_is_sold_out() {
    let mut scene = Scene::new(SPOT);
    scene.sell_out("zone-a/g6.xlarge/spot");
    scene.pod("team/job", Pod::of("train").runs("30m"));
    scene.run("6m");
    assert!(!scene.node_of("team/job").is_empty());
    assert!(scene.told(&["zone-a/g6.xlarge/on-demand at"]).is_empty());
    scene.run("1h");
    end(&scene, "the_cheapest_market_is_sold_out");
}

/// Nothing is in stock anywhere; the pod waits, refused markets are left alone for longer and longer, and when stock is back the pod gets
/// its node.
#[test]
fn no_stock_anywhere() {
    let mut scene = Scene::new(SPOT);
    scene.sell_out("g6.xlarge");
    scene.pod("team/job", Pod::of("train").runs("30m"));
    scene.run("30m");
    assert_eq!(scene.machines(), 0);
    scene.restock("g6.xlarge");
    scene.run("50m");
    assert!(!scene.told(&["team/job is bound"]).is_empty());
    scene.run("1h");
    end(&scene, "no_stock_anywhere");
}

/// A quota of eight vCPUs holds two nodes of four: the third pod waits and the autoscaler never asks for what cannot be had.
#[test]
fn the_quota_is_full() {
    let policy = format!("{PLAIN}quotas: [{{ name: Q, cloud: aws, region: east, capacityTypes: [on-demand], vcpus: 8 }}]\n");
    let mut scene = Scene::new(&policy);
    scene.pods("web/a", 3, &Pod::of("serve"));
    scene.run("20m");
    assert_eq!(scene.machines(), 2);
    assert!(scene.told(&["OrderFailed"]).is_empty() && scene.told(&["asked"]).is_empty());
    // One pod ends, and the waiting one takes its node.
    let waiting = ["web/a-0", "web/a-1", "web/a-2"].into_iter().find(|pod| scene.node_of(pod).is_empty()).unwrap();
    scene.finish(["web/a-0", "web/a-1"].into_iter().find(|pod| *pod != waiting).unwrap());
    scene.run("2m");
    assert!(!scene.node_of(waiting).is_empty());
    end(&scene, "the_quota_is_full");
}

/// A budget of $2 an hour holds two nodes of $0.80: the third is not bought, and nothing that runs is ended for it.
#[test]
fn the_budget_is_spent() {
    let mut scene = Scene::new(&PLAIN.replace("maxNodes: 10", "maxNodes: 10, maxUsdPerHour: 2"));
    scene.pods("web/a", 3, &Pod::of("serve"));
    scene.run("20m");
    assert_eq!(scene.machines(), 2);
    assert!(!scene.told(&["BudgetStage"]).is_empty());
    end(&scene, "the_budget_is_spent");
}

/// A machine that never joins is given up after the boot deadline, ended, and another one is had.
#[test]
fn a_machine_never_joins() {
    let mut scene = Scene::new(PLAIN);
    scene.next_machines_never_join(1);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("30m");
    assert!(!scene.told(&["ALARM", "BootTimeout"]).is_empty());
    assert!(!scene.node_of("web/a").is_empty());
    assert_eq!(scene.machines(), 1);
    end(&scene, "a_machine_never_joins");
}

/// Launches whose answers get lost are tried again under the same key: one machine, not two.
#[test]
fn answers_get_lost() {
    let mut scene = Scene::new(PLAIN);
    scene.answers_come(false);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("2m");
    scene.answers_come(true);
    scene.run("10m");
    assert_eq!((scene.machines(), scene.nodes().len()), (1, 1));
    assert!(!scene.node_of("web/a").is_empty());
    end(&scene, "answers_get_lost");
}

/// Pods never join a group's nodes, although they were asked for: after three the group is suspended, and an alarm says so.
#[test]
fn a_group_is_suspended() {
    let mut scene = Scene::new(PLAIN);
    for n in 0..4 {
        // Each user gives up just before the node is there.
        scene.pod(&format!("web/a-{n}"), Pod::of("serve"));
        scene.run("3m 30s");
        if scene.pods_waiting() > 0 {
            scene.finish(&format!("web/a-{n}"));
        }
        scene.run("40m");
    }
    assert!(!scene.told(&["ALARM", "GroupSuspended"]).is_empty());
    end(&scene, "a_group_is_suspended");
}

/// The inventory cannot be read: nothing is bought where it could be bought twice, nothing that runs is touched, and when it can be read
/// again all goes on.
#[test]
fn the_inventory_is_stale() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("10m");
    scene.inventory_works(false);
    scene.run("5m");
    scene.pod("web/b", Pod::of("serve"));
    scene.run("10m");
    assert_eq!((scene.machines(), scene.node_of("web/b").as_str()), (1, ""));
    scene.inventory_works(true);
    scene.run("10m");
    assert!(!scene.node_of("web/b").is_empty());
    end(&scene, "the_inventory_is_stale");
}
