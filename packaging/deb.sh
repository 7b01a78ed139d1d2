#!/bin/sh
# Makes a Debian package of the commands that `make build` has built, and checks it with lintian.
#
#   usage: deb.sh OUT
#
# Leaves OUT/kshrink_VERSION_ARCH.deb and prints its path. The package has the commands without symbols,
# their man pages and completions, and share/kshrink/. Its maintainer is "$DEBFULLNAME <$DEBEMAIL>",
# or the author of the last commit; its date is SOURCE_DATE_EPOCH, or that of the last commit.
#
# Exit status: 0 the package is there and lintian has nothing to say of it; 1 otherwise.
set -eu

die() { echo "deb.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: deb.sh OUT (see the head of $0)"
mkdir -p "$1"
out=$(cd "$1" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
"$top/fixtures/install.sh" deb

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$top/Cargo.toml")
arch=$(dpkg --print-architecture)
commit() { git -C "$top" log -1 --format="$1" 2>/dev/null; }
name=${DEBFULLNAME:-$(commit %an)} || die "who makes the package? Set DEBFULLNAME and DEBEMAIL"
mail=${DEBEMAIL:-$(commit %ae)} || die "who makes the package? Set DEBFULLNAME and DEBEMAIL"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(commit %ct || date +%s)}
export SOURCE_DATE_EPOCH

umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/debian/kshrink
share=$root/usr/share
make -s --no-print-directory -C "$top" install DESTDIR="$root" PREFIX=/usr >&2

# Debian's zsh looks here.
mv "$share/zsh/site-functions" "$share/zsh/vendor-completions"
find "$share/man" -type f -exec gzip -9n {} +

mkdir -p "$share/doc/kshrink" "$root/DEBIAN"
cp "$top/packaging/copyright" "$share/doc/kshrink/copyright"
gzip -9nc >"$share/doc/kshrink/changelog.gz" <<END
kshrink ($version) unstable; urgency=medium

  * Build of version $version.

 -- $name <$mail>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END

# The packages of the shared libraries. dpkg-shlibdeps reads a control file of a source package.
printf 'Source: kshrink\n\nPackage: kshrink\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O "$root"/usr/bin/* | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || die "dpkg-shlibdeps finds no library that the commands are linked with"

cat >"$root/DEBIAN/control" <<END
Package: kshrink
Version: $version
Architecture: $arch
Maintainer: $name <$mail>
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Depends: $libraries
Recommends: binutils, gcc, make
Suggests: libclang1-14, qemu-system-arm, qemu-system-x86
Section: devel
Priority: optional
Description: link-time shrinker for Linux kernels
 kshrink makes a Linux kernel fit the device it runs on. It takes the objects
 that the kernel's build linked, removes the system calls that the programs of
 the device cannot make and all code and data that nothing reaches then, and
 has the kernel's own build link the rest. Code that did not run can stay
 packed in memory until something touches it.
 .
 It supports kernels for i386, x86-64 and 32-bit ARM, and scans programs for i386,
 amd64, 32-bit ARM and arm64.
END
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

deb=kshrink_${version}_$arch.deb
dpkg-deb --root-owner-group --uniform-compression -Zxz --build "$root" "$work/$deb" >/dev/null
lintian --fail-on error,warning --info --profile debian "$work/$deb" >&2 || die "lintian objects to the package"
mv "$work/$deb" "$out/$deb"
echo "$out/$deb"
