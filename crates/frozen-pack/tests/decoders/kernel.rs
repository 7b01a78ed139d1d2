//! The decoder in C restores all code and read-only data of a kernel, and the packed size stays below a limit.

use frozen_pack::bench::bench;
use frozen_pack::codec::pack::pack;
use frozen_pack::input::sections;
use kshrink_tests::recipe;

use crate::both::{decode_in_c, decoder};

/// Packs a kernel; `most` limits the packed sizes of code and data relative to the originals.
fn kernel(name: &str, most: [f64; 2]) {
    recipe("install.sh", &["kernel"]);
    let kernel = recipe("kernels/build.sh", &[name]);
    let file = std::fs::read(kernel.join("vmlinux")).unwrap();
    let pieces = sections(&file, &[".text", ".rodata"]).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let packed = pack(&pieces, 4096).unwrap().write().unwrap();
    let expected = pieces.iter().flat_map(|piece| piece.bytes.chunks(4096).map(|page| Some(page.to_vec())));
    assert_eq!(decode_in_c(&decoder(dir.path()), &[packed]), [Some(expected.collect())]);

    let rows = bench(&pieces, 4096).unwrap();
    for (part, most) in ["code", "data"].into_iter().zip(most) {
        let row = rows.iter().find(|row| row.part == part && row.coder == "frozen-pack").unwrap();
        assert!(row.ratio <= most, "{row:?}");
        let others = rows.iter().filter(|other| other.part == part && other.coder != row.coder);
        assert!(others.min_by(|a, b| a.ratio.total_cmp(&b.ratio)).unwrap().ratio > row.ratio);
    }
}

#[test]
fn the_web_kernel() {
    kernel("web-i386", [0.54, 0.35]);
}

#[test]
#[ignore = "builds one more kernel"]
fn the_web_kernel_of_x86_64() {
    // Three fifths of the code are zeros around mitigations.
    kernel("web-x86_64", [0.21, 0.30]);
}

#[test]
#[ignore = "builds one more kernel"]
fn the_web_kernel_in_thumb_code() {
    kernel("arm-virt", [0.64, 0.40]);
}
