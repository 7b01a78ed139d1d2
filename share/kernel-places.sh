#!/bin/sh
# Prints the options of the QEMU plugin trace.c for a kernel: the addresses of its code and its read-only
# data, the distance from physical to virtual addresses, and the function that ends its boot.
#
#   usage: kernel-places.sh VMLINUX
set -eu

die() { echo "kernel-places.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: kernel-places.sh VMLINUX"
kernel=$1
symbols=$(nm "$kernel") || die "nm (package binutils) cannot list the symbols of $kernel"
# address SYMBOL: prints it as a hexadecimal number.
address() {
    found=$(echo "$symbols" | awk -v name="$1" '$3 == name { print "0x" $1; exit }')
    [ -n "$found" ] || die "$kernel has no symbol $1; expected a kernel's vmlinux with its symbols"
    echo "$found"
}
start=$(address _stext)
end=$(address _etext)
data=$(address __start_rodata)
data_end=$(address __end_rodata)
boot=$(address free_initmem)
# On ARM, the lowest bit of a function's address marks Thumb code.
machine=$(readelf -hW "$kernel" | sed -n 's/^ *Machine: *//p')
[ "$machine" != ARM ] || boot=$(printf '0x%x' $((boot & ~1)))
# A shell calculates with less than 64 bits, so the halves are subtracted.
readelf -lW "$kernel" | awk '$1 == "LOAD" {
    for (i = 3; i <= 4; i++) {
        digits = substr($i, 3)
        while (length(digits) < 16) digits = "0" digits
        print "0x" substr(digits, 1, 8), "0x" substr(digits, 9)
    }
    exit
}' | {
    read -r high low
    read -r physical_high physical_low
    low=$((low - physical_low))
    high=$((high - physical_high - (low < 0)))
    printf 'code=%s-%s,data=%s-%s,offset=0x%x,boot=%s\n' \
        "$start" "$end" "$data" "$data_end" $((high * (1 << 32) + (low & 0xffffffff))) "$boot"
}
