//! A page with a treemap: areas within areas, in proportion to their bytes.
//!
//! The scripts build on one another in this order:
//!
//! 1. `document.js` reads data, makes elements and formats figures;
//! 2. `tree.js` has the nodes, and the sums over them; `squarify.js` divides an area;
//! 3. `treemap.js` draws a node, and marks others in it;
//! 4. `table.js` makes tables, some of them sortable;
//! 5. `explorer.js` connects the map with the path, the legend, the panel and the search.
//!
//! The script of a page follows. It makes the tree from its data, and an `Explorer` with callbacks for everything that
//! differs between pages.

use std::fmt::{self, Display};

use crate::{Escaped, Page};

const STYLE: &str = concat!(include_str!("explorer.css"), include_str!("treemap.css"));
const SCRIPT: &str = concat!(
    include_str!("document.js"),
    include_str!("tree.js"),
    include_str!("squarify.js"),
    include_str!("treemap.js"),
    include_str!("table.js"),
    include_str!("explorer.js"),
);

/// The parts of a page with a treemap. Its script finds the areas of the page by their `id`: `input` and `figures` in the
/// head, `modes` and `switches` over the map, and `tables` below it.
pub struct Explorer<'a> {
    /// The title.
    pub title: &'a str,
    /// The label of the map, for people who cannot see it.
    pub map: &'a str,
    /// The label of the search.
    pub search: &'a str,
    /// CSS, added to the common style.
    pub style: &'a str,
    /// JSON documents for the script, each with the `id` of the element that holds it.
    pub data: &'a [(&'a str, &'a str)],
    /// The script, added to the common one.
    pub script: &'a str,
}

impl Display for Explorer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [title, map, search] = [self.title, self.map, self.search].map(|text| Escaped(text).to_string());
        let body = format!(
            "<header>\n<h1>{title}</h1>\n<p class=\"faint\" id=\"input\"></p>\n\
             <dl class=\"figures\" id=\"figures\"></dl>\n</header>\n\
             <main>\n<section class=\"map-side\" aria-labelledby=\"map-title\">\n\
             <h2 id=\"map-title\" class=\"hidden\">{map}</h2>\n\
             <div class=\"controls\">\n<div class=\"choice\" role=\"group\" aria-label=\"Colours and areas of the map\" id=\"modes\"></div>\n\
             <div class=\"switches\" id=\"switches\"></div>\n\
             <form id=\"find\" role=\"search\"><input type=\"search\" id=\"query\" placeholder=\"{search}\" \
             aria-label=\"{search}\" autocomplete=\"off\" spellcheck=\"false\"></form>\n</div>\n\
             <nav class=\"path\" id=\"path\" aria-label=\"Place in the map\"></nav>\n\
             <div class=\"treemap\" id=\"treemap\" role=\"group\" aria-label=\"{map}\"></div>\n\
             <p class=\"status\" id=\"status\"></p>\n<div class=\"legend\" id=\"legend\"></div>\n</section>\n\
             <aside class=\"panel\" id=\"panel\" aria-live=\"polite\" aria-label=\"Details\"></aside>\n</main>\n\
             <div class=\"tables\" id=\"tables\"></div>\n"
        );
        let style = format!("{STYLE}{}", self.style);
        let script = format!("{SCRIPT}{}", self.script);
        Page { title: self.title, style: &style, body: &body, data: self.data, script: &script }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let page = Explorer { title: "<t>", map: "\"m\"", search: "s", style: "", data: &[], script: "" };
        let page = page.to_string();
        assert!(
            page.contains("<h1>&lt;t&gt;</h1>") && page.contains("aria-label=\"&quot;m&quot;\""),
            "{page}"
        );
    }
}
