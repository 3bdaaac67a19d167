//! What callers share: so much overall, and at most so much for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Addresses after which those are forgotten that hold nothing.
const FORGET_AT: usize = 1024;

/// Something scarce that callers wait for in turn. An address waits for what it holds itself before
/// it waits for the others, so that one with many requests delays another by one turn only.
#[derive(Debug)]
pub struct SharedByAddress {
    overall: Arc<Semaphore>,
    each: usize,
    by_address: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// A part of it, given back when dropped.
#[derive(Debug)]
pub struct Share {
    /// Always there: the semaphores are never closed.
    _overall: Option<OwnedSemaphorePermit>,
    _own: Option<OwnedSemaphorePermit>,
}

impl SharedByAddress {
    /// So much overall, and so much for each address.
    pub fn new(overall: usize, each: usize) -> Self {
        Self { overall: Arc::new(Semaphore::new(overall)), each: each.min(overall), by_address: Mutex::default() }
    }

    /// Waits for so much of it; for all that an address may have where that is less. Cancel safe.
    pub async fn acquire(&self, address: IpAddr, amount: usize) -> Share {
        let amount = u32::try_from(amount.min(self.each)).unwrap_or(u32::MAX);
        let own = self.of(address.to_canonical()).acquire_many_owned(amount).await.ok();
        let overall = Arc::clone(&self.overall).acquire_many_owned(amount).await.ok();
        Share { _overall: overall, _own: own }
    }

    /// How much an address may have.
    pub const fn each(&self) -> usize {
        self.each
    }

    fn of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_address.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        if by_address.len() >= FORGET_AT {
            by_address.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.each));
        by_address.insert(address, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    async fn waits(shared: &SharedByAddress, address: IpAddr, amount: usize) -> bool {
        timeout(Duration::from_secs(1), shared.acquire(address, amount)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_has_its_part_leaves_the_rest_to_others() {
        let shared = SharedByAddress::new(4, 2);
        let held = [shared.acquire(A, 1).await, shared.acquire(A, 1).await];
        assert!(waits(&shared, A, 1).await);
        assert!(!waits(&shared, B, 2).await);
        drop(held);
        // More than there is for one is all that there is for one.
        let _all = shared.acquire(A, 100).await;
        assert!(waits(&shared, A, 1).await && !waits(&shared, B, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_of_one_address_delay_another_by_one_turn() {
        let shared = Arc::new(SharedByAddress::new(1, 1));
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..10 {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                let _share = shared.acquire(if n == 9 { B } else { A }, 1).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                n
            });
            tokio::task::yield_now().await;
        }
        let mut ended = Vec::new();
        while let Some(n) = tasks.join_next().await {
            ended.push(n.unwrap());
        }
        assert!(ended.iter().position(|n| *n == 9).unwrap() <= 1, "{ended:?}");
    }

    #[tokio::test]
    async fn addresses_that_hold_nothing_are_forgotten() {
        let shared = SharedByAddress::new(4, 2);
        for n in 0..100_000_u32 {
            drop(shared.acquire(IpAddr::V4(n.into()), 1).await);
        }
        assert!(shared.by_address.lock().unwrap().len() <= FORGET_AT);
    }
}
