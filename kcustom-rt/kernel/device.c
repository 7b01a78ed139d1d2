// SPDX-License-Identifier: MIT OR Apache-2.0
/* /dev/kcustom: tokens for programs, requests and code for the daemon. */
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <linux/socket.h>
#include <net/sock.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "custom.h"

/* Maximum number of requests without a token that wait. */
#define MAX_ASKED 16

/* A token, which holds a socket; or a request without one, which nobody else has. */
struct token {
	struct file *socket;
	/* In `requests` until the daemon takes it. */
	struct list_head request;
	bool is_asked;
};

static DEFINE_MUTEX(lock);
static DECLARE_WAIT_QUEUE_HEAD(waiting);
static LIST_HEAD(requests);
static u32 tokens, asked, daemons;

static ssize_t token_write(struct kiocb *call, struct iov_iter *from)
{
	struct token *token = call->ki_filp->private_data;
	struct file *socket = token->socket;
	struct msghdr message = { .msg_iter = *from };
	int sent;

	if ((call->ki_filp->f_flags | socket->f_flags) & O_NONBLOCK)
		message.msg_flags = MSG_DONTWAIT;
	sent = sock_sendmsg(sock_from_file(socket), &message);
	*from = message.msg_iter;
	return sent;
}

static void free_token(struct token *token)
{
	mutex_lock(&lock);
	list_del(&token->request);
	mutex_unlock(&lock);
	fput(token->socket);
	kfree(token);
}

static int token_release(struct inode *inode, struct file *file)
{
	free_token(file->private_data);
	return 0;
}

static const struct file_operations token_operations = {
	.write_iter = token_write,
	.release = token_release,
};

/*
 * Whether tokens of a file are possible. Sockets that can hold files, such as those of AF_UNIX, could hold their own token,
 * which nothing would free then.
 */
static int check(struct file *file)
{
	struct socket *socket = sock_from_file(file);

	if (!socket)
		return -ENOTSOCK;
	return socket->sk && socket->sk->sk_family == AF_INET ? 0 : -EAFNOSUPPORT;
}

static struct token *new_token(int fd, bool is_asked)
{
	struct token *token = kmalloc(sizeof(*token), GFP_KERNEL);
	int error;

	if (!token)
		return ERR_PTR(-ENOMEM);
	token->is_asked = is_asked;
	token->socket = fget(fd);
	error = token->socket ? check(token->socket) : -EBADF;
	if (error) {
		if (token->socket)
			fput(token->socket);
		kfree(token);
		return ERR_PTR(error);
	}
	return token;
}

static int ask(int fd)
{
	struct token *token = new_token(fd, true);
	bool has_room;

	if (IS_ERR(token))
		return PTR_ERR(token);
	mutex_lock(&lock);
	has_room = daemons && asked < MAX_ASKED;
	INIT_LIST_HEAD(&token->request);
	if (has_room) {
		list_add_tail(&token->request, &requests);
		asked++;
	}
	mutex_unlock(&lock);
	if (!has_room) {
		free_token(token);
		return -EAGAIN;
	}
	wake_up(&waiting);
	return 0;
}

static int make_token(int fd)
{
	struct token *token = new_token(fd, false);
	int made;

	if (IS_ERR(token))
		return PTR_ERR(token);
	/* Whoever has the descriptor may close it at once. */
	mutex_lock(&lock);
	list_add_tail(&token->request, &requests);
	tokens++;
	mutex_unlock(&lock);
	made = anon_inode_getfd("[kcustom]", &token_operations, token, O_WRONLY | O_CLOEXEC);
	if (made < 0)
		free_token(token);
	else
		wake_up(&waiting);
	return made;
}

/* What an open of the daemon has: the socket of the request that it took last. */
struct session {
	struct mutex lock;
	struct file *socket;
	bool is_daemon;
};

static void forget(struct session *session)
{
	if (session->socket)
		fput(session->socket);
	session->socket = NULL;
}

/* Takes the socket of the oldest request, if there is one. */
static bool take(struct session *session)
{
	struct token *token;

	mutex_lock(&lock);
	token = list_first_entry_or_null(&requests, struct token, request);
	if (token) {
		list_del_init(&token->request);
		session->socket = get_file(token->socket);
		asked -= token->is_asked;
	}
	mutex_unlock(&lock);
	if (token && token->is_asked)
		free_token(token);
	return session->socket;
}

static int next_request(struct session *session, void __user *to)
{
	struct kcustom_request answer;
	int error;

	forget(session);
	mutex_lock(&lock);
	daemons += !session->is_daemon;
	session->is_daemon = true;
	mutex_unlock(&lock);
	error = wait_event_interruptible(waiting, take(session));
	if (error)
		return error;
	answer.socket = (u32)(unsigned long)sock_from_file(session->socket);
	return copy_to_user(to, &answer, sizeof(answer)) ? -EFAULT : 0;
}

static int read_memory(const void __user *from)
{
	struct kcustom_memory memory;
	unsigned long key = (unsigned long)kcustom_key;
	u8 bytes[256];
	u32 done;

	if (copy_from_user(&memory, from, sizeof(memory)))
		return -EFAULT;
	if (memory.size > KCUSTOM_MAX)
		return -E2BIG;
	/* Whoever reads the key could seal code. */
	if (memory.address < key + sizeof(kcustom_key) && key < (u64)memory.address + memory.size)
		return -EFAULT;
	for (done = 0; done < memory.size; done += sizeof(bytes)) {
		u32 size = min_t(u32, memory.size - done, sizeof(bytes));

		if (copy_from_kernel_nofault(bytes, (void *)(unsigned long)memory.address + done, size))
			return -EFAULT;
		if (copy_to_user((void __user *)(unsigned long)memory.to + done, bytes, size))
			return -EFAULT;
	}
	return 0;
}

static int load(const void __user *from)
{
	struct kcustom_code code;
	int error = -EFAULT;
	u8 *bytes;

	if (copy_from_user(&code, from, sizeof(code)))
		return -EFAULT;
	if (code.size > KCUSTOM_MAX)
		return -E2BIG;
	if (code.size < sizeof(struct kcustom_head))
		return -EBADMSG;
	bytes = vmalloc(code.size);
	if (!bytes)
		return -ENOMEM;
	if (!copy_from_user(bytes, (void __user *)(unsigned long)code.from, code.size))
		error = kcustom_load(bytes, code.size);
	vfree(bytes);
	return error;
}

static int statistics(void __user *to)
{
	struct kcustom_statistics numbers;

	kcustom_count(&numbers);
	numbers.tokens = READ_ONCE(tokens);
	return copy_to_user(to, &numbers, sizeof(numbers)) ? -EFAULT : 0;
}

static long command(struct file *file, unsigned int number, unsigned long argument)
{
	struct session *session = file->private_data;
	void __user *pointer = (void __user *)argument;
	u8 build[32];
	int answer;
	u32 limit;

	if (number == KCUSTOM_STATISTICS)
		return statistics(pointer);
	if (number == KCUSTOM_TOKEN)
		return get_user(answer, (s32 __user *)pointer) ? -EFAULT : make_token(answer);
	if (number == KCUSTOM_ASK)
		return get_user(answer, (s32 __user *)pointer) ? -EFAULT : ask(answer);
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	switch (number) {
	case KCUSTOM_NEXT:
		if (mutex_lock_interruptible(&session->lock))
			return -EINTR;
		answer = next_request(session, pointer);
		mutex_unlock(&session->lock);
		return answer;
	case KCUSTOM_READ:
		return read_memory(pointer);
	case KCUSTOM_LOAD:
		return load(pointer);
	case KCUSTOM_DROP:
		kcustom_drop();
		return 0;
	case KCUSTOM_LIMIT:
		if (get_user(limit, (u32 __user *)pointer))
			return -EFAULT;
		kcustom_limit(limit);
		return 0;
	case KCUSTOM_BUILD:
		kcustom_build(build);
		return copy_to_user(pointer, build, sizeof(build)) ? -EFAULT : 0;
	}
	return -ENOTTY;
}

static int open(struct inode *inode, struct file *file)
{
	struct session *session = kzalloc(sizeof(*session), GFP_KERNEL);

	if (!session)
		return -ENOMEM;
	mutex_init(&session->lock);
	file->private_data = session;
	return 0;
}

/* Ends a daemon. The last one takes the requests without a token with it. */
static void leave(struct session *session)
{
	struct token *token, *after;
	LIST_HEAD(left);

	mutex_lock(&lock);
	daemons -= session->is_daemon;
	list_for_each_entry_safe(token, after, &requests, request)
		if (!daemons && token->is_asked)
			list_move(&token->request, &left);
	if (!daemons)
		asked = 0;
	mutex_unlock(&lock);
	list_for_each_entry_safe(token, after, &left, request)
		free_token(token);
}

static int release(struct inode *inode, struct file *file)
{
	struct session *session = file->private_data;

	forget(session);
	leave(session);
	kfree(session);
	return 0;
}

static const struct file_operations operations = {
	.open = open,
	.release = release,
	.unlocked_ioctl = command,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kcustom",
	.fops = &operations,
	.mode = 0666,
};

static int __init start(void)
{
	return misc_register(&device);
}
device_initcall(start);
