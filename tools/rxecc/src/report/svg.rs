// SPDX-License-Identifier: GPL-2.0

//! A chart as SVG text: size, axes, lines.
//!
//! What comes in: what to draw, in the unit of the axes. What goes out: an `<svg>`
//! element with title and description, drawn by plotters. plotters rounds to whole
//! pixels: everything is drawn larger by [`DENSITY`] and shown smaller. What is drawn,
//! and in which order, is left to [`super::plots`].

use std::ops::Range;

use anyhow::{anyhow, Result};
use plotters::coord::types::RangedCoordf64;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::palette::{self, Ink};
use crate::analysis::series::Span;

const DENSITY: i32 = 4;

pub(super) type Area<'b> = DrawingArea<SVGBackend<'b>, Shift>;
pub(super) type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A plot's size on the page, CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: i32,
    pub(super) height: i32,
}

impl Size {
    /// The plot that is shown on wide screens.
    pub(super) const fn wide(height: i32) -> Self {
        Self {
            width: 1100,
            height,
        }
    }

    /// The same for narrow ones.
    pub(super) const fn narrow(height: i32) -> Self {
        Self { width: 372, height }
    }

    pub(super) const fn is_narrow(self) -> bool {
        self.width < 600
    }

    /// How many different moments can be told apart.
    pub(super) const fn columns(self) -> usize {
        if self.is_narrow() {
            200
        } else {
            480
        }
    }

    /// Left of a chart, for the labels of its y axis; right of it, for those of
    /// thresholds.
    pub(super) const LEFT: i32 = 46;
    pub(super) const RIGHT: i32 = 52;
}

/// CSS pixels as the backend counts them.
pub(super) fn px(pixels: i32) -> i32 {
    pixels * DENSITY
}

/// plotters' error as ours.
pub(super) fn drawn<T>(result: Result<T, DrawingAreaErrorKind<std::io::Error>>) -> Result<T> {
    result.map_err(|error| anyhow!("cannot draw: {error}"))
}

/// An `<svg>` element. `id` is unique on the page.
pub(super) fn picture(
    id: &str,
    class: &str,
    title: &str,
    description: &str,
    size: Size,
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut text = String::new();
    {
        let backend =
            SVGBackend::with_string(&mut text, (px(size.width) as u32, px(size.height) as u32));
        let area = backend.into_drawing_area();
        draw(&area)?;
        drawn(area.present())?;
    }
    Ok(finished(&text, id, class, title, description, size))
}

/// plotters' document with what it has no words for: a name for those who hear it,
/// round joints, dashes.
fn finished(
    text: &str,
    id: &str,
    class: &str,
    title: &str,
    description: &str,
    size: Size,
) -> String {
    let body = text.split_once('>').map_or("", |(_, body)| body);
    let (w, h) = (px(size.width), px(size.height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"{class}\" viewBox=\"0 0 {w} {h}\" \
         role=\"img\" aria-labelledby=\"{id}-t {id}-d\" stroke-linejoin=\"round\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
        escaped(title),
        escaped(description)
    );
    svg += &body
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" \"/>", "\"/>");
    for ink in [palette::REFERENCE, palette::THRESHOLD] {
        let Some((dash, gap)) = ink.dashed else {
            continue;
        };
        let stroke = format!("stroke=\"{}\"", ink.attribute());
        let (dash, gap) = (px(dash as i32), px(gap as i32));
        svg = svg.replace(
            &stroke,
            &format!("{stroke} stroke-dasharray=\"{dash} {gap}\""),
        );
    }
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The vertical axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vertical {
    pub(super) bottom: f64,
    /// The highest value.
    pub(super) top: f64,
    /// A label's 1.
    pub(super) scale: f64,
    /// Its unit, written above it.
    pub(super) unit: &'static str,
    /// How many labels there are, about.
    pub(super) labels: usize,
    /// Whether values are logarithms to the base 10.
    logarithms: bool,
}

impl Vertical {
    /// From 0 to `top`.
    pub(super) const fn to(top: f64, (scale, unit): (f64, &'static str)) -> Self {
        Self {
            bottom: 0.0,
            top,
            scale,
            unit,
            labels: 5,
            logarithms: false,
        }
    }

    /// Whole decades that hold `least` and `most`.
    pub(super) fn decades(least: f64, most: f64, (scale, unit): (f64, &'static str)) -> Self {
        let bottom = (least * 0.8).max(1.0).log10().floor();
        let top = most.log10().ceil().max(bottom + 1.0);
        Self {
            bottom,
            top,
            labels: (top - bottom) as usize + 1,
            scale,
            unit,
            logarithms: true,
        }
    }

    fn label(&self, value: f64) -> String {
        match self.logarithms {
            true => plain(10f64.powf(value) / self.scale),
            false => plain(value / self.scale),
        }
    }
}

/// A chart with its axes, the labels of time below it. Times outside of `measured` are shaded.
pub(super) fn chart<'a, 'b>(
    area: &'a Area<'b>,
    size: Size,
    time: Span,
    measured: Span,
    vertical: Vertical,
) -> Result<Chart<'a, 'b>> {
    let mut chart = drawn(
        ChartBuilder::on(area)
            .margin_top(px(20))
            .margin_right(px(Size::RIGHT))
            .x_label_area_size(px(22))
            .y_label_area_size(px(Size::LEFT))
            .build_cartesian_2d(time.0..time.1, vertical.bottom..vertical.top),
    )?;
    for side in [(time.0, measured.0), (measured.1, time.1)] {
        if side.0 < side.1 {
            band(
                &mut chart,
                side,
                vertical.bottom..vertical.top,
                palette::UNMEASURED,
            )?;
        }
    }
    let (time_scale, time_unit) = match time.1 - time.0 {
        s if s < 2e-3 => (1e-6, "us"),
        s if s < 2.0 => (1e-3, "ms"),
        _ => (1.0, "s"),
    };
    drawn(
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(stroke(palette::GRID, 1.0))
            .light_line_style(TRANSPARENT)
            .axis_style(stroke(palette::AXIS, 1.0))
            .set_all_tick_mark_size(px(3))
            .x_labels(if size.is_narrow() { 5 } else { 11 })
            .y_labels(vertical.labels)
            .x_label_formatter(&|t| format!("{} {time_unit}", plain(t / time_scale)))
            .y_label_formatter(&|v| vertical.label(*v))
            .label_style(font(12))
            .draw(),
    )?;
    label(area, vertical.unit, (Size::LEFT, 8), HPos::Right)?;
    Ok(chart)
}

/// A number without zeros that say nothing.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text of this height, CSS pixels.
pub(super) fn font(pixels: i32) -> TextStyle<'static> {
    // plotters' size is 1.24 times what it writes.
    ("sans-serif", f64::from(px(pixels)) * 1.24)
        .into_font()
        .color(&palette::TEXT.color())
}

/// Text at a place of the area, CSS pixels.
pub(super) fn label(area: &Area<'_>, text: &str, at: (i32, i32), side: HPos) -> Result<()> {
    let style = font(12).pos(Pos::new(side, VPos::Center));
    drawn(area.draw(&Text::new(text.to_owned(), (px(at.0), px(at.1)), style)))
}

/// A line's style; `width` in CSS pixels.
pub(super) fn stroke(ink: Ink, width: f64) -> ShapeStyle {
    ShapeStyle {
        color: ink.color().to_rgba(),
        filled: false,
        stroke_width: (width * f64::from(DENSITY)).round() as u32,
    }
}

/// A line through `points`, which the chart's edges cut off.
pub(super) fn line(
    chart: &mut Chart<'_, '_>,
    points: &[(f64, f64)],
    style: ShapeStyle,
) -> Result<()> {
    let edges = chart.y_range();
    let cut = points
        .iter()
        .map(|(t, v)| (*t, v.clamp(edges.start, edges.end)));
    drawn(chart.draw_series(LineSeries::new(cut, style)))?;
    Ok(())
}

/// The area between two lines, the upper one given from left to right and the lower
/// one, too.
pub(super) fn between(
    chart: &mut Chart<'_, '_>,
    lower: &[(f64, f64)],
    upper: &[(f64, f64)],
    ink: Ink,
    opacity: f64,
) -> Result<()> {
    let top = chart.y_range().end;
    let around = upper.iter().chain(lower.iter().rev());
    let points: Vec<(f64, f64)> = around.map(|(t, v)| (*t, v.min(top))).collect();
    let style = ink.color().mix(opacity).filled();
    drawn(chart.draw_series([Polygon::new(points, style)]))?;
    Ok(())
}

/// A rectangle.
pub(super) fn band(
    chart: &mut Chart<'_, '_>,
    time: Span,
    values: Range<f64>,
    ink: Ink,
) -> Result<()> {
    let corners = [(time.0, values.end), (time.1, values.start)];
    drawn(chart.draw_series([Rectangle::new(corners, ink.color().filled())]))?;
    Ok(())
}

/// Horizontal lines over the whole time, the lowest first, and their names to the right
/// of the chart; those that would lie beyond its edge are left out.
pub(super) fn thresholds(
    area: &Area<'_>,
    chart: &mut Chart<'_, '_>,
    lines: &[(f64, &str)],
    ink: Ink,
) -> Result<()> {
    const LINE_HEIGHT: i32 = 13;
    let (time, top) = (chart.x_range(), chart.y_range().end);
    let mut free = i32::MAX;
    for (value, name) in lines.iter().filter(|(value, _)| *value <= top) {
        let ends = [(time.start, *value), (time.end, *value)];
        line(chart, &ends, stroke(ink, 1.25))?;
        let (x, y) = chart.backend_coord(&ends[1]);
        let y = y.min(free);
        free = y - px(LINE_HEIGHT);
        let style = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        // An area counts from its own corner, a coordinate from the picture's.
        let corner = area.get_base_pixel();
        let at = (x + px(5) - corner.0, y - corner.1);
        drawn(area.draw(&Text::new((*name).to_owned(), at, style)))?;
    }
    Ok(())
}
