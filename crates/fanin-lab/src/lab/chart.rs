//! Charts as SVG: lines over an axis, and groups of bars. The story's figures are dashed or pale.

use plotters::coord::Shift;
use plotters::prelude::*;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const SIZE: (u32, u32) = (900, 400);
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x5f, 0xa8),
    RGBColor(0xd9, 0x6b, 0x27),
    RGBColor(0x2e, 0x8b, 0x57),
    RGBColor(0x8a, 0x4f, 0x9e),
    RGBColor(0x60, 0x60, 0x60),
    RGBColor(0xb8, 0x9b, 0x2c),
];

/// One line or one kind of bars.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Whether these are the story's figures.
    pub(crate) story: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Series {
    pub(crate) fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), story: false, points }
    }

    pub(crate) fn story(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), story: true, points }
    }
}

/// An axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis<'a> {
    pub(crate) name: &'a str,
    pub(crate) log: bool,
}

impl<'a> Axis<'a> {
    pub(crate) fn even(name: &'a str) -> Axis<'a> {
        Axis { name, log: false }
    }

    pub(crate) fn log(name: &'a str) -> Axis<'a> {
        Axis { name, log: true }
    }

    /// Logarithms where the axis is logarithmic: then both kinds are drawn alike.
    fn place(&self, value: f64) -> f64 {
        if self.log { value.max(1e-9).log10() } else { value }
    }

    fn label(&self, at: f64) -> String {
        let value = if self.log { 10f64.powf(at) } else { at };
        match value.abs() {
            size if size >= 1e6 => format!("{:.0}M", value / 1e6),
            size if size >= 1e4 => format!("{:.0}k", value / 1e3),
            size if size >= 10.0 || value == 0.0 => format!("{value:.0}"),
            size if size >= 1.0 => format!("{value:.1}"),
            size if size >= 0.01 => format!("{value:.2}"),
            _ => format!("{value:.0e}"),
        }
    }
}

/// Lines with marked points.
pub(crate) fn lines(title: &str, x: Axis<'_>, y: Axis<'_>, series: &[Series]) -> String {
    drawn(|root| draw_lines(root, title, x, y, series))
}

/// Groups of bars: in each group one bar of each series, whose points are `(group, height)`.
pub(crate) fn bars(title: &str, groups: &[&str], y: Axis<'_>, series: &[Series]) -> String {
    drawn(|root| draw_bars(root, title, groups, y, series))
}

fn drawn(draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        // Into a string nothing fails; should plotters change its mind, a chart that lacks something is still a chart.
        let _ = root.fill(&WHITE);
        let _ = draw(&root);
        let _ = root.present();
    }
    svg
}

/// Least and greatest of what is to be shown, with some room above.
fn range(axis: Axis<'_>, values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| value.is_finite()) {
        let at = axis.place(value);
        least = least.min(at);
        most = most.max(at);
    }
    if !least.is_finite() {
        return 0.0..1.0;
    }
    if axis.log {
        (least - 0.1)..(most + (most - least).max(0.2) * 0.25)
    } else {
        least.min(0.0)..(most + (most - least.min(0.0)).max(1e-9) * 0.25)
    }
}

fn draw_lines(root: &Area<'_>, title: &str, x: Axis<'_>, y: Axis<'_>, series: &[Series]) -> Drawn {
    let points = || series.iter().flat_map(|series| series.points.iter().copied());
    let mut xs = range(x, points().map(|(at, _)| at));
    if !x.log {
        xs.end = points().map(|(at, _)| at).fold(xs.start + 1e-9, f64::max);
    }
    let ys = range(y, points().map(|(_, at)| at));
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .margin_right(30)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(xs, ys)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|at| x.label(*at))
        .y_label_formatter(&|at| y.label(*at))
        .x_desc(x.name)
        .y_desc(y.name)
        .draw()?;
    for (at, one) in series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let places: Vec<(f64, f64)> = one
            .points
            .iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(across, up)| (x.place(*across), y.place(*up)))
            .collect();
        let style = colour.mix(if one.story { 0.45 } else { 1.0 });
        let width = if one.story { 1 } else { 2 };
        chart
            .draw_series(LineSeries::new(places.iter().copied(), style.stroke_width(width)))?
            .label(one.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 2), (x + 18, y + 2)], style.filled()));
        if places.len() <= 60 {
            chart.draw_series(places.iter().map(|place| Circle::new(*place, 3, style.filled())))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(0xcc, 0xcc, 0xcc))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}

fn draw_bars(root: &Area<'_>, title: &str, groups: &[&str], y: Axis<'_>, series: &[Series]) -> Drawn {
    let mut ys = range(y, series.iter().flat_map(|series| series.points.iter().map(|(_, up)| *up)));
    if y.log {
        ys.start = ys.start.floor();
    }
    let floor = ys.start;
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .margin_right(30)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..groups.len() as f64, ys)?;
    let none = |_: &f64| String::new();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(1)
        .x_label_formatter(&none)
        .y_label_formatter(&|at| y.label(*at))
        .y_desc(y.name)
        .draw()?;
    let width = 0.8 / series.len().max(1) as f64;
    for (at, one) in series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let style = colour.mix(if one.story { 0.4 } else { 0.9 });
        let boxes = one.points.iter().filter(|(_, up)| up.is_finite()).map(|(group, up)| {
            let left = group + 0.1 + width * at as f64;
            Rectangle::new([(left, floor), (left + width * 0.92, y.place(*up))], style.filled())
        });
        chart
            .draw_series(boxes)?
            .label(one.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], style.filled()));
    }
    for (at, group) in groups.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(at as f64 + 0.5, floor));
        let style = ("sans-serif", 13).into_text_style(root).pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Center,
            plotters::style::text_anchor::VPos::Top,
        ));
        root.draw(&Text::new((*group).to_owned(), (x, y + 8), style))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(0xcc, 0xcc, 0xcc))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_hold_what_they_are_given() {
        let ours = Series::new("our mean", vec![(1.0, 10.0), (4096.0, 2.5)]);
        let theirs = Series::story("story", vec![(1.0, 109.0), (4096.0, 28.0)]);
        let svg = lines("a title", Axis::log("threads"), Axis::log("seconds"), &[ours.clone(), theirs]);
        for text in ["a title", "threads", "seconds", "our mean", "story", "<circle"] {
            assert!(svg.contains(text), "{text}");
        }
        let svg = bars("b", &["one", "two"], Axis::even("ms"), &[Series::new("x", vec![(0.0, 1.0), (1.0, f64::NAN)])]);
        assert!(svg.contains("one") && svg.contains("two") && svg.contains("ms"));
    }

    #[test]
    fn a_chart_of_nothing_is_no_error() {
        assert!(lines("t", Axis::even("x"), Axis::even("y"), &[]).contains("</svg>"));
        assert!(bars("t", &[], Axis::even("y"), &[Series::default()]).contains("</svg>"));
    }
}
