/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For programs that stay as they are: LD_PRELOAD=libkcustom-preload.so asks for code for each datagram socket that is connected. The
 * program's own send(2) then takes the code, because its facts hold for this socket.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kcustom.h"

/* Asks, as far as that is possible: there may be no daemon. */
static void ask(int fd)
{
	int type = 0, device;
	socklen_t size = sizeof(type);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_DGRAM)
		return;
	device = open(KCUSTOM_DEVICE, O_RDWR | O_CLOEXEC);
	if (device < 0)
		return;
	ioctl(device, KCUSTOM_ASK, &fd);
	close(device);
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
	int (*original)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
	int result = original(fd, address, size), error = errno;

	if (!result && address->sa_family == AF_INET)
		ask(fd);
	errno = error;
	return result;
}
