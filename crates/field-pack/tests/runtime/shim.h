/* The kernel's functions that the side table uses, for a program. */
#ifndef SHIM_H
#define SHIM_H

#include <limits.h>
#include <string.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#define U8_MAX UINT8_MAX
#define U16_MAX UINT16_MAX
#define U32_MAX UINT32_MAX

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define BUILD_BUG_ON(x) _Static_assert(1, "checked by the kernel's build")

#define barrier() __asm__ __volatile__("" ::: "memory")
#define __pure __attribute__((pure))
#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define smp_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define cmpxchg(p, old, new) __sync_val_compare_and_swap((p), (old), (new))
#define smp_mb() __sync_synchronize()
#define smp_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

static inline unsigned int hash_long(unsigned long value, unsigned int bits)
{
	return (value * 0x61C8864680B583EBUL) >> (64 - bits);
}

#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

static inline void slab_has_fields(const void *field)
{
	(void)field;
}

/* Locks. */
typedef pthread_mutex_t raw_spinlock_t;
#define DEFINE_RAW_SPINLOCK(name) raw_spinlock_t name = PTHREAD_MUTEX_INITIALIZER
#define raw_spin_lock_irqsave(lock, flags) ((void)((flags) = 0), (void)pthread_mutex_lock(lock))
#define raw_spin_unlock_irqrestore(lock, flags) ((void)(flags), (void)pthread_mutex_unlock(lock))

/* RCU: callbacks run when no reader is left, in rcu_run(). */
struct rcu_head {
	struct rcu_head *next;
	void (*call)(struct rcu_head *);
};

void rcu_read_lock(void);
void rcu_read_unlock(void);
void call_rcu(struct rcu_head *head, void (*call)(struct rcu_head *));

/* Memory: fails while is_exhausted is set. */
#define GFP_KERNEL 1
#define GFP_ATOMIC 2
#define __GFP_NOWARN 4
void *kmalloc(size_t size, int flags);
void kfree(void *memory);
#define slab_is_available() true

/* Work: the test runs it. */
struct work_struct {
	void (*run)(struct work_struct *);
};

#define DECLARE_WORK(name, function) struct work_struct name = { function }
extern void *system_wq;
void schedule_work(struct work_struct *work);

void panic(const char *format, ...);
void warn(const char *format, ...);
#define WARN_ONCE(condition, ...) ((condition) ? warn(__VA_ARGS__) : (void)0)

#define module_param_named(name, variable, type, mode) bool *const param_##name = &variable
#define MODULE_PARM_DESC(name, text) extern int unused_##name

#endif
