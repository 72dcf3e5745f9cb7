//! The run as a picture: rates above, percentiles below, as SVG or in an HTML page.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::error::LoadError;
use crate::outcome::{Interval, Outcome};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 640;
const OFFERED: RGBColor = RGBColor(120, 120, 120);
const GOOD: RGBColor = RGBColor(0, 130, 90);
const REFUSED: RGBColor = RGBColor(230, 140, 0);
const FAILED: RGBColor = RGBColor(200, 30, 50);
const P50: RGBColor = RGBColor(60, 120, 200);
const P90: RGBColor = RGBColor(120, 80, 190);
const P99: RGBColor = RGBColor(190, 40, 140);

/// A line: what it is called, its colour, and its value in an interval, if it has one there.
type Line = (&'static str, RGBColor, fn(&Interval) -> Option<f64>);

impl Outcome {
    /// Rate, goodput, refusals and failures a second, and percentiles of latency, over time.
    pub fn svg(&self) -> Result<String, LoadError> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(LoadError::Plot)?;
        Ok(svg)
    }

    /// The picture and the summary on a page that needs nothing else.
    pub fn html(&self) -> Result<String, LoadError> {
        let text = escape(&self.text());
        let url = escape(&self.url);
        Ok(format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{url}</title>\n\
             <style>body{{font-family:sans-serif;margin:2em}}svg{{max-width:100%;height:auto}}</style>\n{}\n<pre>{text}</pre></html>\n",
            self.svg()?
        ))
    }

    fn draw(&self, svg: &mut String) -> Result<(), String> {
        let rates: [Line; 4] = [
            ("offered", OFFERED, |i| Some(i.offered as f64 / i.length)),
            ("good", GOOD, |i| Some(i.good as f64 / i.length)),
            ("refused", REFUSED, |i| Some(i.refused as f64 / i.length)),
            ("failed", FAILED, |i| Some(i.failed as f64 / i.length)),
        ];
        // An interval without good answers has no percentiles, and the line a gap.
        let latencies: [Line; 3] = [
            ("p50", P50, |i| (i.latency.count > 0).then_some(i.latency.p50)),
            ("p90", P90, |i| (i.latency.count > 0).then_some(i.latency.p90)),
            ("p99", P99, |i| (i.latency.count > 0).then_some(i.latency.p99)),
        ];
        let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(|e| e.to_string())?;
        let (above, below) = root.split_vertically(HEIGHT / 2);
        let seconds = 0.0..self.seconds;

        let top = self.highest(&rates);
        let mut chart = ChartBuilder::on(&above)
            .caption("requests a second", ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(seconds.clone(), 0.0..top * 1.05)
            .map_err(|e| e.to_string())?;
        chart.configure_mesh().x_desc("seconds").light_line_style(WHITE).draw().map_err(|e| e.to_string())?;
        self.lines(&mut chart, &rates)?;

        let top = self.highest(&latencies);
        let mut chart = ChartBuilder::on(&below)
            .caption("latency of good answers from the scheduled moment, ms", ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(seconds, (self.lowest(&latencies, top) * 0.8..top * 1.25).log_scale())
            .map_err(|e| e.to_string())?;
        chart.configure_mesh().x_desc("seconds").light_line_style(WHITE).draw().map_err(|e| e.to_string())?;
        self.lines(&mut chart, &latencies)?;
        root.present().map_err(|e| e.to_string())
    }

    /// Draws each line, broken where it has no value.
    fn lines<'a, Y>(
        &self,
        chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>,
        lines: &[Line],
    ) -> Result<(), String>
    where
        Y: Ranged<ValueType = f64>,
    {
        for &(name, colour, value) in lines {
            let points = self.intervals.iter().map(|i| (i.at + i.length / 2.0, value(i)));
            let points: Vec<(f64, Option<f64>)> = points.collect();
            let pieces = points.split(|(_, value)| value.is_none()).filter(|piece| !piece.is_empty());
            for (index, piece) in pieces.enumerate() {
                let piece = piece.iter().filter_map(|&(at, value)| Some((at, value?)));
                let series =
                    chart.draw_series(LineSeries::new(piece, colour.stroke_width(2))).map_err(|e| e.to_string())?;
                if index == 0 {
                    series
                        .label(name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
                }
            }
        }
        let mut labels = chart.configure_series_labels();
        labels.background_style(WHITE.mix(0.8)).position(SeriesLabelPosition::UpperLeft);
        labels.draw().map_err(|e| e.to_string())
    }

    /// The highest value of all lines, at least something above 0: an axis needs a length.
    fn highest(&self, lines: &[Line]) -> f64 {
        self.values(lines).fold(0.1, f64::max)
    }

    /// The lowest value above 0 of all lines, for an axis that has no 0.
    fn lowest(&self, lines: &[Line], top: f64) -> f64 {
        self.values(lines).filter(|value| *value > 0.0).fold(top, f64::min)
    }

    fn values(&self, lines: &[Line]) -> impl Iterator<Item = f64> {
        lines.iter().flat_map(|(_, _, value)| self.intervals.iter().filter_map(value))
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::attempt::AttemptResult;
    use crate::plan::Plan;
    use crate::record::{Done, End, Record};
    use crate::request::Request;
    use crate::shape::Shape;

    #[test]
    fn a_run_with_gaps_and_one_with_nothing_are_drawn() {
        let plan =
            Plan::new(Request::get("http://127.0.0.1/?a=b&c").unwrap(), Shape::constant(1.0, Duration::from_secs(20)));
        let empty = Record::new(&plan).outcome(&plan);
        assert!(empty.svg().unwrap().starts_with("<svg"));
        let mut record = Record::new(&plan);
        for second in (0..20).filter(|second| second % 5 != 0) {
            let due = Duration::from_secs(second);
            record.offered(due, Duration::ZERO);
            let end = End::Sent(AttemptResult::Answer { status: 200, bytes: 1 });
            record.done(Done { due, latency: Duration::from_millis(second), lag: Duration::ZERO, retried: 0, end });
        }
        let outcome = record.outcome(&plan);
        let html = outcome.html().unwrap();
        assert!(html.contains("p99") && html.contains("offered") && html.contains("a=b&amp;c"));
        // Four pieces of each percentile between the gaps, four whole lines of the rates, and the legends.
        assert!(html.matches("<polyline").count() >= 3 * 4 + 4, "{}", html.matches("<polyline").count());
    }
}
