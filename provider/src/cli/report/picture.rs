//! Pictures of the report: what each day cost, and what nodes did. Names of the user are in neither.

use plotters::prelude::*;
use stoker_core::market::offer::CapacityType;

use super::figures::Report;
use super::table::hours;
use crate::cli::not_drawn::NotDrawn;

/// Sizes in pixels: so narrow that text is not too small on a telephone.
pub(super) const WIDTH: u32 = 400;
const HEIGHT: u32 = 220;
/// A bar of hours, with the room around it.
const ROW: u32 = 30;
const FONT: &str = "sans-serif";

/// Colours that are told apart on white and on black, and by who sees no red or green.
const COLOURS: [(Option<CapacityType>, RGBColor); 4] = [
    (Some(CapacityType::Reserved), RGBColor(0, 158, 115)),
    (Some(CapacityType::OnDemand), RGBColor(46, 134, 193)),
    (Some(CapacityType::Spot), RGBColor(230, 140, 0)),
    (None, RGBColor(204, 97, 150)),
];
const HOURS: RGBColor = RGBColor(46, 134, 193);

/// A picture.
pub(super) struct Picture {
    /// What it shows, in words.
    pub(super) title: String,
    pub(super) height: u32,
    pub(super) svg: String,
    /// What its colours mean.
    pub(super) key: Vec<(&'static str, String)>,
}

const fn name(of: Option<CapacityType>) -> &'static str {
    match of {
        Some(bought) => bought.as_str(),
        None => "unused commitments",
    }
}

/// What each day cost with commitments, by how nodes were bought, one on top of the other.
pub(super) fn days(report: &Report) -> Result<Picture, NotDrawn> {
    let days = &report.by_day;
    let most = days.iter().map(|day| dollars(day.effective.micro_usd)).fold(0.01, f64::max) * 1.08;
    let end = f64::from(u32::try_from(days.len()).unwrap_or(u32::MAX)).max(1.0);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(24)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..end, 0.0..most)?;
        // A day's name stands where it begins.
        let label = |at: &f64| {
            let day = days.iter().zip(0_u32..).find(|(_, number)| (f64::from(*number) - at).abs() < 0.01);
            day.map_or_else(String::new, |(day, _)| day.day.strftime("%b %-d").to_string())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.25))
            .x_labels(6)
            .y_labels(5)
            .x_label_formatter(&label)
            .y_label_formatter(&|value| match most {
                ..10.0 => format!("${value:.2}"),
                ..10_000.0 => format!("${value:.0}"),
                _ => format!("${:.0}k", value / 1_000.0),
            })
            .label_style((FONT, 14))
            .draw()?;
        for (day, number) in days.iter().zip(0_u32..) {
            let (left, mut top) = (f64::from(number), 0.0);
            for (bought, colour) in COLOURS {
                let part = day.by_capacity.iter().find(|part| part.capacity_type == bought);
                let height = part.map_or(0.0, |part| dollars(part.effective.micro_usd));
                if height > 0.0 {
                    let bar = [(left + 0.1, top), (left + 0.9, top + height)];
                    chart.draw_series([Rectangle::new(bar, colour.filled())])?;
                    top += height;
                }
            }
        }
        root.present()?;
    }
    let is_there = |bought| days.iter().any(|day| day.by_capacity.iter().any(|part| part.capacity_type == bought));
    let key = COLOURS.into_iter().filter(|(bought, _)| is_there(*bought)).map(|(bought, colour)| {
        let RGBColor(red, green, blue) = colour;
        (name(bought), format!("#{red:02x}{green:02x}{blue:02x}"))
    });
    let highest = days.iter().max_by_key(|day| (day.effective.micro_usd, std::cmp::Reverse(day.day)));
    let highest = highest.map_or_else(String::new, |day| format!("; most on {}, ${}", day.day, day.effective.usd));
    let unknown = days.iter().filter(|day| day.known_seconds == 0).count();
    let unknown = if unknown > 0 { format!("; {unknown} of them are unknown") } else { String::new() };
    let title = format!("Effective cost of each of {} days, by how nodes were bought{highest}{unknown}", days.len());
    Ok(Picture { title, height: HEIGHT, svg, key: key.collect() })
}

/// Hours of nodes in each state, as bars.
pub(super) fn states(report: &Report) -> Result<Picture, NotDrawn> {
    let states = &report.by_state;
    let most = states.iter().map(|state| state.amounts.node_seconds).max().unwrap_or(0).max(1);
    let height = ROW * u32::try_from(states.len()).unwrap_or(0).max(1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        for (state, row) in states.iter().zip(0_u32..) {
            let top = i32::try_from(row * ROW).unwrap_or(0);
            let seconds = state.amounts.node_seconds;
            // The longest bar leaves room for the number after it.
            let length = i32::try_from(i128::from(seconds) * 240 / i128::from(most)).unwrap_or(0).max(1);
            root.draw(&Text::new(state.state.as_str(), (0, top + 8), (FONT, 16)))?;
            root.draw(&Rectangle::new([(74, top + 5), (74 + length, top + 25)], HOURS.filled()))?;
            root.draw(&Text::new(hours(seconds), (80 + length, top + 8), (FONT, 16)))?;
        }
        root.present()?;
    }
    let words: Vec<String> = states.iter().map(|of| format!("{} {} h", of.state, hours(of.amounts.node_seconds))).collect();
    Ok(Picture { title: format!("Hours of nodes by what they did: {}", words.join(", ")), height, svg, key: Vec::new() })
}

fn dollars(micros: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "micro-dollars of a report are far below 2^53")]
    let micros = micros as f64;
    micros / 1e6
}
