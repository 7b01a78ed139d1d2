//! The result of a command, and a page for a browser beside it.

use std::path::Path;

use crate::output::Output;
use crate::run::Failure;

/// Opens the result of a command and its page for a browser. `is_asked` is whether an option asks for the
/// result. A page replaces a result that no option and no path asks for.
///
/// # Errors
/// Bad input if both have the same path; the errors of [`Output::create`].
pub fn create_with_page(
    output: Option<&Path>,
    page: Option<&Path>,
    is_asked: bool,
) -> Result<(Option<Output>, Option<Output>), Failure> {
    let is_written = page.is_none() || is_asked || output.is_some();
    let output = is_written.then(|| output.unwrap_or(Path::new("-")));
    if let (Some(output), Some(page)) = (output, page)
        && is_same(output, page)
        && page != Path::new("/dev/null")
    {
        let name = if page == Path::new("-") { "standard output".into() } else { page.display().to_string() };
        return Err(Failure::bad_input(format!(
            "{name}: the page of --html and the other output cannot both be there; name another file with --output"
        )));
    }
    Ok((output.map(Output::create).transpose()?, page.map(Output::create).transpose()?))
}

/// Whether two paths name one file, as far as their text tells.
fn is_same(one: &Path, other: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    one == other || absolute(one) == absolute(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_replaces_a_result_that_nobody_asks_for() {
        let opened = |output: Option<&str>, page: Option<&str>, is_asked| {
            let outputs = create_with_page(output.map(Path::new), page.map(Path::new), is_asked);
            outputs.map(|(output, page)| (output.is_some(), page.is_some()))
        };
        assert_eq!(opened(None, None, false).unwrap(), (true, false));
        assert_eq!(opened(None, Some("-"), false).unwrap(), (false, true));
        assert_eq!(opened(None, Some("/dev/null"), true).unwrap(), (true, true));
        assert_eq!(opened(Some("/dev/null"), Some("-"), false).unwrap(), (true, true));
        assert!(opened(Some("same"), Some("./same"), false).is_err());
        let both = opened(None, Some("-"), true).unwrap_err();
        assert!(
            both.exit_code() == 2 && both.message().starts_with("standard output: "),
            "{}",
            both.message()
        );
    }
}
