#!/bin/sh
# Stands in the place of scripts/kallsyms in the copy of a build directory, and adds frozen code to
# the kernel's table of symbols:
#
#   kallsyms OPTION... MAP
#
# The tool itself, scripts/kallsyms.kernel, leaves out absolute symbols, which those of frozen code
# are to the link, and what is not between _stext and _etext or _sinittext and _einittext. So it gets
# what it would have taken of the map (symbol_valid() of scripts/kallsyms.c), and the symbols of
# scripts/kallsyms.frozen, and is told to take all.
set -eu

here=$(dirname "$0")
options='' map='' all=
for word; do
    case $word in
        --all-symbols) all=yes ;;
        -*) options="$options $word" ;;
        *) map=$word ;;
    esac
done
# The first table of a link is an empty one.
[ -s "$map" ] || exec "$here/kallsyms.kernel" "$@"
# Addresses are compared as strings: they have eight digits each.
awk -v all="$all" '
    FNR == NR { if ($3 ~ /^_[se](init)?text$/) bound[$3] = $1 ""; next }
    $2 ~ /^[aAuUnN]$/ { next }
    all || $3 == "_text" || $3 ~ /^__st(art|op)_/ { print; next }
    $1 "" == bound["_etext"] && $3 != "_etext" || $1 "" == bound["_einittext"] && $3 != "_einittext" { next }
    $1 "" >= bound["_stext"] && $1 "" <= bound["_etext"] { print; next }
    $1 "" >= bound["_sinittext"] && $1 "" <= bound["_einittext"]
' "$map" "$map" | cat - "$here/kallsyms.frozen" >"$map.frozen"
# shellcheck disable=SC2086 # one word an option
"$here/kallsyms.kernel" $options --all-symbols "$map.frozen"
