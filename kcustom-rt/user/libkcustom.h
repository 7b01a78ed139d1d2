/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends on one socket by code that is made for it (the paper, section 2.1). */
#ifndef LIBKCUSTOM_H
#define LIBKCUSTOM_H

#include <sys/types.h>

/*
 * Returns a token for a socket: a descriptor that holds it, and sends what customized_send gives it. Its code arrives later, or
 * never; until then it sends as send(2) does. Returns -1 with errno on errors; ENOENT: the kernel has no gates.
 */
int do_customize_send(int socket);

/* Sends a message, as send(2) without flags. */
ssize_t customized_send(int token, const void *message, size_t size);

/* Gives the token back. Returns -1 with errno on errors. */
int cancel_customize(int token);

#endif
