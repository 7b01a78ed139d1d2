/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For programs that stay as they are: LD_PRELOAD=libkcustom-preload.so asks for code for each datagram socket that is connected. The
 * program's own send(2) then takes the code, because its facts hold for this socket. The token is kept until the descriptor is
 * closed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libkcustom.h"

/* Descriptors from here on have no token. */
#define DESCRIPTORS 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* By descriptor: its token + 1; 0 if there is none. */
static int tokens[DESCRIPTORS];

static int put(int fd, int token)
{
	int before = 0;

	if (fd < 0 || fd >= DESCRIPTORS)
		return token;
	pthread_mutex_lock(&lock);
	before = tokens[fd];
	tokens[fd] = token + 1;
	pthread_mutex_unlock(&lock);
	return before - 1;
}

/* Closes without a look at errno, which belongs to the program. */
static void cancel(int token)
{
	int (*original)(int) = dlsym(RTLD_NEXT, "close");
	int error = errno;

	if (token >= 0)
		original(token);
	errno = error;
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
	int (*original)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
	int result = original(fd, address, size), error = errno, type = 0;
	socklen_t width = sizeof(type);

	if (!result && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &width) && type == SOCK_DGRAM)
		cancel(put(fd, do_customize_send(fd)));
	errno = error;
	return result;
}

int close(int fd)
{
	int (*original)(int) = dlsym(RTLD_NEXT, "close");

	cancel(put(fd, -1));
	return original(fd);
}

int dup2(int from, int to)
{
	int (*original)(int, int) = dlsym(RTLD_NEXT, "dup2");

	if (from != to)
		cancel(put(to, -1));
	return original(from, to);
}

int dup3(int from, int to, int flags)
{
	int (*original)(int, int, int) = dlsym(RTLD_NEXT, "dup3");

	if (from != to)
		cancel(put(to, -1));
	return original(from, to, flags);
}

int close_range(unsigned first, unsigned last, int flags)
{
	int (*original)(unsigned, unsigned, int) = dlsym(RTLD_NEXT, "close_range");
	unsigned fd;

	/* CLOSE_RANGE_UNSHARE and CLOSE_RANGE_CLOEXEC leave other descriptors. */
	for (fd = first; !flags && fd <= last && fd < DESCRIPTORS; fd++)
		cancel(put(fd, -1));
	return original(first, last, flags);
}
