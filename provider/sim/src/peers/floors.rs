//! Free GPUs that are held ready.

use super::run::Run;

impl Run<'_> {
    fn free_gpus(&self, kind: usize) -> u32 {
        let of_kind = self.fleet.live.iter().map(|node| &self.fleet.nodes[*node]).filter(|node| node.kind == kind);
        of_kind.map(|node| node.free.gpus).sum()
    }

    /// Buys what the floors lack.
    pub(super) fn hold_floors(&mut self, now: f64) {
        for (kind, gpus) in self.floors.clone() {
            let mut free = self.free_gpus(kind);
            let more = self.jobs.sold[kind].room.gpus;
            while free < gpus && more > 0 {
                self.buy(kind, now);
                free += more;
            }
        }
    }

    /// Whether a floor would lack GPUs without an empty node of the type.
    pub(super) fn floor_needs(&self, kind: usize) -> bool {
        let floor = self.floors.iter().find(|(of, _)| *of == kind);
        floor.is_some_and(|(_, gpus)| self.free_gpus(kind) < gpus + self.jobs.sold[kind].room.gpus)
    }
}
