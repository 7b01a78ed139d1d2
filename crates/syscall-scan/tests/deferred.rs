//! Code that counts only once other code does, in small root file systems that imitate glibc.

mod common;

use std::collections::BTreeSet;

use common::root::Root;
use common::{Machine, all_calls};

/// The marker by which the scan recognises glibc.
const GNU: &str = "
#define LOCAL __attribute__((visibility(\"protected\")))
const char *gnu_get_libc_version(void) { return \"\"; }
void __libc_start_main(void) { }
";

const SERVICES: &str = "
typedef void function(void);
static function *table[2];
LOCAL void _nss_files_getpwnam_r(void) { call(5100); }
LOCAL void _nss_dns_gethostbyname4_r(void) { call(5101); }
NOINLINE static void pick(const char *name)
{
	table[0] = _nss_files_getpwnam_r;
	table[1] = _nss_dns_gethostbyname4_r;
	table[name[3] == 'p' ? 0 : 1]();
}
void getpwnam(void) { pick(\"getpwnam_r\"); }
void getaddrinfo(void) { pick(\"gethostbyname4_r\"); }
";

fn set(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    numbers.into_iter().collect()
}

/// Returns the calls of a program with the source `run` and this C library.
fn calls(machine: Machine, c_library: &str, run: &str) -> BTreeSet<u64> {
    let root = Root::of(machine);
    root.library("lib/libc.so.6", c_library, "");
    root.program("bin/program", run, "-fPIE -pie -l:libc.so.6");
    root.calls(&["/bin/program"])
}

#[test]
fn functions_of_services_count_once_their_names_are_asked_for() {
    for machine in Machine::ALL {
        let library = format!("{GNU}{SERVICES}");
        let asking = |name: &str| {
            calls(machine, &library, &format!("void {name}(void); void run(long n) {{ {name}(); }}"))
        };
        assert_eq!(asking("getpwnam"), set([5100]), "{machine:?}");
        assert_eq!(asking("getaddrinfo"), set([5101]), "{machine:?}");
        // Called directly, and not called.
        assert_eq!(asking("_nss_dns_gethostbyname4_r"), set([5101]), "{machine:?}");
        assert_eq!(asking("gnu_get_libc_version"), set([]), "{machine:?}");
    }
}

#[test]
fn functions_of_services_count_where_it_is_not_known_who_asks() {
    let run = "void getpwnam(void); void run(long n) { getpwnam(); }";
    // Code may read the names from a table.
    let names = "const char *names[] = { \"gethostbyname4_r\" };";
    assert_eq!(calls(Machine::X86_64, &format!("{GNU}{SERVICES}{names}"), run), set([5100, 5101]));
    // A C library that does not select by name.
    let other = GNU.replace("gnu_get_libc_version", "version");
    assert_eq!(calls(Machine::X86_64, &format!("{other}{SERVICES}"), run), set([5100, 5101]));
    // Functions with other names.
    let others = SERVICES.replace("gethostbyname4_r", "parse_line");
    assert_eq!(calls(Machine::X86_64, &format!("{GNU}{others}"), run), set([5100, 5101]));
}

const MUTEXES: &str = "
LOCAL NOINLINE void sched_setscheduler(void) { call(5201); }
LOCAL NOINLINE void sched_getparam(void) { call(5202); }
NOINLINE static void change(void) { sched_getparam(); sched_setscheduler(); }
NOINLINE static void ask(void) { call(5206); sched_getparam(); }
NOINLINE static void unlock(void) { call(5207); }
void pthread_mutex_setprioceiling(void) { change(); call(5203); }
void pthread_mutexattr_setprotocol(void) { call(5204); }
void shmat(void) { call(5205); }
NOINLINE void pthread_mutex_trylock(int *kind)
{
	if (*kind & 0x40) {
		ask();
		change();
	}
	unlock();
}
void pthread_mutex_lock(int *kind)
{
	if (*kind & 0x40) {
		ask();
		change();
	}
	unlock();
	call(5200);
}
LOCAL NOINLINE void sched_get_priority_max(void) { call(5208); }
NOINLINE static void find_least(void) { sched_get_priority_max(); }
void pthread_mutex_init(int *kind)
{
	if (*kind & 0x40)
		find_least();
}
";

#[test]
fn priorities_change_once_there_may_be_mutexes_for_that() {
    let library = format!("{GNU}{MUTEXES}");
    let locking = |other: &str| {
        let declared =
            "void pthread_mutex_lock(int *); void pthread_mutexattr_setprotocol(void); void shmat(int, void *, int);
            void pthread_mutex_setprioceiling(void); void pthread_mutex_init(int *); int kind;";
        let run = format!("{declared} void run(long n) {{ pthread_mutex_lock(&kind); {other} }}");
        calls(Machine::X86_64, &library, &run)
    };
    assert_eq!(locking(""), set([5200, 5207]));
    assert_eq!(locking("pthread_mutexattr_setprotocol();"), set([5200, 5201, 5202, 5204, 5206, 5207]));
    assert_eq!(locking("pthread_mutex_setprioceiling();"), set([5200, 5201, 5202, 5203, 5206, 5207]));
    assert_eq!(locking("pthread_mutex_init(&kind);"), set([5200, 5207]));
    assert_eq!(
        locking("pthread_mutex_init(&kind); shmat(1, 0, 0);"),
        set([5200, 5201, 5202, 5205, 5206, 5207, 5208])
    );
    assert_eq!(locking("shmat(1, 0, 0x1000);"), set([5200, 5205, 5207]));
    assert_eq!(locking("shmat(1, 0, 0x1000 | kind);"), set([5200, 5201, 5202, 5205, 5206, 5207]));
    assert_eq!(locking("shmat(1, 0, 0);"), set([5200, 5201, 5202, 5205, 5206, 5207]));
}

const SPAWNING: &str = "
LOCAL NOINLINE void getuid(void) { call(5701); }
LOCAL NOINLINE void setpgid(void) { call(5702); }
LOCAL NOINLINE void sched_setparam(void) { call(5703); }
LOCAL NOINLINE void sched_setscheduler(void) { call(5704); }
LOCAL NOINLINE void setsid(void) { call(5705); }
LOCAL NOINLINE void chdir(void) { call(5706); }
LOCAL NOINLINE void posix_spawnattr_setflags(short *attributes, short flags) { *attributes = flags; }
LOCAL NOINLINE void posix_spawn_file_actions_addchdir_np(void) { }
static NOINLINE void child(volatile short *attributes)
{
	if (*attributes & 1)
		getuid(), call(5707);
	if (*attributes & 2)
		setpgid();
	if (*attributes & 0x10)
		sched_setparam();
	if (*attributes & 0x20)
		sched_setscheduler();
	if (*attributes & 0x80)
		setsid();
	if (attributes[1])
		chdir();
}
void posix_spawn(short *attributes) { child(attributes); }
void system(void)
{
	short attributes[2];
	posix_spawnattr_setflags(attributes, 0xc);
	child(attributes);
}
";

#[test]
fn what_new_processes_do_counts_once_somebody_may_ask_for_it() {
    let library = format!("{GNU}{SPAWNING}");
    let spawning = |more: &str| {
        let declared = "void posix_spawn(short *); void system(void); short attributes[2];
            void posix_spawnattr_setflags(short *, short); void posix_spawn_file_actions_addchdir_np(void);
            void setsid(void); void getuid(void);";
        let run = format!("{declared} void run(long n) {{ posix_spawn(attributes); {more} }}");
        calls(Machine::X86_64, &library, &run)
    };
    let all = [5701, 5702, 5703, 5704, 5705, 5707];
    assert_eq!(spawning(""), set([]));
    assert_eq!(spawning("system();"), set([]));
    assert_eq!(spawning("system(); setsid(); getuid();"), set([5701, 5705]));
    assert_eq!(spawning("posix_spawn_file_actions_addchdir_np();"), set([5706]));
    assert_eq!(spawning("system(); posix_spawnattr_setflags(attributes, 0x82);"), set([5702, 5705]));
    assert_eq!(spawning("posix_spawnattr_setflags(attributes, attributes[0]);"), set(all));
    assert_eq!(spawning("void (*volatile f)() = posix_spawnattr_setflags; f();"), set(all));
}

const CREATING: &str = "
LOCAL NOINLINE void sched_setscheduler(void) { call(144); }
void pthread_attr_setinheritsched(void) { }
LOCAL NOINLINE void pthread_attr_setaffinity_np(void) { }
static NOINLINE void create(volatile int *attributes)
{
	call(5800);
	if (attributes[0])
		call(144);
	if (attributes[1])
		call(203);
}
void pthread_create(volatile int *attributes)
{
	if (attributes[0])
		call(143);
	if (attributes[1])
		pthread_attr_setaffinity_np();
	create(attributes);
}
";

#[test]
fn scheduling_of_new_threads_counts_once_somebody_may_ask_for_it() {
    let library = format!("{GNU}{CREATING}");
    let creating = |more: &str| {
        let declared =
            "void pthread_create(int *); void pthread_attr_setinheritsched(void); int attributes[2];
            void pthread_attr_setaffinity_np(void); void sched_setscheduler(void);";
        let run = format!("{declared} void run(long n) {{ pthread_create(attributes); {more} }}");
        calls(Machine::X86_64, &library, &run)
    };
    assert_eq!(creating(""), set([5800]));
    assert_eq!(creating("pthread_attr_setinheritsched();"), set([143, 144, 5800]));
    assert_eq!(creating("pthread_attr_setaffinity_np();"), set([203, 5800]));
    assert_eq!(creating("sched_setscheduler();"), set([144, 5800]));
}

/// An interpreter that compares the program's entry with an address of its own.
fn interpreter(compared: &str, between: &str) -> String {
    format!(
        "void other(void) {{ }}
        void own_entry(void);
        __asm__(\".globl own_entry; own_entry: jmp begin\");
        void begin(long program)
        {{
            __asm__ goto(\"lea {compared}(%%rip), %%rax; {between} cmp %%rax, %0; jne %l1\"
                : : \"m\"(program) : \"rax\" : started);
            call(5401);
        started:
            call(5000);
            __builtin_trap();
        }}"
    )
}

#[test]
fn an_interpreter_does_not_run_as_a_program_in_one() {
    let scanned = |source: &str, path: &str| {
        let root = Root::new();
        root.library("lib/ld.so", source, "-Wl,-e,own_entry -Wl,-Bsymbolic");
        root.program("bin/program", "void run(long n) { }", "-fPIE -pie");
        all_calls(&root.section(&[path])).contains(&5401)
    };
    assert!(!scanned(&interpreter("own_entry", ""), "/bin/program"));
    assert!(!scanned(&interpreter("own_entry", "mov %%rbx, %%rcx;"), "/bin/program"));
    assert!(scanned(&interpreter("own_entry", ""), "/lib/ld.so"));
    assert!(scanned(&interpreter("other", ""), "/bin/program"));
    assert!(scanned(&interpreter("own_entry", "mov %%rbx, %%rax;"), "/bin/program"));
}

const CONTEXTS: &str = "
#define LOAD \"mov (%rdi), %rbx; mov 8(%rdi), %r12; mov 16(%rdi), %r13; mov 24(%rdi), %r14; mov 32(%rdi), %r8;\"
#define SAVE \"mov %rbx, (%rsi); mov %r12, 8(%rsi); mov %r13, 16(%rsi); mov %r14, 24(%rsi); mov %rsp, 32(%rsi);\"
__attribute__((naked)) NOINLINE void restore(long *context)
{
	__asm__(LOAD \"mov 40(%rdi), %rdx; mov %r8, %rsp; jmp *%rdx\");
}
__attribute__((naked)) NOINLINE void change(long *context, long *old)
{
	__asm__(SAVE LOAD \"mov 40(%rdi), %rdx; mov %r8, %rsp; jmp *%rdx\");
}
__attribute__((naked)) NOINLINE void leave(long *context)
{
	__asm__(\"push %rbx; mov %rsp, %rbx; mov 8(%rdi), %rdx; mov %rbx, %rsp; pop %rbx; jmp *%rdx\");
}
long contexts[16];
";

#[test]
fn what_restores_a_context_does_not_come_back() {
    let root = Root::new();
    let calls = |call: &str| {
        let run = format!("{CONTEXTS} void run(long n) {{ call(5500); {call}; call(5501); }}");
        root.program("bin/program", &run, "-fPIE -pie");
        let section = root.section(&["/bin/program"]);
        all_calls(&section)
    };
    assert!(!calls("restore(contexts)").contains(&5501));
    assert!(calls("change(contexts, contexts + 8)").contains(&5501));
    assert!(calls("leave(contexts)").contains(&5501));
}

/// Three tables of stream functions in a section, of which the last is used, and the code that checks a table.
fn streams(section: &str, more: &str) -> String {
    let table = |name: &str, function: &str, number: u64| {
        format!(
            "static void {function}(void) {{ call({number}); }}
            __attribute__((section(\"{section}\"), aligned(32), used)) static long {name}[21] = {{ 0, 0, (long)&{function} }};"
        )
    };
    format!(
        "extern long __start_{section}[], __stop_{section}[];
        {} {} {}
        NOINLINE static void flush(long *table)
        {{
            unsigned long all = (char *)__stop_{section} - (char *)__start_{section};
            if ((unsigned long)((char *)table - (char *)__start_{section}) >= all)
                call(5600);
            ((void (*)(void))table[2])();
        }}
        void run(long n) {{ flush(third); {more} }}",
        table("first", "a", 5601),
        table("second", "b", 5602),
        table("third", "c", 5603),
    )
}

#[test]
fn tables_of_streams_count_where_they_are_named() {
    let calls = |section: &str, more: &str| {
        let root = Root::new();
        root.program("bin/program", &streams(section, more), "-fPIE -pie -s");
        let mut calls = root.calls(&["/bin/program"]);
        // The first table has the section's own address; the check may be known to succeed.
        calls.retain(|&call| call != 5601 && call != 5600);
        calls
    };
    assert_eq!(calls("__libc_IO_vtables", ""), set([5603]));
    assert_eq!(calls("__libc_IO_vtables", "flush(second);"), set([5602, 5603]));
    let walk = "for (long *at = __start_tables; at < __stop_tables; at += 24) flush(at);";
    assert_eq!(calls("tables", walk), set([5602, 5603]));
}
