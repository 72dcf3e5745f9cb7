//! The number in progress over time as an SVG.

use plotters::prelude::*;

use super::format::stamp::show;
use super::record::SECOND;
use super::report::Report;

const SIZE: (u32, u32) = (1000, 460);
const MOST: RGBColor = RGBColor(0xd9, 0x6b, 0x27);
const MEAN: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const LEAST: RGBColor = RGBColor(0x60, 0x60, 0x60);

/// An SVG of some 100 KB at most: the most in progress at once and request-seconds per second, over time, with the least
/// number of threads as a line. Quiet times that averages leave out are left out here too. Needs no fonts here; viewers
/// use their own.
pub fn svg(report: &Report) -> String {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    // Into a string nothing fails; should plotters change its mind, a plot that lacks something is still a plot.
    let _ = draw(report, &root);
    let _ = root.present();
    drop(root);
    svg
}

fn draw(
    report: &Report,
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>> {
    let points = &report.points;
    // Room for the legend above the peaks.
    let top = (points.iter().map(|point| point.max).max().unwrap_or(0) as f64).max(1.0) * 1.35;
    let end = points.len().max(1) as f64;
    root.fill(&WHITE)?;
    let title = format!(
        "{} requests: at most {} in progress at once, {:.1} request-seconds in the busiest second",
        report.requests, report.in_progress.max.value, report.per_second.peak
    );
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .margin_right(30)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    let dated = report.from.ends_with('Z');
    let label = |at: &f64| points.get(*at as usize).map_or(String::new(), |point| clock(point.at, dated));
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(8)
        .x_label_formatter(&label)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .x_desc(if dated { "time, UTC" } else { "time" })
        .y_desc("requests")
        .draw()?;
    // Steps: a point stands for its whole stretch of time.
    let steps = |value: fn(&super::Point) -> f64| {
        points
            .iter()
            .enumerate()
            .flat_map(move |(at, point)| [(at as f64, value(point)), (at as f64 + 1.0, value(point))])
    };
    chart
        .draw_series(AreaSeries::new(steps(|point| point.max as f64), 0.0, MOST.mix(0.25)).border_style(MOST))?
        .label("most in progress at once")
        .legend(|(x, y)| Rectangle::new([(x, y - 4), (x + 18, y + 4)], MOST.mix(0.5).filled()));
    chart
        .draw_series(LineSeries::new(steps(|point| point.mean), MEAN.stroke_width(2)))?
        .label("request-seconds per second, mean")
        .legend(|(x, y)| Rectangle::new([(x, y - 1), (x + 18, y + 1)], MEAN.filled()));
    let least = report.per_second.peak;
    chart
        .draw_series(LineSeries::new([(0.0, least), (end, least)], LEAST.stroke_width(1)))?
        .label("request-seconds of the busiest second: the least number of threads")
        .legend(|(x, y)| Rectangle::new([(x, y), (x + 18, y + 1)], LEAST.filled()));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(LEAST)
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}

/// The clock of a second; the day and the second do not fit an axis.
fn clock(second: i64, dated: bool) -> String {
    let text = show(second * SECOND, dated);
    let text = text.trim_end_matches('Z');
    let from = text.find('T').map_or(0, |at| at + 1);
    text[from..].trim_end_matches(".000").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_short() {
        assert_eq!(clock(54_240, true), "15:04:00");
        assert_eq!(clock(54_240, false), "15:04:00");
        assert_eq!(clock(86_400, false), "1d 00:00:00");
    }
}
