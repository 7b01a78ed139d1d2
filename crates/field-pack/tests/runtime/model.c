/*
 * Compares members that are stored as codes with plain ones.
 *
 * generated.h has `struct object` with codes, its accessors, `struct plain`, and MEMBERS(X), which calls
 * X(member, index) for each member. value(index, random) makes a value for a member, which has a code or not.
 */
#include <stdarg.h>
#include <string.h>

#include "shim.h"

#include <linux/kshrink_fields.h>

#include "generated.h"

#define OBJECTS 64
#define THREADS 4

extern bool *const param_warn;

void *system_wq = &system_wq;
static bool is_exhausted;
static unsigned long warnings;

static pthread_rwlock_t readers = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rcu_head *queue;
static struct work_struct *work;

void rcu_read_lock(void) { pthread_rwlock_rdlock(&readers); }
void rcu_read_unlock(void) { pthread_rwlock_unlock(&readers); }

void call_rcu(struct rcu_head *head, void (*call)(struct rcu_head *))
{
	head->call = call;
	pthread_mutex_lock(&queue_lock);
	head->next = queue;
	queue = head;
	pthread_mutex_unlock(&queue_lock);
}

void schedule_work(struct work_struct *scheduled)
{
	pthread_mutex_lock(&queue_lock);
	work = scheduled;
	pthread_mutex_unlock(&queue_lock);
}

/* Runs what waits for readers to end, and scheduled work. */
static void run_later(void)
{
	struct rcu_head *head, *next;
	struct work_struct *scheduled;

	pthread_mutex_lock(&queue_lock);
	head = queue;
	queue = NULL;
	scheduled = work;
	work = NULL;
	pthread_mutex_unlock(&queue_lock);
	pthread_rwlock_wrlock(&readers);
	pthread_rwlock_unlock(&readers);
	for (; head; head = next) {
		next = head->next;
		head->call(head);
	}
	if (scheduled)
		scheduled->run(scheduled);
}

void *kmalloc(size_t size, int flags)
{
	(void)flags;
	return READ_ONCE(is_exhausted) ? NULL : malloc(size);
}

void kfree(void *memory) { free(memory); }

void panic(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	exit(42);
}

void warn(const char *format, ...)
{
	(void)format;
	__atomic_fetch_add(&warnings, 1, __ATOMIC_RELAXED);
}

static void fail(const char *what, const char *member, u64 found, u64 expected)
{
	printf("%s: %s is %#llx, not %#llx\n", what, member, (unsigned long long)found, (unsigned long long)expected);
	exit(1);
}

static u64 next_random(u64 *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return *state >> 29;
}

/* Writes a random member of an object and of its model, or frees the object. */
static void step(struct object *object, struct plain *plain, u64 *state)
{
	u64 random = next_random(state), chosen = random % (COUNT * 8 + 1);

	if (chosen == COUNT * 8) {
		kf_drop(object, sizeof(*object));
		memset(object, 0, sizeof(*object));
		memset(plain, 0, sizeof(*plain));
	}
#define WRITE(member, index) \
	if (chosen % COUNT == index && chosen < COUNT * 8) { \
		plain->member = (typeof(plain->member))value(index, next_random(state)); \
		kf_set_object_##member(object, plain->member); \
	}
	MEMBERS(WRITE)
}

static void compare(const struct object *object, const struct plain *plain)
{
#define COMPARE(member, index) \
	if (kf_object_##member(object) != plain->member) \
		fail("model", #member, (u64)kf_object_##member(object), (u64)plain->member);
	MEMBERS(COMPARE)
}

/* Each thread has objects of its own; their entries share buckets. */
static void *own(void *argument)
{
	static struct object objects[THREADS][OBJECTS];
	static struct plain plains[THREADS][OBJECTS];
	unsigned long thread = (unsigned long)argument;
	u64 state = thread + SEED;

	for (int round = 0; round < ROUNDS; round++) {
		int number = next_random(&state) % OBJECTS;

		step(&objects[thread][number], &plains[thread][number], &state);
		compare(&objects[thread][number], &plains[thread][number]);
		if (round % 64 == 0)
			run_later();
	}
	for (int number = 0; number < OBJECTS; number++) {
		compare(&objects[thread][number], &plains[thread][number]);
		kf_drop(&objects[thread][number], sizeof(struct object));
	}
	return NULL;
}

static struct object shared[4];

/* All threads read and write the same objects: each value that they read was written. */
static void *race(void *argument)
{
	u64 state = (unsigned long)argument + SEED;

	for (int round = 0; round < ROUNDS; round++) {
		u64 random = next_random(&state);
		struct object *object = &shared[random % 4];
#define RACE(member, index) \
		if (random / 4 % COUNT == index) { \
			typeof(kf_object_##member(object)) found = kf_object_##member(object); \
			bool is_value = !found; \
			for (unsigned int choice = 0; choice < CHOICES; choice++) \
				is_value |= found == (typeof(found))choices(index, choice); \
			if (!is_value) \
				fail("race", #member, (u64)found, 0); \
			kf_set_object_##member(object, (typeof(found))choices(index, random / 64 % CHOICES)); \
		}
		MEMBERS(RACE)
		if (round % 64 == 0)
			run_later();
	}
	return NULL;
}

/* All threads count in one member, beyond the values that have a code. */
static void *add(void *argument)
{
	(void)argument;
	for (int round = 0; round < ROUNDS; round++) {
		unsigned int old;

		do
			old = kf_object_two(&shared[0]);
		while (kf_exchange_object_two(&shared[0], old, old + 1) != old);
		kf_set_mask_bits_object_narrow(&shared[1], 0x1ff, round);
		if (kf_object_narrow(&shared[1]) > 0x1ffff)
			fail("mask", "narrow", kf_object_narrow(&shared[1]), 0);
	}
	return NULL;
}

static void in_threads(void *(*run)(void *))
{
	pthread_t threads[THREADS];

	for (unsigned long thread = 0; thread < THREADS; thread++)
		pthread_create(&threads[thread], NULL, run, (void *)thread);
	for (unsigned long thread = 0; thread < THREADS; thread++)
		pthread_join(threads[thread], NULL);
	run_later();
}

/* Values that do not fit while memory is exhausted: the reserve, then a refusal. */
static void exhaust(bool is_warning)
{
	static struct object many[200];
	int refused = 0;

	*param_warn = is_warning;
	is_exhausted = true;
	for (int number = 0; number < 200; number++) {
		kf_set_object_narrow(&many[number], 7);
		kf_set_object_narrow(&many[number], 1000000 + number);
		if (kf_object_narrow(&many[number]) == 7)
			refused++;
		else if (kf_object_narrow(&many[number]) != 1000000u + number)
			fail("exhausted", "narrow", kf_object_narrow(&many[number]), 1000000 + number);
	}
	/* The reserve has 64 entries. */
	if (refused != 200 - 64 || warnings != 200 - 64)
		fail("exhausted", "refused", refused, 200 - 64);
	is_exhausted = false;
	run_later();
	kf_drop(many, sizeof(many));
	run_later();
}

int main(int count, char **arguments)
{
	if (count > 1 && !strcmp(arguments[1], "panic"))
		exhaust(false);
	if (count > 1 && !strcmp(arguments[1], "warn")) {
		exhaust(true);
	} else {
		in_threads(own);
		if (kf_live)
			fail("freed", "kf_live", kf_live, 0);
		in_threads(race);
		kf_drop(shared, sizeof(shared));
		memset(shared, 0, sizeof(shared));
		kf_set_object_two(&shared[0], 65000);
		in_threads(add);
		if (kf_object_two(&shared[0]) != 65000 + THREADS * ROUNDS)
			fail("count", "two", kf_object_two(&shared[0]), 65000 + THREADS * ROUNDS);
		kf_drop(shared, sizeof(shared));
		run_later();
	}
	if (kf_live)
		fail("end", "kf_live", kf_live, 0);
	if (warnings && !is_exhausted && count == 1)
		fail("end", "warnings", warnings, 0);
	puts("ok");
	return 0;
}
