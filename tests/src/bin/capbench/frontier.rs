//! A picture of cost against waiting: each policy a point.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// A policy in the picture.
pub(crate) struct Point {
    pub(crate) name: String,
    /// 95 % of the pods wait at most so many seconds.
    pub(crate) wait: f64,
    /// Cost over the bound.
    pub(crate) ratio: f64,
    pub(crate) is_default: bool,
}

/// Points of one colour.
pub(crate) struct Series {
    name: &'static str,
    points: Vec<Point>,
}

impl Series {
    pub(crate) const fn new(name: &'static str, points: Vec<Point>) -> Self {
        Self { name, points }
    }
}

const SIZE: (u32, u32) = (900, 560);
const OURS: RGBColor = RGBColor(35, 139, 69);
const OTHERS: RGBColor = RGBColor(189, 189, 189);
const WORDS: RGBColor = RGBColor(82, 82, 82);
const FONT: &str = "sans-serif";

/// Costs beyond this, over the bound, are drawn at the upper edge: the differences that matter are below.
const HIGHEST: f64 = 2.0;

/// An SVG of the series of one demand; Stoker's own come first.
pub(crate) fn draw(title: &str, [ours, others]: &[Series; 2]) -> Result<String> {
    let mut svg = String::new();
    let all = || ours.points.iter().chain(&others.points);
    let most = all().map(|point| point.wait).fold(0.0, f64::max) * 1.05;
    let least = all().map(|point| point.wait).fold(most, f64::min) * 0.9;
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(least..most, 1.0..HIGHEST)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(235, 235, 235))
            .x_desc("seconds that 95 % of the pods wait at most")
            .y_desc("cost over the lower bound")
            .label_style((FONT, 12))
            .draw()
            .map_err(failed)?;
        let shown = |point: &Point| (point.wait, point.ratio.min(HIGHEST));
        for (series, colour) in [(others, OTHERS), (ours, OURS)] {
            let dots = series.points.iter().map(|point| {
                let size = if point.is_default { 7 } else { 4 };
                Circle::new(shown(point), size, colour.filled())
            });
            chart.draw_series(dots).map_err(failed)?.label(series.name).legend(move |at| Circle::new(at, 4, colour.filled()));
            let words = series.points.iter().map(|point| {
                let beyond = if point.ratio > HIGHEST { format!(" ({:.2})", point.ratio) } else { String::new() };
                Text::new(format!("  {}{beyond}", point.name), shown(point), (FONT, 11).into_font().color(&WORDS))
            });
            chart.draw_series(words).map_err(failed)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .border_style(OTHERS)
            .label_font((FONT, 12))
            .draw()
            .map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the picture: {error}")
}
