//! A flow of least cost, by successive shortest paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A network. Edges come in pairs: one at an even place, and at the next its way back.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    edges: Vec<Edge>,
    /// The edges that leave each node.
    from: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    to: usize,
    room: u32,
    cost: i64,
}

/// The cost of a node that was not reached.
const FAR: i64 = i64::MAX;

impl Flow {
    pub(super) fn new(nodes: usize) -> Self {
        Self { edges: Vec::new(), from: vec![Vec::new(); nodes] }
    }

    /// An edge with room for so many units, each at that cost, which is not below nought.
    pub(super) fn edge(&mut self, from: usize, to: usize, room: u32, cost: i64) {
        for (from, edge) in [(from, Edge { to, room, cost }), (to, Edge { to: from, room: 0, cost: -cost })] {
            if let Some(disruption) = self.from.get_mut(from) {
                disruption.push(self.edges.len());
            }
            self.edges.push(edge);
        }
    }

    /// The least cost of so many units from one node to another; of as many as there is room for, if fewer.
    pub(super) fn cheapest(mut self, source: usize, sink: usize, units: u32) -> i64 {
        // What a node costs already: with it taken off, no edge with room has a cost below nought.
        let mut paid = vec![0_i64; self.from.len()];
        let (mut left, mut total) = (units, 0);
        while left > 0 {
            let (cost, came_by) = self.distances(source, &paid);
            if cost[sink] == FAR {
                break;
            }
            for (paid, cost) in paid.iter_mut().zip(&cost).filter(|(_, cost)| **cost < FAR) {
                *paid += cost;
            }
            let path: Vec<usize> = std::iter::successors(came_by[sink], |edge| came_by[self.edges[edge ^ 1].to]).collect();
            let room = path.iter().map(|edge| self.edges[*edge].room).fold(left, u32::min);
            for edge in path {
                self.edges[edge].room -= room;
                self.edges[edge ^ 1].room += room;
                total += self.edges[edge].cost * i64::from(room);
            }
            left -= room;
        }
        total
    }

    /// What each node costs from the source on, beyond what was paid, and the edge by which it is reached: Dijkstra.
    fn distances(&self, source: usize, paid: &[i64]) -> (Vec<i64>, Vec<Option<usize>>) {
        let mut cost = vec![FAR; self.from.len()];
        let mut came_by = vec![None; self.from.len()];
        let mut next = BinaryHeap::from([(Reverse(0), source)]);
        cost[source] = 0;
        while let Some((Reverse(so_far), node)) = next.pop() {
            if so_far > cost[node] {
                continue;
            }
            for &at in &self.from[node] {
                let edge = self.edges[at];
                let there = so_far + edge.cost + paid[node] - paid[edge.to];
                if edge.room > 0 && there < cost[edge.to] {
                    cost[edge.to] = there;
                    came_by[edge.to] = Some(at);
                    next.push((Reverse(there), edge.to));
                }
            }
        }
        (cost, came_by)
    }
}
