/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The messages between kcustomd and `customize serve`: a head, and content. All numbers are little-endian.
 *
 * A device begins with WIRE_HELLO, and skips everything up to the WIRE_READY with its number. A server skips everything up to
 * the next WIRE_HELLO after a message that it does not understand, or that comes too late. So both find each other again on a
 * serial line, whose ends do not see each other go.
 */
#ifndef KCUSTOM_WIRE_H
#define KCUSTOM_WIRE_H

#include <stdint.h>

struct wire_head {
	uint32_t kind;
	uint32_t size; /* bytes of content */
};

struct wire_hello {
	uint8_t build[32]; /* of the kernel */
	uint32_t number;   /* another one each time */
};

/* From the device. */
enum {
	WIRE_HELLO = 1,   /* struct wire_hello */
	WIRE_REQUEST = 2, /* the address of a socket */
	WIRE_MEMORY = 3,  /* what the server wanted to read; empty if it cannot be read */
	WIRE_LOADED = 4,  /* 0, or an error number */
};

/* From the server. */
enum {
	WIRE_READ = 1, /* an address, and a size in bytes */
	WIRE_CODE = 2,
	WIRE_NONE = 3, /* the reason why there is no code */
	WIRE_READY = 4, /* the number of a WIRE_HELLO */
};

#define WIRE_MAX (1 << 16)

#endif
