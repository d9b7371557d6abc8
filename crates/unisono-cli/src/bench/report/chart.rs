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
        let curve = |series: &Series| Curve {
            label: series.label.clone(),
            look: if series.floor { Look::Floor } else { Look::Line },
            points: series.points(points),
        };
        draw(&self.series.iter().map(curve).collect::<Vec<_>>(), self.x_label, self.y_label)
    }
}

/// A line of a plot with its numbers.
pub(crate) struct Curve {
    pub(crate) label: String,
    pub(crate) look: Look,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How a curve is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// A line in a colour of its own.
    Line,
    /// A dashed line in the colour of the line before it.
    Dashed,
    /// Dots alone, in the colour of the line before them.
    Dots,
    /// A dashed line in grey.
    Floor,
}

/// Returns a plot as SVG; none if there is nothing to draw.
pub(crate) fn draw(curves: &[Curve], x_label: &str, y_label: &str) -> Option<String> {
    let (mut colours, mut floor_colours) = (COLOURS.iter().cycle(), FLOOR_COLOURS.iter().cycle());
    let mut colour = COLOURS[0];
    let mut plots = Vec::new();
    for Curve { label, look, points } in curves.iter().filter(|curve| !curve.points.is_empty()) {
        match look {
            Look::Line => colour = colours.next()?,
            Look::Floor => colour = floor_colours.next()?,
            Look::Dashed | Look::Dots => {}
        }
        let size = if *look == Look::Dots { 5.0 } else { 3.5 };
        let dots = ScatterPlot::new().with_data(points.clone()).with_color(colour).with_size(size);
        if *look == Look::Dots {
            plots.push(Plot::Scatter(dots.with_legend(label.as_str())));
            continue;
        }
        let line = LinePlot::new()
            .with_data(points.clone())
            .with_color(colour)
            .with_stroke_width(2.0)
            .with_legend(label.as_str());
        plots.push(Plot::Line(if *look == Look::Line { line } else { line.with_dashed() }));
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
        .with_x_label(x_label)
        .with_y_label(y_label);
    Some(SvgBackend.render_scene(&render_multiple(plots, layout)))
}
