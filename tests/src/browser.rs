//! Pages that a command writes, as a browser shows them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A page after a script has used it as a person does.
pub struct Visit {
    document: String,
}

impl Visit {
    /// Opens a page in Chromium, which finds no host, and runs a script in it. The script leaves what it has seen in
    /// attributes of the body: `document.body.dataset.NAME`.
    ///
    /// # Panics
    /// If there is no Chromium, or the page refers to anything outside of itself.
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

    /// What the script left under a name.
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

/// A page without the documents in it, whose names can hold anything.
fn without_data(page: &str) -> String {
    let mut parts = page.split("<script type=\"application/json\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("</script>").map_or(part, |(_, rest)| rest))
}

/// The document as a browser has it after the scripts.
#[track_caller]
fn loaded(page: &Path, profile: &Path) -> String {
    let output = Command::new("chromium")
        // The sandbox needs more of the system than a container gives; the page is our own.
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
