#!/bin/sh
# Prints the code of a kernel that makes the list of objects in a new slab, as options of the plugin accesses.c:
# slab=0xSTART-0xEND,... On 32-bit ARM, the lowest bit of an address says that the code is Thumb code.
#
#   usage: slab-places.sh VMLINUX
set -eu

[ $# -eq 1 ] || { echo "usage: $0 VMLINUX" >&2; exit 2; }
[ -r "$1" ] || { echo "slab-places.sh: $1 cannot be read" >&2; exit 1; }
LC_ALL=C readelf -sW "$1" | awk '
    $4 == "FUNC" && $3 > 0 && $8 ~ /^(new_slab|allocate_slab|shuffle_freelist|setup_object|next_freelist_entry)([.].*)?$/ {
        printf "%s%s %s\n", "0x", $2, $3
    }' | {
    options=
    while read -r start size; do
        start=$((start & ~1))
        options="$options${options:+,}slab=$(printf '0x%x-0x%x' "$start" $((start + size)))"
    done
    [ -n "$options" ] || { echo "slab-places.sh: $1 has no symbol new_slab or allocate_slab (mm/slub.c)" >&2; exit 1; }
    echo "$options"
}
