/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kcustom.h"
#include "libkcustom.h"

int do_customize_send(int socket)
{
	int device = open(KCUSTOM_DEVICE, O_RDWR | O_CLOEXEC), token;

	if (device < 0)
		return -1;
	token = ioctl(device, KCUSTOM_TOKEN, &socket);
	close(device);
	return token;
}

ssize_t customized_send(int token, const void *message, size_t size)
{
	return write(token, message, size);
}

int cancel_customize(int token)
{
	return close(token);
}
