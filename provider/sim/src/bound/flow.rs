//! Minimum-cost flow by successive shortest paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Network. Edges come in pairs: an edge at an even index, its reverse at the next.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    edges: Vec<Edge>,
    /// Edges that leave each node.
    from: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    to: usize,
    room: u32,
    cost: i64,
}

/// Distance of a node that is not reached.
const FAR: i64 = i64::MAX;

impl Flow {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { edges: Vec::new(), from: vec![Vec::new(); nodes] }
    }

    /// Adds an edge with room for `room` units at `cost` each, which is at least zero.
    pub(crate) fn edge(&mut self, from: usize, to: usize, room: u32, cost: i64) {
        for (from, edge) in [(from, Edge { to, room, cost }), (to, Edge { to: from, room: 0, cost: -cost })] {
            if let Some(leaving) = self.from.get_mut(from) {
                leaving.push(self.edges.len());
            }
            self.edges.push(edge);
        }
    }

    /// Least cost of `units` from one node to another, or of as many as there is room for.
    pub(crate) fn cheapest(mut self, source: usize, sink: usize, units: u32) -> i64 {
        // Potential of each node: reduced by it, no edge with room has a negative cost.
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
            let path: Vec<_> = std::iter::successors(came_by[sink], |edge| came_by[self.edges[edge ^ 1].to]).collect();
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

    /// Reduced distance of each node from the source, and the edge that reaches it (Dijkstra).
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
