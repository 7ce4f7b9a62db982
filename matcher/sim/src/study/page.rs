//! A study as a page: one HTML file with its charts in it.

use std::fmt::Write as _;

use super::{
    measure::Figures,
    run::{AtLoad, Study},
    table::{LINES, bounds, percent, time},
};
use crate::page::escaped;

/// Width of a bar that stands for everything, and height of each, in pixels.
const BAR: (u64, u64) = (320, 18);
/// Room for the names at its left.
const LEFT: u64 = 110;
/// Of utilisation; the last is its useful part.
const COLOURS: [&str; 2] = ["#9cc5d1", "#0b6e8a"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1240px;margin:2rem auto;padding:0 1rem;\
color:#1c2226;background:#fff}.label{background:#fdf3d8;border:1px solid #e2c779;padding:.3rem .6rem;border-radius:4px;\
display:inline-block}table{border-collapse:collapse;margin:1rem 0;font-size:13px}td,th{padding:.2rem .6rem;\
text-align:right;border-bottom:1px solid #dde3e6}th:first-child,td:first-child{text-align:left;white-space:pre}\
svg text{font:12px system-ui,sans-serif}.note{color:#4b565c}.wide{overflow-x:auto}";

impl Study {
    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        let mut page = String::from("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
        // Writing to a text does not fail.
        let _ = write!(
            page,
            "<meta name=\"viewport\" content=\"width=device-width\"><title>souk sim: study</title><style>{STYLE}</style>\
             <h1>souk sim: policies on one demand</h1><p class=\"label\">{}</p><ul class=\"note\">",
            escaped(&self.label)
        );
        for note in &self.notes {
            let _ = write!(page, "<li>{}", escaped(note));
        }
        page.push_str("</ul><h2>Aimed at, and reached</h2><table><tr><th>what<th>aim<th>reached<th>met</tr>");
        for aim in self.aims() {
            let met = aim.met.map_or("", |met| if met { "yes" } else { "no" });
            let _ = write!(
                page,
                "<tr><td>{}<td>{}<td>{}<td>{met}</tr>",
                escaped(&aim.what),
                escaped(aim.aim),
                escaped(&aim.reached)
            );
        }
        page.push_str("</table>");
        for at in &self.loads {
            section(&mut page, at);
        }
        let _ = write!(
            page,
            "<h2>Welfare on {} small instances</h2><table><tr><th>policy<th>of the optimum<th>within 5 % of it</tr>",
            self.instances
        );
        for efficiency in &self.efficiency {
            let (name, share) = (escaped(&efficiency.policy), percent(efficiency.share));
            let _ = write!(page, "<tr><td>{name}<td>{share} %<td>{} times</tr>", efficiency.near);
        }
        page.push_str("</table></html>\n");
        page
    }
}

fn section(page: &mut String, at: &AtLoad) {
    let _ = write!(
        page,
        "<h2>Load {} %, {} of arrivals</h2><p>Utilisation; the darker part by work that counts.</p>",
        percent(at.load),
        time(at.span.0)
    );
    bars(page, at);
    page.push_str("<div class=\"wide\"><table><tr><th>mean (95 % bounds)");
    for (name, _) in &at.policies {
        let _ = write!(page, "<th>{}", escaped(name));
    }
    page.push_str("</tr>");
    for (line, figure, show) in LINES {
        let _ = write!(page, "<tr><td>{line}");
        for (name, _) in &at.policies {
            let cell = at.estimate(name, figure).map_or_else(String::new, |estimate| bounds(estimate, show));
            let _ = write!(page, "<td>{cell}");
        }
        page.push_str("</tr>");
    }
    page.push_str("</table></div>");
}

fn bars(page: &mut String, at: &AtLoad) {
    let height = (BAR.1 + 6) * at.policies.len() as u64;
    let _ = write!(
        page,
        "<svg width=\"{}\" height=\"{height}\" role=\"img\" aria-label=\"utilisation by policy\">",
        LEFT + BAR.0 + 60
    );
    for ((name, _), row) in at.policies.iter().zip(0_u64..) {
        let top = row * (BAR.1 + 6);
        let of = |figure: fn(&Figures) -> u64| at.estimate(name, figure).map_or(0, |estimate| estimate.mean);
        let (all, useful) = (of(|f| f.utilisation), of(|f| f.useful));
        let text = top + BAR.1 - 5;
        let _ = write!(page, "<text x=\"0\" y=\"{text}\">{}</text>", escaped(name));
        for (share, colour) in [all, useful].into_iter().zip(COLOURS) {
            let width = share * BAR.0 / 1_000_000;
            let _ = write!(
                page,
                "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width}\" height=\"{}\" fill=\"{colour}\"/>",
                BAR.1
            );
        }
        let at = LEFT + all * BAR.0 / 1_000_000 + 6;
        let _ = write!(page, "<text x=\"{at}\" y=\"{text}\">{} %</text>", percent(all));
    }
    page.push_str("</svg>");
}

#[cfg(test)]
mod tests {
    use souk_protocol::Millis;

    use super::*;

    #[test]
    fn a_page_has_the_label_a_bar_for_each_policy_and_nothing_that_a_name_could_inject() {
        let figures = Figures { utilisation: 900_000, useful: 800_000, ..Figures::default() };
        let study = Study {
            label: "simulated (seeds 1-1, <trace>)".to_owned(),
            notes: vec!["a & b".to_owned()],
            loads: vec![AtLoad {
                load: 700_000,
                span: Millis(7_200_000),
                policies: vec![("souk".to_owned(), vec![figures]), ("fifo".to_owned(), vec![figures])],
            }],
            efficiency: Vec::new(),
            instances: 0,
        };
        let page = study.html();
        assert!(
            page.contains("<p class=\"label\">simulated (seeds 1-1, &lt;trace&gt;)</p>") && page.contains("a &amp; b")
        );
        assert_eq!(page.matches("<rect ").count(), 4);
        assert!(page.contains("width=\"288\"") && page.contains("width=\"256\"") && page.contains(">90.0 %</text>"));
        assert!(page.contains("Load 70.0 %, 2.0 h of arrivals"));
    }
}
