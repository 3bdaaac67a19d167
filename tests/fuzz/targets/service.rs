//! A whole service with a simulated supplier, on a clock that stands.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use jiff::SignedDuration;
use stoker_tests::harness::{Service, Setup};
use stoker_tests::policy::{Pool, policy};
use tokio::runtime::Runtime;

/// Its groups: two pools with one each.
pub(crate) const GROUPS: [&str; 2] = ["p.g6-xlarge.us-east-1a", "q.g5-xlarge.us-east-1b"];

/// A service, and the runtime that it runs on.
pub(crate) struct Running {
    pub(crate) runtime: Runtime,
    pub(crate) service: Service,
}

/// The service of this process, which inputs use one after the other.
pub(crate) fn running() -> MutexGuard<'static, Running> {
    static RUNNING: LazyLock<Mutex<Running>> = LazyLock::new(|| Mutex::new(start()));
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() -> Running {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let pools = [Pool::new("p"), Pool { models: "A10G", zones: "us-east-1b", ..Pool::new("q") }];
    let service = runtime.block_on(async {
        let service = Setup::new(policy(&pools)).start().await;
        service.client().refresh().await.expect("a session");
        // One node that runs, and one that boots.
        service.client().increase(GROUPS[0], 1).await.expect("an order");
        service.pass(SignedDuration::from_mins(5)).await;
        service.client().increase(GROUPS[0], 1).await.expect("an order");
        service.settle().await;
        service
    });
    Running { runtime, service }
}
