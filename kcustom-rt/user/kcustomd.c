/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * kcustomd: takes the requests of programs for code for their sockets from the kernel to a server, and loads what it answers.
 *
 *   usage: kcustomd HOST:PORT     a server over TCP; HOST is an address
 *          kcustomd FILE          a server behind a serial line or virtio port
 *          kcustomd --statistics  prints the numbers of the kernel
 *          kcustomd --drop        drops all loaded code
 *          kcustomd --limit N     limits loaded code to N bytes
 *
 * Without a server, with a slow one, or one for another kernel, programs send as ever; the daemon tries again at the next request.
 * Exit status: 0 success; 1 the kernel has no /dev/kcustom, or refuses; 2 usage.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "kcustom.h"
#include "kcustom-wire.h"

/* The time that a server has for a request, in milliseconds. */
#define PATIENCE 5000

/* Maximum number of messages of a server about one request. */
#define MAX_MESSAGES 64

static int device, server = -1;
/* The end of that time. */
static long long deadline;

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static void complain(const char *what)
{
	fprintf(stderr, "kcustomd: %s: %s\n", what, strerror(errno));
}

static int usage(void)
{
	fputs("kcustomd: expected HOST:PORT, a file, --statistics, --drop or --limit BYTES\n", stderr);
	return 2;
}

/* Waits until the server can be read (POLLIN) or written to (POLLOUT). */
static int wait_for(short events)
{
	struct pollfd poller = { .fd = server, .events = events };
	long long left = deadline - now();
	int ready = left > 0 ? poll(&poller, 1, left) : 0;

	if (!ready)
		errno = ETIMEDOUT;
	if (ready == 1 && !(poller.revents & events)) {
		errno = ECONNRESET;
		return -1;
	}
	return ready == 1 ? 0 : -1;
}

static int send_all(uint32_t kind, const void *content, uint32_t size)
{
	char frame[sizeof(struct wire_head) + size], *at = frame;
	struct wire_head head = { kind, size };
	ssize_t sent;

	memcpy(frame, &head, sizeof(head));
	memcpy(frame + sizeof(head), content, size);
	while (at < frame + sizeof(frame)) {
		if (wait_for(POLLOUT))
			return -1;
		sent = write(server, at, frame + sizeof(frame) - at);
		if (sent < 0 && errno != EINTR && errno != EAGAIN)
			return -1;
		at += sent > 0 ? sent : 0;
	}
	return 0;
}

static int receive_all(void *to, uint32_t size)
{
	char *at = to, *end = at + size;
	ssize_t got;

	while (at < end) {
		if (wait_for(POLLIN))
			return -1;
		got = read(server, at, end - at);
		if (!got)
			errno = ECONNRESET;
		if (!got || (got < 0 && errno != EINTR && errno != EAGAIN))
			return -1;
		at += got > 0 ? got : 0;
	}
	return 0;
}

static int open_tcp(const char *name, const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	char host[64] = "";
	int error;
	socklen_t size = sizeof(error);

	if ((size_t)(port - name) > sizeof(host)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(host, name, port - name - 1);
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
		errno = EINVAL;
		return -1;
	}
	server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server < 0)
		return -1;
	if (connect(server, (struct sockaddr *)&address, sizeof(address)) && errno != EINPROGRESS)
		return -1;
	if (wait_for(POLLOUT) || getsockopt(server, SOL_SOCKET, SO_ERROR, &error, &size))
		return -1;
	errno = error;
	return error ? -1 : 0;
}

static int open_file(const char *name)
{
	struct termios settings;

	server = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (server >= 0 && !tcgetattr(server, &settings)) {
		cfmakeraw(&settings);
		tcsetattr(server, TCSANOW, &settings);
		tcflush(server, TCIOFLUSH);
	}
	return server < 0 ? -1 : 0;
}

/* Says what runs here, and skips what a server sends about earlier requests. */
static int greet(void)
{
	static uint32_t number;
	struct wire_hello hello;
	struct {
		struct wire_head head;
		uint32_t number;
	} ready, last = { .number = 0 };

	if (ioctl(device, KCUSTOM_BUILD, hello.build))
		return -1;
	number += now() | 1;
	hello.number = number;
	ready.head = (struct wire_head){ WIRE_READY, sizeof(number) };
	ready.number = number;
	if (send_all(WIRE_HELLO, &hello, sizeof(hello)))
		return -1;
	while (memcmp(&last, &ready, sizeof(ready))) {
		memmove(&last, (char *)&last + 1, sizeof(last) - 1);
		if (receive_all((char *)&last + sizeof(last) - 1, 1))
			return -1;
	}
	return 0;
}

static int connect_to(const char *name)
{
	const char *colon = strrchr(name, ':');

	if (name[0] == '/' ? open_file(name) : open_tcp(name, colon + 1))
		return -1;
	return greet();
}

static int answer_read(const char *content, uint32_t size)
{
	static char memory[WIRE_MAX];
	uint32_t place[2];
	struct kcustom_memory wanted;

	if (size != sizeof(place))
		return -1;
	memcpy(place, content, sizeof(place));
	if (place[1] > sizeof(memory))
		return -1;
	wanted = (struct kcustom_memory){ place[0], place[1], (uint32_t)(uintptr_t)memory };
	return send_all(WIRE_MEMORY, memory, ioctl(device, KCUSTOM_READ, &wanted) ? 0 : place[1]);
}

static int load(const char *content, uint32_t size)
{
	struct kcustom_code code = { (uint32_t)(uintptr_t)content, size };
	uint32_t error = ioctl(device, KCUSTOM_LOAD, &code) ? errno : 0;

	if (error)
		complain("the kernel refuses the code");
	return send_all(WIRE_LOADED, &error, sizeof(error));
}

/* Passes one request on. Returns -1 if the connection is of no more use. */
static int serve(struct kcustom_request request)
{
	static char content[WIRE_MAX];
	struct wire_head head;

	if (send_all(WIRE_REQUEST, &request.socket, sizeof(request.socket)))
		return -1;
	for (int messages = 0; messages < MAX_MESSAGES; messages++) {
		errno = EPROTO;
		if (receive_all(&head, sizeof(head)))
			return -1;
		errno = EPROTO;
		if (head.size > sizeof(content) || receive_all(content, head.size))
			return -1;
		errno = EPROTO;
		switch (head.kind) {
		case WIRE_READ:
			if (answer_read(content, head.size))
				return -1;
			break;
		case WIRE_CODE:
			return load(content, head.size);
		case WIRE_NONE:
			fprintf(stderr, "kcustomd: no code: %.*s\n", (int)head.size, content);
			return 0;
		default:
			return -1;
		}
	}
	return -1;
}

static int run(const char *name)
{
	struct kcustom_request request;

	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		if (ioctl(device, KCUSTOM_NEXT, &request)) {
			if (errno == EINTR)
				continue;
			complain("/dev/kcustom");
			return 1;
		}
		deadline = now() + PATIENCE;
		if ((server < 0 && connect_to(name)) || serve(request)) {
			complain(name);
			if (server >= 0)
				close(server);
			server = -1;
		}
	}
}

static int statistics(void)
{
	struct kcustom_statistics now;

	if (ioctl(device, KCUSTOM_STATISTICS, &now)) {
		complain("/dev/kcustom");
		return 1;
	}
	printf("paths %u\nbytes %u\nlimit %u\nleaving %u\nloaded %u\nshared %u\nrefused %u\ndropped %u\ntokens %u\nhits %u\n",
	       now.paths, now.bytes, now.limit, now.leaving, now.loaded, now.shared, now.refused, now.dropped,
	       now.tokens, now.hits);
	return 0;
}

int main(int count, char **words)
{
	__u32 limit;
	char *end;

	if (count < 2)
		return usage();
	device = open(KCUSTOM_DEVICE, O_RDWR | O_CLOEXEC);
	if (device < 0) {
		complain(KCUSTOM_DEVICE);
		return 1;
	}
	if (count == 2 && !strcmp(words[1], "--statistics"))
		return statistics();
	if (count == 2 && !strcmp(words[1], "--drop"))
		return ioctl(device, KCUSTOM_DROP) ? complain(words[1]), 1 : 0;
	if (count == 3 && !strcmp(words[1], "--limit")) {
		limit = strtoul(words[2], &end, 0);
		if (!*words[2] || *end)
			return usage();
		return ioctl(device, KCUSTOM_LIMIT, &limit) ? complain(words[1]), 1 : 0;
	}
	if (count != 2 || (words[1][0] != '/' && !strrchr(words[1], ':')))
		return usage();
	return run(words[1]);
}
