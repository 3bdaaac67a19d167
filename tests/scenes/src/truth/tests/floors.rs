//! What floors lack.

use jiff::SignedDuration;

use super::{GROUP, pool, sound, tells};
use crate::scene::{Pod, Scene};

/// A pool with a floor of two that has nothing, and what the provider says of it for eleven minutes in which nothing else happens.
fn lacks(policy: &str, said: Option<&str>, world: impl FnOnce(&mut Scene)) -> Scene {
    let mut scene = Scene::new(policy);
    world(&mut scene);
    for _ in 0..12 {
        scene.desk_mut().accounts.floors[0].blocked = said.map(ToOwned::to_owned);
        scene.floors_fill();
        scene.now += SignedDuration::from_mins(1);
    }
    scene
}

fn two() -> String {
    pool("  warmFloor: { nodes: 2 }\n")
}

#[test]
fn a_floor_that_is_not_filled_says_why() {
    let mut scene = lacks(&two(), None, |_| {});
    tells(&mut scene, "the floor of serve has 0 of 2 nodes for 10 min, and nothing says why");
    let none = pool("  warmFloor: { percentOfBusy: 50% }\n");
    sound(&lacks(&none, None, |_| {}));
}

const MARKET: &str =
    "aws/zone-a/g6.xlarge/on-demand: market returned InsufficientCapacity at 08:00:00Z; backing off until 08:03:00Z";
const RECLAIMS: &str = "more than 5 reclaims within an hour in east: no spot is bought there until 09:00:00Z";
const QUOTA: &str = "quota Q in aws/east: 4 of 8 used";
const BUDGET: &str = "limits.maxUsdPerHour: $0.80 of $2 spent";
const NODES: &str = "limits.maxNodes: 2 of 10 nodes in use";
const ILL: &str = "1 node is unhealthy, cordoned, or silent for less than 10 min, and is not replaced while it stays so";
const LOST: &str = "3 nodes no longer report, and at most 2 of them are replaced";
const LATE: &str = "1 node is Ready and not warm yet: its GPUs have not been read yet";
const BOOTS: &str = "scale-up paused: Cluster Autoscaler may not know that 1 node is still booting";

/// Whatever the provider says of a world in which it is not so explains nothing.
#[test]
fn a_false_reason_explains_nothing() {
    let policy = two().replace("maxNodes: 10", "maxNodes: 10, maxUsdPerHour: 9")
        + "quotas: [{ name: Q, cloud: aws, region: east, capacityTypes: [on-demand], vcpus: 64 }]\n";
    for said in [MARKET, RECLAIMS, QUOTA, BUDGET, NODES, ILL, LOST, LATE, BOOTS, "no node group of the pool can grow"] {
        let mut scene = lacks(&policy, Some(said), |_| {});
        tells(&mut scene, &format!("for 10 min, and this explains nothing: {said}"));
    }
}

/// And what is so explains it.
#[test]
fn a_true_reason_explains_it() {
    sound(&lacks(&two(), Some(MARKET), |scene| scene.sell_out("zone-a")));
    let sold_out_once = |jump: Option<&'static str>| {
        move |scene: &mut Scene| {
            scene.sell_out("zone-a");
            scene.pod("web/a", Pod::of("serve"));
            scene.run("1m");
            scene.restock("zone-a");
            scene.finish("web/a");
            scene.now += SignedDuration::from_mins(40);
            if let Some(by) = jump {
                scene.clock_jumps(by);
            }
            scene.now += SignedDuration::from_mins(40);
        }
    };
    // Whatever the wall shows meanwhile.
    for jump in [None, Some("30m"), Some("-30m")] {
        let mut scene = lacks(&two(), Some(MARKET), sold_out_once(jump));
        tells(&mut scene, "this explains nothing: aws/zone-a");
    }
    // A market of another pool is none of its own.
    let mut scene = lacks(&two(), Some(MARKET), |scene| scene.sell_out("zone-b"));
    tells(&mut scene, "this explains nothing: aws/zone-a");
    let two_zones = two().replace("[zone-a]", "[zone-a, zone-b]");
    let mut scene = lacks(&two_zones, Some(MARKET), |scene| scene.sell_out("zone-a"));
    tells(&mut scene, "this explains nothing: aws/zone-a");

    let most = two().replace("maxNodes: 10", "minNodes: 1, maxNodes: 1").replace("nodes: 2", "nodes: 1");
    let worked = |scene: &mut Scene| {
        scene.pod("web/a", Pod::of("serve"));
        scene.run("6m");
    };
    sound(&lacks(&most, Some("limits.maxNodes: 1 of 1 nodes in use"), worked));
    let dear = two().replace("maxNodes: 10", "maxNodes: 10, maxUsdPerHour: 1.7");
    sound(&lacks(&dear, Some("limits.maxUsdPerHour: $1.60 of $1.70 spent"), worked));
    let quota = "quotas: [{ name: on-demand, cloud: aws, region: east, capacityTypes: [on-demand], vcpus: 8 }]\n";
    sound(&lacks(&(two() + quota), Some("quota on-demand in aws/east: 8 of 8 used"), worked));

    let boots = |scene: &mut Scene| {
        scene.boots_in("1h");
        scene.run("1m");
    };
    sound(&lacks(&two(), Some(BOOTS), boots));
    // The pod has the only node.
    let sick = |scene: &mut Scene| {
        worked(scene);
        scene.loses_gpu("n0", 0);
    };
    sound(&lacks(&most, Some(LATE), sick));
    let closed = |scene: &mut Scene| {
        worked(scene);
        scene.users_cordon("n0", true);
    };
    let mut scene = lacks(&most, Some(LATE), closed);
    tells(&mut scene, "this explains nothing: 1 node is Ready and not warm yet");
    for said in [ILL, LOST] {
        sound(&lacks(&most, Some(said), closed));
        tells(&mut lacks(&most, Some(said), worked), "this explains nothing");
        let silent = |scene: &mut Scene| {
            worked(scene);
            scene.ready("n0", false);
            scene.run("1s");
        };
        sound(&lacks(&most, Some(said), silent));
    }
}

/// What is asked for through buffers waits as long as the autoscaler leaves its groups alone; what is asked for by `minSize` we grow ourselves.
#[test]
fn only_buffers_wait_for_an_autoscaler_that_leaves_their_groups_alone() {
    for (through, minutes, waits) in [("capacityBuffer", 30, true), ("capacityBuffer", 0, false), ("minSize", 30, false)] {
        let policy = pool(&format!("  warmFloor: {{ nodes: 2, mechanism: {through} }}\n"));
        let mut scene = lacks(&policy, None, |scene| {
            scene.serves_buffers();
            let until = scene.now + SignedDuration::from_mins(minutes);
            scene.truth.left_alone.insert(GROUP.to_owned(), until);
        });
        if waits { sound(&scene) } else { tells(&mut scene, "and nothing says why") }
    }
}

/// While nothing can be bought, or nobody can tell what there is, its time does not pass.
#[test]
fn no_time_passes_for_a_floor_while_the_world_is_out_of_order() {
    type Happens = fn(&mut Scene);
    let faults: [Happens; 5] = [
        |scene| scene.desk_mut().faults.stale = true,
        |scene| scene.desk_mut().faults.unclear = true,
        |scene| scene.desk_mut().faults.unheard = true,
        |scene| scene.desk_mut().faults.down = true,
        |scene| scene.scans = false,
    ];
    for fault in faults {
        sound(&lacks(&two(), None, fault));
    }
}
