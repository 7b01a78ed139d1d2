/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The interface of /dev/kcustom, and the format of a loaded path.
 *
 * A program asks for a token of an internet socket (KCUSTOM_TOKEN): a file descriptor that sends what is written to it, and
 * holds the socket. close(2) cancels it. The daemon, which needs CAP_SYS_ADMIN, takes the requests that follow from it
 * (KCUSTOM_NEXT), reads the memory of the objects (KCUSTOM_READ), and loads code (KCUSTOM_LOAD).
 */
#ifndef KCUSTOM_H
#define KCUSTOM_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KCUSTOM_DEVICE "/dev/kcustom"

/* A request: the address of the `struct socket` whose token was made. It exists until the next request is taken. */
struct kcustom_request {
	__u32 socket;
};

/* Memory of the kernel. */
struct kcustom_memory {
	__u32 address;
	__u32 size;
	__u32 to;
};

/* A path in the memory of the daemon. */
struct kcustom_code {
	__u32 from;
	__u32 size;
};

/* Numbers since boot, except for paths, bytes and leaving. */
struct kcustom_statistics {
	__u32 paths;    /* loaded now */
	__u32 bytes;    /* of their code */
	__u32 limit;    /* of these bytes */
	__u32 leaving;  /* paths that were dropped, but are running */
	__u32 loaded;
	__u32 shared;   /* loads of a path that was there */
	__u32 refused;  /* loads with another key, for another kernel, or damaged */
	__u32 dropped;
	__u32 tokens;   /* made */
	__u32 hits;     /* calls that took a loaded path */
};

#define KCUSTOM_TOKEN _IOW('k', 0x70, __s32)
#define KCUSTOM_NEXT _IOR('k', 0x71, struct kcustom_request)
#define KCUSTOM_READ _IOW('k', 0x72, struct kcustom_memory)
#define KCUSTOM_LOAD _IOW('k', 0x73, struct kcustom_code)
#define KCUSTOM_DROP _IO('k', 0x74)
#define KCUSTOM_LIMIT _IOW('k', 0x75, __u32)
#define KCUSTOM_STATISTICS _IOR('k', 0x76, struct kcustom_statistics)
#define KCUSTOM_BUILD _IOR('k', 0x77, __u8[32])
/*
 * For programs: the same request for a socket without a token. EAGAIN if there is no daemon, or it has too much to do. The
 * request holds the socket until the daemon takes it.
 */
#define KCUSTOM_ASK _IOW('k', 0x78, __s32)

/*
 * A path: this head, the code, and then offsets in the code, of 4 bytes each: `calls` fields with the distance from a place to
 * an address of the kernel, computed for code at 0; `nexts` fields for the address of the pointer to what runs if a fact
 * does not hold; `counts` fields for the address of the counter of hits. All numbers are little-endian.
 */
#define KCUSTOM_MAGIC 0x3150434b /* KCP1 */
#define KCUSTOM_MAX (64 << 10)

struct kcustom_head {
	__u32 magic;
	__u32 entry;  /* address of the function whose callers take the path */
	__u32 code;   /* bytes, a multiple of 4 */
	__u32 calls;
	__u32 nexts;
	__u32 counts;
	__u8 build[32]; /* BLAKE2s of the kernel's ELF notes */
	__u8 seal[32];  /* BLAKE2s with the device's key of the whole, with zeros here */
};

#endif
