//! The frame of a page: its policy, its data, and the style that all pages share.

use std::fmt::{self, Display, Write as _};

/// The style that all pages share.
const BASE_STYLE: &str = include_str!("base.css");

/// The parts of a page.
pub struct Page<'a> {
    /// The title.
    pub title: &'a str,
    /// CSS, added to the common style.
    pub style: &'a str,
    /// The content of the body, as HTML.
    pub body: &'a str,
    /// JSON documents for the script, each with the `id` of the element that holds it.
    pub data: &'a [(&'a str, &'a str)],
    /// The script.
    pub script: &'a str,
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Page { title, style, body, data, script } = self;
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>\n{BASE_STYLE}{style}</style>\n</head>\n<body>\n{body}",
            Escaped(title)
        )?;
        for (id, json) in *data {
            // Escape `<`, so that no data can end the element.
            let json = json.replace('<', "\\u003c");
            writeln!(f, "<script type=\"application/json\" id=\"{id}\">{json}</script>")?;
        }
        write!(f, "<script>\n{script}</script>\n</body>\n</html>\n")
    }
}

/// Text in a document or an attribute.
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_html_is_escaped() {
        assert_eq!(Escaped("a<b> & \"c\"").to_string(), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn data_cannot_end_its_element() {
        let data = [("data", "\"</script>\"")];
        let page = Page { title: "<t>", style: "", body: "", data: &data, script: "" }.to_string();
        assert!(page.contains("id=\"data\">\"\\u003c/script>\"</script>"), "{page}");
        assert!(page.contains("<title>&lt;t&gt;</title>"), "{page}");
    }
}
