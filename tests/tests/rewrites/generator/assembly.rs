//! Inline assembly with every kind of constraint, and functions made only of assembly.

use std::fmt::Write;

use super::kinds::Kind;
use super::{Function, Writer};

/// Statements for i386 about the word `t`, given the words `x` and `y`. A backquote becomes a number that makes a label
/// unique.
const I386: &[&str] = &[
    "__asm__(\"addl %1, %0\" : \"+r\"(t) : \"rm\"(x) : \"cc\");",
    "__asm__(\"subl %1, %0\" : \"+r\"(t) : \"g\"(x) : \"cc\");",
    "__asm__(\"xorl %1, %0\" : \"+m\"(t) : \"ri\"(y) : \"cc\");",
    "__asm__(\"imull %1, %0\" : \"=r\"(t) : \"r\"(x), \"0\"(t) : \"cc\");",
    "u h; __asm__(\"mull %3\" : \"=a\"(t), \"=d\"(h) : \"0\"(t), \"r\"(x) : \"cc\"); t ^= h;",
    "wide w; __asm__(\"mull %2\" : \"=A\"(w) : \"a\"(t), \"rm\"(x) : \"cc\"); t = of_wide(w);",
    "int z; __asm__(\"testl $4, %1\" : \"=@ccnz\"(z) : \"r\"(t)); t += (u)z;",
    "int z; __asm__(\"cmpl %2, %1\" : \"=@ccb\"(z) : \"r\"(t), \"rm\"(x)); t += (u)z;",
    "u h = y; __asm__(\"addl %2, %0; adcl %3, %1\" : \"+r\"(t), \"+r\"(h) : \"ri\"(77), \"ri\"(5) : \"cc\"); t ^= h;",
    "u h; __asm__(\"movl %1, %0\\n\\tnegl %0\\n\\txorl %1, %0\" : \"=&r\"(h) : \"r\"(t) : \"cc\"); t = h;",
    "u h = x; __asm__(\"xchgl %0, %1\" : \"+q\"(t), \"+m\"(h)); t += h * 3;",
    "__asm__(\"bswap %0\" : \"+r\"(t));",
    "__asm__(\"shll %1, %0\" : \"+r\"(t) : \"I\"(3) : \"cc\");",
    "__asm__(\"roll %b1, %0\" : \"+r\"(t) : \"cI\"(x) : \"cc\");",
    "__asm__(\"incl %0\" : \"+m\"(shared_pair.a) : : \"cc\");",
    "__asm__ volatile(\"incl (%0)\" : : \"r\"(&shared_pair) : \"memory\", \"cc\");",
    "__asm__(\"addb %b1, %b0\" : \"+q\"(t) : \"q\"(x) : \"cc\");",
    "byte c; __asm__(\"addl %2, %1; setc %0\" : \"=q\"(c), \"+r\"(t) : \"r\"(x) : \"cc\"); t ^= c;",
    "register u r __asm__(\"esi\") = t; __asm__(\"notl %0\" : \"+r\"(r)); t = r;",
    "register u r __asm__(\"edi\") = x; __asm__(\"addl %1, %0\" : \"+r\"(t) : \"r\"(r) : \"cc\");",
    "__asm__(\"pushl %1\\n\\tpopl %0\" : \"=r\"(t) : \"r\"(x));",
    "__asm__(\"\" : : \"X\"(t), \"g\"(x) : \"memory\"); __asm__ volatile(\"\" : \"+r\"(t) : : \"ecx\", \"edx\");",
    "__asm__(\"movl %1, %%ecx\\n\\taddl %%ecx, %0\" : \"+a\"(t) : \"d\"(x) : \"ecx\", \"cc\");",
    "void *d = &other_five; int n = 2; __asm__ volatile(\"cld; rep stosl\" : \"+D\"(d), \"+c\"(n) : \"a\"(t) : \"memory\", \"cc\");",
    "void *d = &other_five, *s = &shared_five; int n = 3; __asm__ volatile(\"cld; rep movsl\" : \"+D\"(d), \"+S\"(s), \"+c\"(n) : : \"memory\", \"cc\");",
    "__asm__ goto(\"testl %0, %0\\n\\tjz %l1\" : : \"r\"(t) : \"cc\" : zero_`); t = x; zero_`:;",
    "__asm__ volatile goto(\"cmpl %1, %0\\n\\tja %l[above_`]\" : : \"r\"(t), \"rm\"(x) : \"cc\", \"memory\" : above_`); out(1); above_`:;",
    "u old = x; __asm__ volatile(\"lock; cmpxchgl %2, %1\" : \"+a\"(old), \"+m\"(shared_pair.b) : \"r\"(t) : \"memory\", \"cc\"); t ^= old;",
    "u user; __asm__ volatile(\"int $0x80\" : \"=a\"(user) : \"0\"(24) : \"memory\"); t += user;",
    "u a, b; __asm__(\"movl %2, %%eax\\n\\tmovl %3, %%edx\\n\\tleal (%%eax,%%edx,2), %0\\n\\tsubl %%edx, %%eax\\n\\tmovl %%eax, %1\" : \"=c\"(a), \"=m\"(b) : \"S\"(t), \"D\"(x) : \"eax\", \"edx\", \"cc\"); t = a ^ b;",
    "double d = (double)(int)REAL(t); __asm__(\"fsqrt\" : \"+t\"(d)); t += (u)(int)(d * 64);",
    "double d = (double)(int)REAL(t), e = 3; __asm__(\"fadd %%st(1), %%st\" : \"+t\"(d) : \"u\"(e)); t += (u)(int)d;",
];

/// The same for 32-bit ARM, in both encodings.
const ARM: &[&str] = &[
    "__asm__(\"add %0, %0, %1\" : \"+r\"(t) : \"r\"(x));",
    "__asm__(\"eor %0, %0, %1\" : \"+r\"(t) : \"rI\"(255));",
    "__asm__(\"sub %0, %1, %2\" : \"=r\"(t) : \"0\"(t), \"r\"(x));",
    "u h; __asm__(\"umull %0, %1, %2, %3\" : \"=&r\"(t), \"=&r\"(h) : \"r\"(t), \"r\"(x)); t ^= h;",
    "u h; __asm__(\"adds %0, %0, %2\\n\\tadc %1, %2, #0\" : \"+r\"(t), \"=&r\"(h) : \"r\"(x) : \"cc\"); t ^= h;",
    "__asm__(\"movs %0, %0, lsr #1\\n\\tit cs\\n\\taddcs %0, %0, #7\" : \"+r\"(t) : : \"cc\");",
    "__asm__(\"cmp %1, %2\\n\\tite hi\\n\\tmovhi %0, %1\\n\\tmovls %0, %2\" : \"=&r\"(t) : \"r\"(x), \"r\"(y) : \"cc\");",
    "__asm__(\"rev %0, %1\" : \"=l\"(t) : \"l\"(x));",
    "u h; __asm__(\"ldr %0, %1\" : \"=r\"(h) : \"m\"(shared_pair.a)); t ^= h;",
    "__asm__(\"str %1, %0\" : \"=m\"(shared_pair.b) : \"r\"(t));",
    "__asm__ volatile(\"str %1, [%0]\" : : \"r\"(&shared_pair), \"r\"(t) : \"memory\");",
    "register u r __asm__(\"r4\") = t; __asm__(\"mvn %0, %0\" : \"+r\"(r)); t = r;",
    "register u r __asm__(\"r8\") = x; __asm__(\"add %0, %0, %1\" : \"+r\"(t) : \"r\"(r));",
    "register u a __asm__(\"r0\") = t; register u b __asm__(\"r1\") = x; __asm__(\"add r0, r0, r1, lsl #2\" : \"+r\"(a) : \"r\"(b)); t = a;",
    "__asm__(\"push {%1}\\n\\tpop {%0}\" : \"=r\"(t) : \"r\"(x) : \"memory\");",
    "__asm__(\"\" : : \"X\"(t), \"g\"(x) : \"memory\"); __asm__ volatile(\"\" : \"+r\"(t) : : \"r2\", \"r3\", \"ip\", \"lr\");",
    "__asm__(\"mov r2, %1\\n\\tadd %0, %0, r2\" : \"+r\"(t) : \"r\"(x) : \"r2\");",
    "u *s = shared_five.a; __asm__ volatile(\"ldmia %0!, {r2, r3}\\n\\teor %1, r2, r3\" : \"+r\"(s), \"=r\"(t) : : \"r2\", \"r3\", \"memory\");",
    "__asm__ goto(\"cmp %0, #0\\n\\tbeq %l1\" : : \"r\"(t) : \"cc\" : zero_`); t = x; zero_`:;",
    "__asm__ volatile goto(\"cmp %0, %1\\n\\tbhi %l[above_`]\" : : \"r\"(t), \"r\"(x) : \"cc\", \"memory\" : above_`); out(1); above_`:;",
    "u h, failed; __asm__ volatile(\"1: ldrex %0, [%3]\\n\\tadd %0, %0, %4\\n\\tstrex %1, %0, [%3]\\n\\tteq %1, #0\\n\\tbne 1b\" : \"=&r\"(h), \"=&r\"(failed), \"+Qo\"(shared_pair.a) : \"r\"(&shared_pair.a), \"Ir\"(7) : \"cc\"); t ^= h;",
];

/// For ARM's gcc, which supports flag outputs.
const ARM_FLAGS: &[&str] = &[
    "int z; __asm__(\"cmp %1, %2\" : \"=@cceq\"(z) : \"r\"(t), \"rI\"(7)); t += (u)z;",
    "int z; __asm__(\"cmp %1, %2\" : \"=@cchi\"(z) : \"r\"(t), \"r\"(x)); t += (u)z;",
];

/// For ARM with floating-point registers.
const ARM_FLOAT: &[&str] = &[
    "double d = (double)(int)REAL(t); __asm__(\"vadd.f64 %P0, %P0, %P1\" : \"+w\"(d) : \"w\"(d)); t += (u)(int)d;",
    "float f = (float)(int)REAL(t); __asm__(\"vmul.f32 %0, %0, %1\" : \"+t\"(f) : \"t\"(f)); t += (u)(int)(f / 1024);",
];

/// The program's own `setjmp` and `longjmp` for i386.
pub const JUMPS_I386: &str = "\
static __attribute__((naked, noinline, used, returns_twice, regparm(0))) int save_own(void **buffer)
{
__asm__(\"movl 4(%esp), %ecx\\n\\tmovl (%esp), %edx\\n\\tmovl %edx, 20(%ecx)\\n\\tleal 4(%esp), %edx\\n\\tmovl %edx, (%ecx)\\n\\tmovl %ebp, 4(%ecx)\\n\\tmovl %ebx, 8(%ecx)\\n\\tmovl %esi, 12(%ecx)\\n\\tmovl %edi, 16(%ecx)\\n\\txorl %eax, %eax\\n\\tret\");
}
static __attribute__((naked, noinline, used, noreturn, regparm(0))) void restore_own(void **buffer, int result)
{
__asm__(\"movl 4(%esp), %ecx\\n\\tmovl 8(%esp), %eax\\n\\tmovl 4(%ecx), %ebp\\n\\tmovl 8(%ecx), %ebx\\n\\tmovl 12(%ecx), %esi\\n\\tmovl 16(%ecx), %edi\\n\\tmovl (%ecx), %esp\\n\\tjmp *20(%ecx)\");
}
";

/// The same for 32-bit ARM.
pub const JUMPS_ARM: &str = "\
static __attribute__((naked, noinline, used, returns_twice)) int save_own(void **buffer)
{
__asm__(\"mov ip, sp\\n\\tstmia r0, {r4-r12, lr}\\n\\tmov r0, #0\\n\\tbx lr\");
}
static __attribute__((naked, noinline, used, noreturn)) void restore_own(void **buffer, int result)
{
__asm__(\"ldmia r0, {r4-r12, lr}\\n\\tmov sp, ip\\n\\tmov r0, r1\\n\\tbx lr\");
}
";

/// Bodies of functions of two words made only of assembly; a backquote is an earlier function of the same convention.
const NAKED_STACK: &[&str] = &[
    "movl 4(%esp), %eax\\n\\taddl 8(%esp), %eax\\n\\tret",
    "movl 8(%esp), %edx\\n\\tmovl 4(%esp), %eax\\n\\tleal 5(%eax,%edx,4), %eax\\n\\tret",
    "jmp `",
    "incl 8(%esp)\\n\\tjmp `",
    "pushl 8(%esp)\\n\\tpushl 8(%esp)\\n\\tcall `\\n\\taddl $8, %esp\\n\\tret",
    "pushl %ebx\\n\\tmovl 12(%esp), %ebx\\n\\tpushl %ebx\\n\\tpushl 12(%esp)\\n\\tcall `\\n\\taddl $8, %esp\\n\\taddl %ebx, %eax\\n\\tpopl %ebx\\n\\tret",
];

/// The same with the words in `eax` and `edx`.
const NAKED_REGISTERS: &[&str] = &[
    "addl %edx, %eax\\n\\tret",
    "leal 9(%edx,%eax,2), %eax\\n\\tret",
    "jmp `",
    "xchgl %eax, %edx\\n\\tjmp `",
    "pushl %edx\\n\\tcall `\\n\\tpopl %edx\\n\\txorl %edx, %eax\\n\\tret",
    "pushl %ebx\\n\\tmovl %edx, %ebx\\n\\tcall `\\n\\taddl %ebx, %eax\\n\\tpopl %ebx\\n\\tret",
];

/// The same with the words in `r0` and `r1`.
const NAKED_ARM: &[&str] = &[
    "add r0, r0, r1, lsl #1\\n\\tbx lr",
    "push {r4}\\n\\tmov r4, r1\\n\\teor r0, r0, r4\\n\\tpop {r4}\\n\\tbx lr",
    "b `",
    "mov r2, r0\\n\\tmov r0, r1\\n\\tmov r1, r2\\n\\tb `",
    "push {r4, lr}\\n\\tmov r4, r1\\n\\tbl `\\n\\tadd r0, r0, r4\\n\\tpop {r4, pc}",
    "push {r1, lr}\\n\\tbl `\\n\\tpop {r1, lr}\\n\\tadd r0, r0, r1\\n\\tbx lr",
];

impl Writer {
    /// Inline assembly about some words.
    pub(super) fn assembly(&mut self) -> String {
        let (t, x, y) = (self.word(2), self.word(1), self.word(1));
        if self.random.once_in(6)
            && let Some(call) = self.call_in_assembly()
        {
            return format!("{{ u t = {t}, x = {x};\n{call}\nout(t); }}\n");
        }
        let mut all = vec![if self.dialect.arm { ARM } else { I386 }];
        if self.dialect.arm && !self.dialect.clang {
            all.push(ARM_FLAGS);
        }
        if self.dialect.arm && self.dialect.hard_float {
            all.push(ARM_FLOAT);
        }
        let statement = *self.random.pick(&all.concat());
        let statement = statement.replace('`', &self.unique().to_string());
        format!("{{ u t = {t}, x = {x}, y = {y};\n{statement}\nout(t + (y & x)); }}\n")
    }

    /// A call hidden from the compiler: of a function made only of assembly, with its words in registers.
    fn call_in_assembly(&mut self) -> Option<String> {
        if self.dialect.pic {
            return None;
        }
        let named = |name: &&String| name.starts_with("naked_registers_");
        let function = self.naked.iter().rfind(named)?;
        Some(if self.dialect.arm {
            format!(
                "register u a __asm__(\"r0\") = t; register u b __asm__(\"r1\") = x;\n\
                 __asm__ volatile(\"bl %c2\" : \"+r\"(a), \"+r\"(b) : \"i\"({function}) : \"r2\", \"r3\", \"ip\", \"lr\", \"memory\", \"cc\");\n\
                 t = a;"
            )
        } else {
            format!(
                "__asm__ volatile(\"call %P2\" : \"+a\"(t), \"+d\"(x) : \"i\"({function}) : \"ecx\", \"memory\", \"cc\");"
            )
        })
    }

    /// Adds a function made only of assembly.
    pub(super) fn naked(&mut self) {
        let arm = self.dialect.arm;
        let in_registers = arm || self.random.once_in(2);
        let (bodies, prefix, convention) = match (arm, in_registers) {
            (true, _) => (NAKED_ARM, "naked_registers_", ""),
            (false, true) => (NAKED_REGISTERS, "naked_registers_", ", regparm(3)"),
            (false, false) => (NAKED_STACK, "naked_stack_", ", regparm(0)"),
        };
        let earlier: Vec<String> =
            self.naked.iter().filter(|name| name.starts_with(prefix)).cloned().collect();
        // The linker must not turn a branch in assembly into one that changes the encoding.
        let calls = !earlier.is_empty() && !self.dialect.mixed;
        let bodies: Vec<&str> = bodies.iter().copied().filter(|body| calls || !body.contains('`')).collect();
        let mut body = (*self.random.pick(&bodies)).to_owned();
        if body.contains('`') {
            body = body.replace('`', self.random.pick::<String>(&earlier));
        }
        let name = format!("{prefix}{}", self.unique());
        let _ = writeln!(
            self.text,
            "static __attribute__((naked, noinline, used{convention})) u {name}(u a, u b)\n{{\n__asm__(\"{body}\");\n}}"
        );
        self.naked.push(name.clone());
        let arguments = vec![Kind::Word, Kind::Word];
        self.functions.push(Function { name, result: Kind::Word, arguments, variadic: false, calls: 5 });
    }
}
