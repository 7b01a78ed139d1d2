//! Strings in an object's data that may name libraries to load at run time.

/// Maximum number of strings per object; the largest objects have some dozen.
const MAX_NAMES: usize = 1000;

/// Maximum length of a string: the maximum length of a path.
const MAX_LENGTH: usize = 4096;

/// Returns the strings that contain `.so` and only characters of file names.
pub(super) fn libraries(bytes: &[u8]) -> Vec<String> {
    let dots = bytes.windows(3).enumerate().filter(|(_, window)| window == b".so");
    strings(bytes, dots.map(|(at, _)| at)).filter(|name| is_library(name)).take(MAX_NAMES).collect()
}

/// Returns the strings that end in `/gconv`, the directories of glibc's character conversion modules.
pub(super) fn conversion_directories(bytes: &[u8]) -> Vec<String> {
    let ends = bytes.windows(7).enumerate().filter(|(_, window)| window == b"/gconv\0");
    let strings = strings(bytes, ends.map(|(at, _)| at));
    strings.filter(|name| name.starts_with('/') && name.ends_with("/gconv")).take(MAX_NAMES).collect()
}

/// Returns the strings around these places.
fn strings<'b>(
    bytes: &'b [u8],
    places: impl Iterator<Item = usize> + 'b,
) -> impl Iterator<Item = String> + 'b {
    let part = |&byte: &u8| byte.is_ascii_graphic();
    places.filter_map(move |at| {
        let before = bytes[..at].iter().rev().take(MAX_LENGTH).take_while(|byte| part(byte)).count();
        let after = bytes[at..].iter().take(MAX_LENGTH).take_while(|byte| part(byte)).count();
        let ends = bytes.get(at + after) == Some(&0);
        let string = std::str::from_utf8(&bytes[at - before..at + after]).ok()?;
        ends.then(|| string.to_owned())
    })
}

/// Returns whether a string may be the name of a library: it ends in `.so` or in `.so` and a version.
fn is_library(name: &str) -> bool {
    let Some((_, version)) = name.rsplit_once(".so") else { return false };
    version.is_empty() || version.starts_with('.') && !name.contains(['%', '*', '('])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let bytes = b"cannot open libx.so.1\0libgcc_s.so.1\0a.soft\0/usr/lib/m.so\0libnss_%s.so%s\0x.so";
        assert_eq!(libraries(bytes), ["libx.so.1", "libgcc_s.so.1", "/usr/lib/m.so"]);
        let bytes = b"gconv\0/usr/lib/x86_64-linux-gnu/gconv\0/gconv/x\0";
        assert_eq!(conversion_directories(bytes), ["/usr/lib/x86_64-linux-gnu/gconv"]);
    }
}
