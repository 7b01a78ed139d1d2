#!/bin/sh
# Copies the build directory of a kernel, so that make compiles nothing anew in the copy.
#
#   usage: copy-build.sh BUILD COPY
#
# COPY must not exist. The build of objtool (tools/build/Build.include) records absolute paths. With the paths of another
# directory, make would compile objtool again, and then every object that objtool has checked.
set -eu

die() { echo "copy-build.sh: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: copy-build.sh BUILD COPY"
[ -d "$1" ] || die "$1 is not a directory"
[ ! -e "$2" ] || die "$2 exists"
mkdir -p "$(dirname "$2")"
copy=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
cp -a --reflink=auto "$1/." "$copy.partial"
mv "$copy.partial" "$copy"
[ -d "$copy/tools" ] || exit 0
(cd "$copy" && find tools -name '.*.cmd') | while read -r record; do
    # A record begins with the path of its target.
    built=$(sed -n "1s|^cmd_\(/.*\)/${record%/*}/[^/]* := .*|\1|p" "$copy/$record")
    [ -n "$built" ] || continue
    sed "s|$built/|$copy/|g" "$copy/$record" >"$copy/$record.new"
    touch -r "$copy/$record" "$copy/$record.new"
    mv "$copy/$record.new" "$copy/$record"
done
