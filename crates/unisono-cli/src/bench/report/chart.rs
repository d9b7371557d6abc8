//! Draws plots of measurements.

use super::Point;
use kuva::backend::svg::SvgBackend;
use kuva::plot::{LegendPosition, LinePlot, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;
use serde_json::Value;

/// Colours of the lines, in the order of use; colour-blind readers can distinguish them.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const FLOOR_COLOURS: [&str; 2] = ["#777777", "#bbbbbb"];
const WIDTH: f64 = 700.0;
const HEIGHT: f64 = 320.0;

/// Reads a number from a measurement; none if it lacks the field.
type Number = fn(&Value) -> Option<f64>;

/// A plot.
#[derive(Clone)]
pub(in crate::bench) struct Chart {
    /// Part of the name of its file.
    pub(in crate::bench) name: &'static str,
    pub(in crate::bench) title: &'static str,
    pub(in crate::bench) x_label: &'static str,
    pub(in crate::bench) y_label: &'static str,
    pub(in crate::bench) series: Vec<Series>,
}

/// A line of a plot.
#[derive(Clone)]
pub(in crate::bench) struct Series {
    sweep: String,
    label: String,
    x: Number,
    y: Number,
    floor: bool,
}

impl Series {
    /// Makes the line of a group.
    pub(in crate::bench) fn plain(sweep: &str, label: impl Into<String>, x: Number, y: Number) -> Series {
        Series { sweep: sweep.into(), label: label.into(), x, y, floor: false }
    }

    /// Makes the line of a floor, drawn dashed.
    pub(in crate::bench) fn floor(sweep: &str, label: impl Into<String>, x: Number, y: Number) -> Series {
        Series { floor: true, ..Series::plain(sweep, label, x, y) }
    }

    fn points(&self, points: &[Point]) -> Vec<(f64, f64)> {
        let own = points.iter().filter(|point| point.sweep == self.sweep);
        let mut numbers: Vec<(f64, f64)> =
            own.filter_map(|point| Some(((self.x)(&point.object)?, (self.y)(&point.object)?))).collect();
        numbers.sort_by(|one, other| one.0.total_cmp(&other.0));
        numbers
    }
}

impl Chart {
    /// Returns the plot as SVG; none if there is nothing to draw.
    pub(super) fn draw(&self, points: &[Point]) -> Option<String> {
        let (mut colours, mut floor_colours) = (COLOURS.iter().cycle(), FLOOR_COLOURS.iter().cycle());
        let mut plots = Vec::new();
        for series in &self.series {
            let numbers = series.points(points);
            if numbers.is_empty() {
                continue;
            }
            let colour = *if series.floor { &mut floor_colours } else { &mut colours }.next()?;
            let dots = ScatterPlot::new().with_data(numbers.clone()).with_color(colour).with_size(3.5);
            let line = LinePlot::new()
                .with_data(numbers)
                .with_color(colour)
                .with_stroke_width(2.0)
                .with_legend(series.label.as_str());
            plots.push(Plot::Line(if series.floor { line.with_dashed() } else { line }));
            plots.push(Plot::Scatter(dots));
        }
        if plots.is_empty() {
            return None;
        }
        let layout = Layout::auto_from_plots(&plots)
            .with_width(WIDTH)
            .with_height(HEIGHT)
            .with_y_axis_min(0.0)
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_legend_box(false)
            .with_x_label(self.x_label)
            .with_y_label(self.y_label);
        Some(SvgBackend.render_scene(&render_multiple(plots, layout)))
    }
}
