/* The slab allocator's part of the patch, with caches of one slab. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, value) ((x) = (value))
#define likely(x) (x)
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define SLAB_TYPESAFE_BY_RCU 1

struct kmem_cache {
	bool has_fields;
	unsigned int flags, object_size;
	void (*ctor)(void *object);
};

struct slab {
	struct kmem_cache *slab_cache;
	char objects[4][64];
};

static bool is_early;
static struct kmem_cache caches[3] = {
	{ .object_size = 40 },
	{ .object_size = 40, .ctor = free },
	{ .object_size = 40, .flags = SLAB_TYPESAFE_BY_RCU },
};
static struct slab slabs[3] = { { &caches[0] }, { &caches[1] }, { &caches[2] } };
static long variable;
static unsigned int dropped;

#define slab_is_available() (!is_early)
#define virt_addr_valid(p) ((const void *)(p) != &variable)

static struct slab *virt_to_slab(const void *p)
{
	for (int i = 0; i < 3; i++) {
		if ((const char *)p >= slabs[i].objects[0] && (const char *)p < slabs[i].objects[4])
			return &slabs[i];
	}
	return NULL;
}

static void kf_drop(const void *object, size_t size)
{
	(void)object;
	dropped += size;
}

#include "drop.h"

static void expect(int number, unsigned int bytes)
{
	void *objects[2] = { slabs[number].objects[0], slabs[number].objects[1] };

	dropped = 0;
	slab_drop_fields(&caches[number], objects, 2);
	if (dropped != bytes) {
		printf("cache %d: %u bytes dropped, not %u\n", number, dropped, bytes);
		exit(1);
	}
}

int main(void)
{
	is_early = true;
	slab_has_fields(slabs[0].objects[1]);
	is_early = false;
	slab_has_fields(&variable);
	expect(0, 0);
	for (int i = 0; i < 3; i++)
		slab_has_fields(&slabs[i].objects[1][8]);
	expect(0, 80);
	expect(1, 0);
	expect(2, 0);
	for (int i = 0; i < 3; i++) {
		if (!caches[i].has_fields)
			return 2;
	}
	puts("ok");
	return 0;
}
