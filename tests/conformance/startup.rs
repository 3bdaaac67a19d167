//! Options of a group, and the time that a node may take to become Ready.

use stoker_tests::rig::Rig;

use crate::world::{L4, mins, newest, two_groups};

/// A newest autoscaler reads the start-up time from `GetOptions`, where the wire has no field for it: any filled answer makes it nought,
/// each node that joins counts as broken at once, and its pods are bought for again. With ours the flags hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_may_take_its_time_to_be_ready() {
    let mut rig = Rig::start(two_groups(), newest()).await;
    rig.driver = mins(5);
    rig.want("p", &["a", "b"]);
    rig.run(mins(12)).await;
    assert_eq!((rig.running_pods(), rig.asked()), (2, [(L4.to_owned(), 2)].into()));
}
