//! A picture of what was played: over time the demand, the nodes by type and way of buying, and what they cost.

use std::collections::{BTreeMap, BTreeSet};

use plotters::coord::Shift;
use plotters::prelude::*;
use stoker_core::market::offer::CapacityType;
use stoker_sim::simulate::outcome::Outcome;
use stoker_sim::simulate::work::Sample;

use crate::cli::not_drawn::NotDrawn;

/// Sizes in pixels.
const COLUMN: u32 = 620;
const LEGEND: u32 = 230;
const PANEL: u32 = 230;
const HEAD: u32 = 44;
const FONT: &str = "sans-serif";

const DEMAND: RGBColor = RGBColor(189, 189, 189);
const WAITING: RGBColor = RGBColor(222, 45, 38);
const BOUGHT: RGBColor = RGBColor(37, 37, 37);
const MONEY: RGBColor = RGBColor(117, 107, 177);
/// Shades of each way of buying, which instance types take in turn.
const RESERVED: [RGBColor; 4] = [RGBColor(35, 139, 69), RGBColor(116, 196, 118), RGBColor(0, 90, 50), RGBColor(186, 228, 179)];
const ON_DEMAND: [RGBColor; 5] =
    [RGBColor(49, 130, 189), RGBColor(158, 202, 225), RGBColor(8, 48, 107), RGBColor(107, 174, 214), RGBColor(198, 219, 239)];
const SPOT: [RGBColor; 5] =
    [RGBColor(230, 85, 13), RGBColor(253, 190, 133), RGBColor(140, 45, 4), RGBColor(253, 141, 60), RGBColor(254, 217, 118)];

/// What a policy made of the demand.
#[derive(Debug)]
pub(super) struct Column<'a> {
    /// What the policy is called.
    pub(super) name: &'a str,
    pub(super) outcome: &'a Outcome,
    /// GPUs of a node of each instance type.
    pub(super) gpus: BTreeMap<String, u32>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A kind of nodes: the way of buying and the instance type.
type Key<'a> = (CapacityType, &'a str);

/// An SVG of the policies next to each other, on the same axes.
pub(super) fn draw(columns: &[Column<'_>], seed: u64) -> Result<String, NotDrawn> {
    let width = COLUMN * u32::try_from(columns.len()).unwrap_or(1) + LEGEND;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, HEAD + 3 * PANEL)).into_drawing_area();
        root.fill(&WHITE)?;
        let (body, legend) = root.split_horizontally(width - LEGEND);
        let scale = Scale::of(columns);
        let colours = colours(columns);
        for (column, area) in columns.iter().zip(body.split_evenly((1, columns.len()))) {
            draw_column(column, seed, &area, &scale, &colours)?;
        }
        draw_legend(&legend, &colours)?;
        root.present()?;
    }
    Ok(svg)
}

/// What all columns share: their axes.
struct Scale {
    /// Length of the axis of time, and seconds of its unit.
    until: f64,
    unit: f64,
    unit_name: &'static str,
    gpus: f64,
    nodes: f64,
    dollars: f64,
}

impl Scale {
    fn of(columns: &[Column<'_>]) -> Self {
        let seconds = columns.iter().map(|column| number(column.outcome.seconds)).fold(1.0, f64::max);
        let (unit, unit_name) = if seconds > 2.5 * 86_400.0 { (86_400.0, "days") } else { (3_600.0, "hours") };
        let most = |of: &dyn Fn(&Column<'_>, &Sample) -> f64| {
            let values = columns.iter().flat_map(|column| column.outcome.samples.iter().map(|sample| of(column, sample)));
            // Room above the highest value.
            values.fold(1.0, f64::max) * 1.08
        };
        Self {
            until: seconds / unit,
            unit,
            unit_name,
            gpus: most(&|column, sample| f64::from(sample.demand_gpus.max(column.gpus(sample)))),
            nodes: most(&|_, sample| f64::from(sample.nodes.values().sum::<u32>())),
            dollars: most(&|_, sample| number(sample.hourly.0) / 1e6),
        }
    }
}

impl Column<'_> {
    fn key(&self, (of, bought): &(usize, CapacityType)) -> Option<Key<'_>> {
        Some((*bought, self.outcome.types.get(*of)?.as_str()))
    }

    /// GPUs of the nodes.
    fn gpus(&self, sample: &Sample) -> u32 {
        let of = |(key, nodes): (&(usize, CapacityType), &u32)| {
            let (_, name) = self.key(key)?;
            Some(nodes * self.gpus.get(name)?)
        };
        sample.nodes.iter().filter_map(of).sum()
    }

    /// A value over time, in steps: it holds from one sample to the next.
    fn steps(&self, scale: &Scale, of: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for sample in &self.outcome.samples {
            let (at, value) = (number(sample.at) / scale.unit, of(sample));
            let before = points.last().map(|(_, before)| *before);
            if before.is_none_or(|before| before.to_bits() != value.to_bits()) {
                points.extend(before.map(|before| (at, before)));
                points.push((at, value));
            }
        }
        points.extend(points.last().map(|(_, last)| (number(self.outcome.seconds) / scale.unit, *last)));
        points
    }
}

/// A colour for each kind of nodes that any policy had, in the order of the layers from the bottom.
fn colours<'a>(columns: &'a [Column<'_>]) -> Vec<(Key<'a>, RGBColor)> {
    let had = columns.iter().flat_map(|column| {
        let keys = column.outcome.samples.iter().flat_map(|sample| sample.nodes.keys());
        keys.filter_map(|key| column.key(key)).collect::<BTreeSet<_>>()
    });
    let had: BTreeSet<(u8, Key<'_>)> = had.map(|key| (order(key.0), key)).collect();
    let mut used: BTreeMap<u8, usize> = BTreeMap::new();
    let colour = |(order, key): (u8, Key<'a>)| {
        let shades: &[RGBColor] = match key.0 {
            CapacityType::Reserved => &RESERVED,
            CapacityType::OnDemand => &ON_DEMAND,
            CapacityType::Spot => &SPOT,
        };
        let n = used.entry(order).or_default();
        let shade = shades.get(*n % shades.len()).copied().unwrap_or(BLACK);
        *n += 1;
        (key, shade)
    };
    had.into_iter().map(colour).collect()
}

const fn order(of: CapacityType) -> u8 {
    match of {
        CapacityType::Reserved => 0,
        CapacityType::OnDemand => 1,
        CapacityType::Spot => 2,
    }
}

/// A layer of a panel: steps that are filled down to zero, or a line.
struct Layer {
    points: Vec<(f64, f64)>,
    colour: RGBColor,
    filled: bool,
}

fn draw_column(
    column: &Column<'_>,
    seed: u64,
    area: &Area<'_>,
    scale: &Scale,
    colours: &[(Key<'_>, RGBColor)],
) -> Result<(), NotDrawn> {
    let (head, body) = area.split_vertically(HEAD);
    let title = format!("{}: {} with seed {seed}", column.name, column.outcome.total());
    head.draw(&Text::new(title, (64, 16), (FONT, 20)))?;
    let [gpus, nodes, dollars] = body.split_evenly((3, 1)).try_into().map_err(|_| NotDrawn("no three panels".into()))?;

    let layers = [
        Layer { points: column.steps(scale, |sample| f64::from(sample.demand_gpus)), colour: DEMAND, filled: true },
        Layer { points: column.steps(scale, |sample| f64::from(sample.waiting_gpus)), colour: WAITING, filled: true },
        Layer { points: column.steps(scale, |sample| f64::from(column.gpus(sample))), colour: BOUGHT, filled: false },
    ];
    panel(&gpus, "GPUs", scale, scale.gpus, &layers)?;

    // From the top of the stack down: each layer covers what is above the next.
    let layers: Vec<Layer> = (0..colours.len())
        .rev()
        .filter_map(|top| {
            let below: BTreeSet<Key<'_>> = colours.get(..=top)?.iter().map(|(key, _)| *key).collect();
            let there = |sample: &Sample| -> u32 {
                let counted = sample.nodes.iter().filter(|(key, _)| column.key(key).is_some_and(|key| below.contains(&key)));
                counted.map(|(_, nodes)| *nodes).sum()
            };
            Some(Layer {
                points: column.steps(scale, |sample| f64::from(there(sample))),
                colour: colours.get(top)?.1,
                filled: true,
            })
        })
        .collect();
    panel(&nodes, "nodes", scale, scale.nodes, &layers)?;

    let hourly = column.steps(scale, |sample| number(sample.hourly.0) / 1e6);
    panel(&dollars, "$ per hour", scale, scale.dollars, &[Layer { points: hourly, colour: MONEY, filled: true }])
}

fn panel(area: &Area<'_>, what: &str, scale: &Scale, most: f64, layers: &[Layer]) -> Result<(), NotDrawn> {
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(14)
        .margin_top(6)
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..scale.until, 0.0..most)?;
    for Layer { points, colour, filled } in layers {
        if *filled {
            chart.draw_series(AreaSeries::new(points.iter().copied(), 0.0, colour.filled()))?;
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(1)))?;
        }
    }
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(9)
        .y_labels(5)
        .x_label_formatter(&|at| format!("{at:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .x_desc(scale.unit_name)
        .y_desc(what)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    Ok(())
}

/// Which colour means what, next to the panel that it is of.
fn draw_legend(area: &Area<'_>, colours: &[(Key<'_>, RGBColor)]) -> Result<(), NotDrawn> {
    let top = |panel: u32| i32::try_from(HEAD + panel * PANEL).unwrap_or(0) + 8;
    let rows = [("GPUs requested", DEMAND), ("of them waiting", WAITING), ("GPUs of nodes", BOUGHT)];
    for (n, (what, colour)) in rows.into_iter().enumerate() {
        row(area, top(0), n, what, colour)?;
    }
    // As they are stacked: the topmost first.
    for (n, ((bought, name), colour)) in colours.iter().rev().enumerate() {
        row(area, top(1), n, &format!("{name} {}", bought.as_str()), *colour)?;
    }
    Ok(())
}

fn row(area: &Area<'_>, top: i32, n: usize, what: &str, colour: RGBColor) -> Result<(), NotDrawn> {
    let y = top + i32::try_from(n).unwrap_or(0) * 20;
    area.draw(&Rectangle::new([(4, y), (16, y + 12)], colour.filled()))?;
    area.draw(&Text::new(what, (22, y), (FONT, 14)))?;
    Ok(())
}

fn number(whole: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "seconds and micro-dollars here are far below 2^53")]
    let number = whole as f64;
    number
}
