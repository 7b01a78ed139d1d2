/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages between kcustomd and `customize serve`: a head, and content. All numbers are little-endian. */
#ifndef KCUSTOM_WIRE_H
#define KCUSTOM_WIRE_H

#include <stdint.h>

struct wire_head {
	uint32_t kind;
	uint32_t size; /* bytes of content */
};

/* From the device. */
enum {
	WIRE_BUILD = 1,   /* the build of its kernel */
	WIRE_REQUEST = 2, /* the address of a socket */
	WIRE_MEMORY = 3,  /* what the server wanted to read; empty if it cannot be read */
	WIRE_LOADED = 4,  /* 0, or an error number */
};

/* From the server. */
enum {
	WIRE_READ = 1, /* an address, and a size in bytes */
	WIRE_CODE = 2,
	WIRE_NONE = 3, /* the reason why there is no code */
};

#define WIRE_MAX (1 << 16)

#endif
