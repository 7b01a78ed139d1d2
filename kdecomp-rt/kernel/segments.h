/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef KSHRINK_SEGMENTS_H
#define KSHRINK_SEGMENTS_H

/*
 * Returns the size in KiB of the memory between sections that only a kernel with packed segments can use
 * (arm_segments.c).
 */
unsigned long kshrink_packed_kib(void);

#endif
