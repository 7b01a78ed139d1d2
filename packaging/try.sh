#!/bin/sh
# Installs the Debian package in a bare Debian 12, uses it there, and removes it again.
#
#   usage: try.sh DEB
#
# The root is made for this purpose by mmdebstrap (from what apt has as its sources) and not kept. Root
# is not needed where mmdebstrap can use a user namespace. Takes a minute.
#
# Exit status: 0 the package can be installed and used, and leaves nothing when it is purged; 1 not.
set -eu

die() { echo "try.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: try.sh DEB (see the head of $0)"
[ -f "$1" ] || die "$1 is not a file"
here=$(cd "$(dirname "$0")" && pwd)
"$here/../fixtures/install.sh" deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cp "$1" "$work/kshrink.deb"

# What happens in the new root.
cat >"$work/inside.sh" <<'END'
set -eu
# Caches and logs belong to dpkg and man-db.
listed() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/cache -o -path /var/log \
    -o -path /var/lib/dpkg \) -prune -o -print | LC_ALL=C sort; }
listed >/tmp/before
apt-get install -qq -y --no-install-recommends /tmp/kshrink.deb >/tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
for command in $(dpkg -L kshrink | sed -n 's/^\/usr\/bin\///p'); do
    $command --version
    page=$(man -w "$command")
    [ "$page" = "/usr/share/man/man1/$command.1.gz" ] || { echo "$command: its man page is $page" >&2; exit 1; }
    # Without terminal, man -warnings says what groff cannot read.
    warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l "$page" 2>&1 >/tmp/page)
    [ -z "$warnings" ] || { echo "$command: its man page: $warnings" >&2; exit 1; }
    grep -q -e --help /tmp/page || { echo "$command: its man page does not name --help" >&2; exit 1; }
done
for file in kshrink.mk trace.c allocations.c accesses.c plugin.h kcustomd.c libkcustom-preload.c copy-build.sh kernel-places.sh slab-places.sh; do
    [ -f /usr/share/kshrink/$file ] || { echo "share/kshrink/$file is missing" >&2; exit 1; }
done
syscall-scan --format nr /bin/true >/tmp/calls
[ -s /tmp/calls ] || { echo "syscall-scan finds no call in /bin/true" >&2; exit 1; }
dpkg --purge kshrink >/tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
listed >/tmp/after
diff /tmp/before /tmp/after >&2 || { echo "the package leaves files, or takes others with it" >&2; exit 1; }
! grep -q '^Package: kshrink$' /var/lib/dpkg/status || { echo "dpkg still knows the package" >&2; exit 1; }
END

set -- --variant=minbase --include=man-db --format=null \
    --customize-hook="copy-in $work/kshrink.deb $work/inside.sh /tmp" \
    --customize-hook='chroot "$1" sh /tmp/inside.sh >&2' bookworm /dev/null
# The lists that name Debian; others need certificates, or more.
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    ! grep -qs debian "$list" || set -- "$@" "$list"
done
mmdebstrap "$@" >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; die "the package failed in a new Debian 12"; }
grep -E '^[a-z-]+ [0-9]+\.' "$work/log"
echo "installed, used and purged in a new Debian 12"
