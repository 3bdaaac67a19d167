//! What nodes leave to pods against what templates promise.

use super::world::{GROUP_A, GROUP_B, World, minutes};
use crate::base::ids::{NodeName, RecordId};
use crate::base::units::MiB;
use crate::catalogue::template::Resources;
use crate::facts::snapshot::Allocatable;

fn promised(world: &World, group: &str) -> Resources {
    let group = &world.catalogue.groups[&World::group(group)];
    world.memory.corrected_template(group).map_or(group.template.allocatable, |template| template.allocatable)
}

/// What a node has that is as its template says.
fn as_promised(world: &World) -> Allocatable {
    world.catalogue.groups[&World::group(GROUP_A)].template.allocatable.without_gpus()
}

/// One more node comes, and leaves so much to pods.
fn node_with(world: &mut World, has: Allocatable) -> Vec<String> {
    world.increase(GROUP_A, 1);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.advance(minutes(5));
    world.observe();
    let before = world.nodes();
    world.join_new();
    for name in world.nodes().keys().filter(|name| !before.contains_key(*name)) {
        world.edit_node(&NodeName::new(name.as_str()).unwrap(), |node| node.allocatable = Some(has));
    }
    world.pass().notes.iter().map(ToString::to_string).collect()
}

#[test]
fn a_node_that_has_less_is_an_alarm_and_corrects_groups_of_its_type() {
    let mut world = World::new();
    let whole = as_promised(&world);
    let has = Allocatable { memory: MiB(whole.memory.0 - 300), pods: 29, ..whole };
    let told = node_with(&mut world, has);
    assert_eq!(told.len(), 1, "{told:?}");
    let lacks = format!("memory {}Mi instead of {}Mi, pods 29 instead of {}", has.memory.0, whole.memory.0, whole.pods);
    assert!(told[0].contains("node-0 leaves less to pods") && told[0].contains(&lacks), "{told:?}");
    // The other zone's group promises no more either, and GPUs stay as they are.
    for group in [GROUP_A, GROUP_B] {
        let promised = promised(&world, group);
        assert_eq!((promised.memory, promised.pods, promised.milli_cpu), (has.memory, 29, whole.milli_cpu));
    }
    assert_eq!(promised(&world, GROUP_A).gpus, 1);
    // What nodes are made with stays: else they would be made with ever more reserved.
    assert_eq!(world.catalogue.groups[&World::group(GROUP_A)].template.allocatable.memory, whole.memory);
    // Another of the same size is no news.
    assert_eq!(node_with(&mut world, has), [""; 0]);
    // With one that has all of it the template is right again.
    assert_eq!(node_with(&mut world, Allocatable { milli_cpu: whole.milli_cpu + 100, ..whole }), [""; 0]);
    assert_eq!(promised(&world, GROUP_A).memory, whole.memory);
}

#[test]
fn a_node_that_has_not_said_is_no_alarm() {
    let mut world = World::with_node(GROUP_A, true);
    world.pass();
    assert!(world.memory.shortfalls.is_empty() && world.memory.records.contains_key(&RecordId(0)));
}
