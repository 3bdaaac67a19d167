//! Bound on the cost rate of a set of running pods, and the linear program that finds a good one.

use super::Cuts;
use super::shapes::{Running, Shape, Sizes};
use crate::bound::linear::{Column, Program, Solver, Unsolved};

/// Capacity and price of an instance type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Node {
    pub(super) capacity: Sizes,
    /// Dollars per hour.
    pub(super) price: f64,
}

/// An instance type as the program of one slot sees it.
#[derive(Debug)]
struct Row {
    node: Node,
    /// Which of the running shapes fit it.
    fits: Vec<bool>,
    /// Distinct measures of the running shapes on this type, by shape. A shape that does not fit measures infinity.
    measures: Vec<Vec<f64>>,
}

/// Feasible dual of the packing: what each dollar of a type's price pays for.
struct Dual {
    /// Dollars of each row's price that each of its measures gets.
    by_measure: Vec<Vec<f64>>,
    /// Dollars for the presence of each running shape.
    by_presence: Vec<f64>,
}

/// Dollars per hour that no fleet for these pods can stay under.
pub(super) fn hourly(
    nodes: &[Node],
    shapes: &[Shape],
    running: &[Running],
    cuts: &Cuts,
    solver: Solver,
) -> Result<f64, Unsolved> {
    let with_shape = running.iter().filter_map(|run| Some((shapes.get(run.shape)?, *run)));
    let running: Vec<(&Shape, Running)> = with_shape.collect();
    if running.is_empty() {
        return Ok(0.0);
    }
    let rows = rows(nodes, &running, cuts);
    let dual = best(&rows, &running, cuts, solver)?;
    Ok(value(&rows, &running, &dual))
}

/// Value of the function `u_k` of Fekete and Schepers at `size / capacity`. `k` = 0 is the identity.
///
/// Over all pods on one node, the sum of every such function is at most one.
fn measure(size: u64, capacity: u64, k: u32) -> f64 {
    if size == 0 {
        return 0.0;
    }
    let steps = u64::from(k + 1) * size;
    if k == 0 || steps.is_multiple_of(capacity) {
        return ratio(size, capacity);
    }
    ratio(steps / capacity, k.into())
}

fn ratio(one: u64, other: u64) -> f64 {
    let float = |n: u64| u32::try_from(n).map_or(f64::INFINITY, f64::from);
    float(one) / float(other)
}

fn rows(nodes: &[Node], running: &[(&Shape, Running)], cuts: &Cuts) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let fits: Vec<bool> = running.iter().map(|(shape, _)| shape.types.contains(&index)).collect();
        if fits.contains(&true) {
            let mut row = Row { node: *node, fits, measures: Vec::new() };
            for resource in 0..3 {
                for k in std::iter::once(0).chain(cuts.functions.iter().copied()) {
                    row.add(running, resource, k);
                }
            }
            if !rows.iter().any(|other| row.follows_from(other)) {
                rows.retain(|other| !other.follows_from(&row));
                rows.push(row);
            }
        }
    }
    rows
}

impl Row {
    /// Adds a measure, unless another one is nowhere smaller.
    fn add(&mut self, running: &[(&Shape, Running)], resource: usize, k: u32) {
        let of = |sizes: &Sizes| sizes.get(resource).copied().unwrap_or(0);
        let capacity = of(&self.node.capacity).max(1);
        let measured = running.iter().zip(&self.fits).map(|((shape, _), fits)| match fits {
            true => measure(of(&shape.size), capacity, k),
            false => f64::INFINITY,
        });
        let measured: Vec<f64> = measured.collect();
        if !self.measures.iter().any(|other| covers(other, &measured)) {
            self.measures.retain(|other| !covers(&measured, other));
            self.measures.push(measured);
        }
    }

    /// Whether every dual that is feasible for `other` is feasible here: no shape fits this type alone, this type
    /// costs no less, and what pays there pays as much here.
    fn follows_from(&self, other: &Self) -> bool {
        let subset = self.fits.iter().zip(&other.fits).all(|(here, there)| !here || *there);
        subset && self.node.price >= other.node.price && {
            let paid = |there: &Vec<f64>| self.measures.iter().any(|here| covers(here, there));
            other.measures.iter().all(paid)
        }
    }
}

fn covers(one: &[f64], other: &[f64]) -> bool {
    one.iter().zip(other).all(|(one, other)| one >= other)
}

/// The dual that bounds these pods best.
///
/// It maximises the sum of mean × value over the shapes, plus presence × dollars for presence. On each type that fits
/// it, a shape's value is at most the dollars of the type's measures times what it measures. The dollars of a type's
/// measures and those for the presence of the shapes that fit it are at most its price.
fn best(rows: &[Row], running: &[(&Shape, Running)], cuts: &Cuts, solver: Solver) -> Result<Dual, Unsolved> {
    let mut program = Program::default();
    let values: Vec<Column> = running.iter().map(|(_, run)| program.column(run.mean, f64::INFINITY)).collect();
    let presence = running.iter().filter(|_| cuts.integrality);
    let presence: Vec<Column> = presence.map(|(_, run)| program.column(run.present, f64::INFINITY)).collect();
    let mut by_measure = Vec::new();
    for row in rows {
        let dollars: Vec<Column> = row.measures.iter().map(|_| program.column(0.0, row.node.price)).collect();
        let there = presence.iter().zip(&row.fits).filter(|(_, fits)| **fits).map(|(column, _)| column);
        program.at_most(dollars.iter().chain(there).map(|column| (*column, 1.0)).collect(), row.node.price);
        for (at, (value, _)) in values.iter().zip(&row.fits).enumerate().filter(|(_, (_, fits))| **fits) {
            let paid = dollars.iter().zip(&row.measures);
            let paid = paid.filter_map(|(dollar, measure)| Some((*dollar, -measure.get(at)?)));
            let paid = paid.filter(|(_, measure)| *measure < 0.0);
            program.at_most(std::iter::once((*value, 1.0)).chain(paid).collect(), 0.0);
        }
        by_measure.push(dollars);
    }
    let found = program.solve(solver)?;
    let read = |columns: &[Column]| columns.iter().map(|column| found.value(*column).max(0.0)).collect::<Vec<_>>();
    let by_presence = if cuts.integrality { read(&presence) } else { vec![0.0; running.len()] };
    Ok(Dual { by_measure: by_measure.iter().map(|dollars| read(dollars)).collect(), by_presence })
}

/// Bound that a dual proves. It holds for any dual: one that spends more than a type's price is scaled down to it, so
/// the bound does not depend on the solver's tolerance.
fn value(rows: &[Row], running: &[(&Shape, Running)], dual: &Dual) -> f64 {
    let spent = rows.iter().zip(&dual.by_measure).map(|(row, dollars)| {
        let there = dual.by_presence.iter().zip(&row.fits).filter(|(_, fits)| **fits).map(|(dollars, _)| dollars);
        dollars.iter().chain(there).sum::<f64>() / row.node.price
    });
    let scale = 1.0 / spent.fold(1.0, f64::max);
    let of = |at: usize| {
        let on = |(row, dollars): (&Row, &Vec<f64>)| {
            let paid = row.measures.iter().zip(dollars);
            let paid = paid.filter_map(|(measure, dollars)| Some(measure.get(at)? * dollars));
            row.fits.get(at).copied().unwrap_or(false).then(|| paid.sum::<f64>())
        };
        rows.iter().zip(&dual.by_measure).filter_map(on).fold(f64::INFINITY, f64::min)
    };
    let total = running.iter().zip(&dual.by_presence).enumerate();
    scale * total.map(|(at, ((_, run), presence))| run.mean * of(at) + run.present * presence).sum::<f64>()
}
