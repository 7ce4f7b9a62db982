//! The report as a page: one HTML file with its charts in it, made from results alone.

use std::fmt::Write as _;

use crate::trial::{PolicyResult, Trial};

/// Size of a chart's field, in pixels.
const FIELD: (u64, u64) = (520, 200);
/// Space for the labels at its left, above and below it.
const LEFT: u64 = 64;
const TOP: u64 = 14;
const BOTTOM: u64 = 34;
/// Colours of lines, in turn; they can be told apart without colours by the legend's order.
const COLOURS: [&str; 7] = ["#0b6e8a", "#c4581b", "#5b7d2a", "#8a3b8f", "#b0892b", "#555555", "#a02c3e"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1240px;margin:2rem auto;padding:0 1rem;\
color:#1c2226;background:#fff}h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.05rem;margin:.2rem 0}\
.label{background:#fdf3d8;border:1px solid #e2c779;padding:.3rem .6rem;border-radius:4px;display:inline-block}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid #dde3e6}\
th:first-child,td:first-child{text-align:left}.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(590px,1fr));\
gap:1.2rem}figure{margin:0;border:1px solid #dde3e6;border-radius:6px;padding:.6rem}svg{width:100%;height:auto}\
svg text{font:11px system-ui,sans-serif;fill:#4b565c}.bad{color:#a02c3e;font-weight:600}.note{color:#4b565c}\
@media (prefers-color-scheme:dark){body{background:#14181a;color:#dfe6e9}.label{background:#3a3214;border-color:#6d5c1e}\
td,th,figure{border-color:#333c41}svg text,.note{fill:#9fb0b8;color:#9fb0b8}}";

/// A line of a chart.
struct Line {
    name: String,
    points: Vec<(u64, u64)>,
}

/// What an axis shows.
#[derive(Clone, Copy)]
enum Unit {
    Percent,
    Seconds,
    Millis,
    Credits,
    Count,
    /// Hundredths of something.
    Part,
}

/// The page of some seeds of one scenario.
#[must_use]
pub fn html(trials: &[Trial]) -> String {
    let mut page = String::from("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
    let title = trials.first().map_or("", |trial| trial.scenario.as_str());
    // Writing to a text does not fail.
    let _ = write!(
        page,
        "<meta name=\"viewport\" content=\"width=device-width\"><title>souk sim: {0}</title><style>{STYLE}</style>\
         <h1>souk sim: {0}</h1>",
        escaped(title)
    );
    if let Some(first) = trials.first() {
        let _ = write!(page, "<p class=\"note\">{}</p>", escaped(&first.about));
    }
    for trial in trials {
        section(&mut page, trial);
    }
    page.push_str("</html>\n");
    page
}

fn section(page: &mut String, trial: &Trial) {
    let _ = write!(page, "<section><p class=\"label\">{}</p>", escaped(&trial.label));
    let _ = write!(
        page,
        "<p>{} nodes, {} jobs with {} tasks, {} of virtual time, {} events, {} messages ({} a node), {} departures, \
         {} connections ({} by a relay).</p>",
        trial.nodes,
        trial.jobs,
        trial.tasks,
        shown(trial.virtual_s, Unit::Seconds),
        trial.events,
        trial.messages,
        trial.messages.checked_div(trial.nodes).unwrap_or(0),
        trial.departures,
        trial.connections.0,
        trial.connections.1
    );
    let invariants = &trial.invariants;
    match &invariants.first {
        None => {
            let _ = write!(page, "<p>Invariants were checked {} times and held.</p>", invariants.checked);
        }
        Some(first) => {
            let _ = write!(page, "<p class=\"bad\">{} violations: {}</p>", invariants.violated, escaped(first));
        }
    }
    table(page, trial);
    page.push_str("<div class=\"charts\">");
    charts(page, trial);
    page.push_str("</div></section>");
}

fn table(page: &mut String, trial: &Trial) {
    page.push_str(
        "<table><tr><th>policy<th>filled<th>utilisation<th>wait p50<th>wait p95<th>cost a job<th>a core hour\
         <th>providers' income<th>Gini<th>conflicts<th>repeated<th>preempted</tr>",
    );
    for (name, result) in trial.ordered() {
        let f = &result.figures;
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escaped(name),
            shown(f.fill_rate, Unit::Percent),
            shown(f.utilisation, Unit::Percent),
            shown(f.wait_p50_ms, Unit::Millis),
            shown(f.wait_p95_ms, Unit::Millis),
            f.cost_per_job.short(),
            f.cost_per_core_hour.short(),
            f.income.short(),
            shown(f.gini, Unit::Percent),
            shown(f.conflicts, Unit::Percent),
            shown(f.repeated, Unit::Percent),
            f.preempted
        );
    }
    page.push_str("</table>");
}

fn charts(page: &mut String, trial: &Trial) {
    let over_time = |value: fn(&crate::trial::Point) -> u64| {
        let timed = trial.ordered().into_iter().filter(|(_, result)| !result.timeline.is_empty());
        let points = |result: &PolicyResult| result.timeline.iter().map(|point| (point.s, value(point))).collect();
        timed.map(|(name, result)| Line { name: name.to_owned(), points: points(result) }).collect::<Vec<_>>()
    };
    let spread = |values: fn(&PolicyResult) -> &Vec<u64>| {
        let points = |result: &PolicyResult| (0..).zip(values(result).iter().copied()).collect();
        let line = |(name, result): (&str, &PolicyResult)| Line { name: name.to_owned(), points: points(result) };
        trial.ordered().into_iter().map(line).filter(|line| !line.points.is_empty()).collect::<Vec<_>>()
    };
    let share = |point: &crate::trial::Point| (point.busy * 1_000_000).checked_div(point.offered).unwrap_or(0);
    chart(page, "Utilisation over time", &over_time(share), Unit::Seconds, Unit::Percent);
    chart(page, "Tasks that wait", &over_time(|point| point.waiting), Unit::Seconds, Unit::Count);
    chart(
        page,
        "Wait for the first start, by hundredths of the jobs",
        &spread(|r| &r.waits_ms),
        Unit::Part,
        Unit::Millis,
    );
    chart(page, "Cost of a job, by hundredths of the jobs", &spread(|r| &r.costs), Unit::Part, Unit::Credits);
    chart(page, "Income, by hundredths of the providers", &spread(|r| &r.incomes), Unit::Part, Unit::Credits);
    let heard = (0..).zip(trial.messages_per_node.iter().copied()).collect();
    let heard = [Line { name: "souk".to_owned(), points: heard }];
    chart(page, "Messages that arrive, by hundredths of the nodes", &heard, Unit::Part, Unit::Count);
    let conflicts: Vec<_> = trial.ordered().into_iter().filter(|(_, result)| result.figures.awards > 0).collect();
    bars(page, "Awards that were refused or not answered", &conflicts, |result| result.figures.conflicts);
}

fn chart(page: &mut String, title: &str, lines: &[Line], x_unit: Unit, y_unit: Unit) {
    let most = |pick: fn(&(u64, u64)) -> u64| lines.iter().flat_map(|line| &line.points).map(pick).max().unwrap_or(0);
    let (x_most, y_most) = (most(|point| point.0).max(1), round_up(most(|point| point.1).max(1), y_unit));
    let _ = write!(page, "<figure><h2>{}</h2>", escaped(title));
    open_svg(page, title);
    for quarter in 0..=4 {
        let y = TOP + FIELD.1 - FIELD.1 * quarter / 4;
        let x = LEFT + FIELD.0 * quarter / 4;
        let _ = write!(
            page,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#8884\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            LEFT + FIELD.0,
            LEFT - 6,
            y + 4,
            shown(scale(y_most, quarter, 4), y_unit),
            TOP + FIELD.1 + 16,
            shown(scale(x_most, quarter, 4), x_unit)
        );
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let mut path = String::new();
        for (x, y) in &line.points {
            let x = LEFT + scale(FIELD.0, *x, x_most);
            let y = TOP + FIELD.1 - scale(FIELD.1, *y, y_most);
            let _ = write!(path, "{x},{y} ");
        }
        let _ = write!(
            page,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
            path.trim()
        );
    }
    legend(page, lines.iter().map(|line| line.name.as_str()));
    page.push_str("</svg></figure>");
}

fn bars(page: &mut String, title: &str, results: &[(&str, &PolicyResult)], value: fn(&PolicyResult) -> u64) {
    let most = results.iter().map(|(_, result)| value(result)).max().unwrap_or(0).max(10_000);
    let _ = write!(page, "<figure><h2>{}</h2>", escaped(title));
    open_svg(page, title);
    for ((number, (_, result)), colour) in (0_u64..).zip(results).zip(COLOURS.iter().cycle()) {
        let (y, width) = (TOP + 10 + number * 26, scale(FIELD.0 - 60, value(result), most));
        let _ = write!(
            page,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{}\" height=\"18\" fill=\"{colour}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            width.max(1),
            LEFT + width + 6,
            y + 13,
            shown(value(result), Unit::Percent)
        );
    }
    legend(page, results.iter().map(|(name, _)| *name));
    page.push_str("</svg></figure>");
}

fn open_svg(page: &mut String, title: &str) {
    let (width, height) = (LEFT + FIELD.0 + 20, TOP + FIELD.1 + BOTTOM);
    let _ = write!(page, "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">", escaped(title));
}

fn legend<'a>(page: &mut String, names: impl Iterator<Item = &'a str>) {
    let mut x = LEFT;
    for (name, colour) in names.zip(COLOURS.iter().cycle()) {
        let y = TOP + FIELD.1 + 24;
        let _ = write!(
            page,
            "<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"6\" fill=\"{colour}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            x + 14,
            y + 7,
            escaped(name)
        );
        x += 28 + 7 * name.len() as u64;
    }
}

/// `part` of `of` on a length.
fn scale(length: u64, part: u64, of: u64) -> u64 {
    let product = u128::from(length) * u128::from(part.min(of));
    u64::try_from(product.checked_div(u128::from(of)).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The end of an axis: one or two digits, and nothing above the whole.
fn round_up(value: u64, unit: Unit) -> u64 {
    let step = 10_u64.pow(value.max(1).ilog10().saturating_sub(1));
    let rounded = value.div_ceil(step).saturating_mul(step);
    if matches!(unit, Unit::Percent) { rounded.min(1_000_000.max(value)) } else { rounded }
}

fn shown(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{}.{} %", value / 10_000, value / 1_000 % 10),
        Unit::Seconds if value >= 7_200 => format!("{}.{} h", value / 3_600, value % 3_600 / 360),
        Unit::Seconds if value >= 300 => format!("{} min", value / 60),
        Unit::Seconds => format!("{value} s"),
        Unit::Millis if value >= 10_000 => shown(value / 1_000, Unit::Seconds),
        Unit::Millis => format!("{value} ms"),
        Unit::Credits => format!("{}.{:04}", value / 1_000_000, value / 100 % 10_000),
        Unit::Count => value.to_string(),
        Unit::Part => format!("{value}"),
    }
}

/// A text that has no markup, in an element or in an attribute.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_and_shares_at_the_whole() {
        assert_eq!(round_up(1_234, Unit::Count), 1_300);
        assert_eq!(round_up(7, Unit::Count), 7);
        assert_eq!(round_up(999_999, Unit::Percent), 1_000_000);
        assert_eq!(scale(200, 50, 100), 100);
        assert_eq!(scale(200, 300, 100), 200);
    }

    #[test]
    fn values_are_shown_in_their_units() {
        assert_eq!(shown(123_456, Unit::Percent), "12.3 %");
        assert_eq!(shown(9_000, Unit::Seconds), "2.5 h");
        assert_eq!(shown(12_500, Unit::Millis), "12 s");
        assert_eq!(shown(1_234_567, Unit::Credits), "1.2345");
    }

    #[test]
    fn nothing_of_a_name_becomes_markup() {
        assert_eq!(escaped("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
    }
}
