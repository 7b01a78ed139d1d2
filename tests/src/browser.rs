//! Opening the pages that commands write in a browser.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The state of a page after a script has used it like a person.
pub struct Visit {
    document: String,
}

impl Visit {
    /// Opens a page in Chromium without network access, and runs a script in it. The script stores its observations in
    /// attributes of the body: `document.body.dataset.NAME`.
    ///
    /// # Panics
    /// If there is no Chromium, or the page refers to anything external.
    #[track_caller]
    pub fn new(page: &str, script: &str) -> Visit {
        let own = without_data(page);
        for reference in ["http://", "https://", "src=", "<link", "url(", "import "] {
            assert!(!own.contains(reference), "the page refers to something else: {reference}");
        }
        assert!(page.contains("default-src 'none'"), "the page has no policy");
        assert_eq!(page.matches("</body>").count(), 1);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("page.html");
        let visited = page.replace("</body>", &format!("<script>{{\n{script}}}</script></body>"));
        fs::write(&path, visited).expect("write the page");
        Visit { document: loaded(&path, &dir.path().join("profile")) }
    }

    /// Returns an observation of the script.
    #[track_caller]
    pub fn noted(&self, name: &str) -> String {
        let body = self.document.split_once("<body").map_or("", |(_, body)| body);
        let tag = body.split_once('>').map_or("", |(tag, _)| tag);
        let Some((_, value)) = tag.split_once(&format!("data-{name}=\"")) else {
            panic!("the script has noted no {name} in <body{tag}>");
        };
        let value = value.split('"').next().unwrap_or_default();
        [("&quot;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", "\u{a0}"), ("&amp;", "&")]
            .into_iter()
            .fold(value.to_owned(), |text, (entity, character)| text.replace(entity, character))
    }
}

/// Returns a page without its embedded documents, whose names can contain anything.
fn without_data(page: &str) -> String {
    let mut parts = page.split("<script type=\"application/json\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("</script>").map_or(part, |(_, rest)| rest))
}

/// Returns the document in the browser after its scripts have run.
#[track_caller]
fn loaded(page: &Path, profile: &Path) -> String {
    let output = Command::new("chromium")
        // The sandbox needs privileges that a container lacks, and the page is trusted.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=1000", "--dump-dom"])
        .args(["--window-size=1280,800", "--host-resolver-rules=MAP * ~NOTFOUND"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("run chromium; install the package chromium");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a document")
}
