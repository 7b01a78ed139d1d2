//! The types of arguments and results.

/// A type of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Word,
    Byte,
    Short,
    Long,
    /// From 0 to 1023, so that every conversion to an integer is defined.
    Float,
    /// As [`Kind::Float`].
    Double,
    Pair,
    Tiny,
    Triple,
    Five,
    Either,
    Floats,
    Vector2,
    Vector4,
    /// A pointer to a writable word.
    Pointer,
    /// A function from a word to a word.
    Function,
}

/// Types of arguments; words occur several times, because most arguments are words.
pub const ARGUMENTS: &[Kind] = &[
    Kind::Word,
    Kind::Word,
    Kind::Word,
    Kind::Word,
    Kind::Word,
    Kind::Word,
    Kind::Byte,
    Kind::Short,
    Kind::Long,
    Kind::Float,
    Kind::Double,
    Kind::Pair,
    Kind::Tiny,
    Kind::Triple,
    Kind::Five,
    Kind::Either,
    Kind::Floats,
    Kind::Vector2,
    Kind::Vector4,
    Kind::Pointer,
    Kind::Function,
];

/// Types of results.
pub const RESULTS: &[Kind] = &[
    Kind::Word,
    Kind::Word,
    Kind::Word,
    Kind::Word,
    Kind::Word,
    Kind::Byte,
    Kind::Short,
    Kind::Long,
    Kind::Float,
    Kind::Double,
    Kind::Pair,
    Kind::Tiny,
    Kind::Triple,
    Kind::Five,
    Kind::Either,
    Kind::Floats,
    Kind::Vector2,
    Kind::Vector4,
];

/// The C definitions of all kinds, and functions `of_KIND` that convert a value to a word.
pub const DEFINITIONS: &str = "\
typedef unsigned u;
typedef unsigned char byte;
typedef short half;
typedef unsigned long long wide;
struct pair { u a, b; };
struct tiny { byte a; half b; };
struct triple { u a; half b; u c; };
struct five { u a[5]; };
union either { u a; byte b[4]; };
struct floats { float x, y; };
typedef u vector2 __attribute__((vector_size(8)));
typedef u vector4 __attribute__((vector_size(16)));
typedef u (*function)(u);
#define INLINE static inline __attribute__((always_inline)) u
INLINE of_pair(struct pair s) { return s.a + s.b * 3; }
INLINE of_tiny(struct tiny s) { return s.a + (u)s.b * 3; }
INLINE of_triple(struct triple s) { return s.a + (u)s.b * 3 + s.c * 5; }
INLINE of_five(struct five s) { return s.a[0] + s.a[1] * 3 + s.a[2] * 5 + s.a[3] * 7 + s.a[4] * 9; }
INLINE of_either(union either s) { return s.a + s.b[2]; }
INLINE of_floats(struct floats s) { return (u)(int)s.x + (u)(int)s.y * 3; }
INLINE of_vector2(vector2 v) { return v[0] + v[1] * 3; }
INLINE of_vector4(vector4 v) { return v[0] + v[1] * 3 + v[2] * 5 + v[3] * 7; }
INLINE of_wide(wide x) { return (u)(x >> 32) * 3 + (u)x; }
INLINE of_real(double x) { return (u)(int)(x * 16); }
#define REAL(x) ((x) & 1023)
";

impl Kind {
    /// The name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Word => "u",
            Kind::Byte => "byte",
            Kind::Short => "half",
            Kind::Long => "wide",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Pair => "struct pair",
            Kind::Tiny => "struct tiny",
            Kind::Triple => "struct triple",
            Kind::Five => "struct five",
            Kind::Either => "union either",
            Kind::Floats => "struct floats",
            Kind::Vector2 => "vector2",
            Kind::Vector4 => "vector4",
            Kind::Pointer => "u *",
            Kind::Function => "function",
        }
    }

    /// Whether the type is a vector, which gcc passes in ways that depend on the target's options.
    pub fn is_vector(self) -> bool {
        matches!(self, Kind::Vector2 | Kind::Vector4)
    }

    /// Makes a value from words; `None` for addresses.
    pub fn make(self, mut word: impl FnMut() -> String) -> Option<String> {
        let mut words = |count: usize| (0..count).map(|_| word()).collect::<Vec<_>>().join(", ");
        let name = self.name();
        Some(match self {
            Kind::Word => words(1),
            Kind::Byte | Kind::Short => format!("({name})({})", words(1)),
            Kind::Long => format!("((wide)({}) << 32 | (u)({}))", words(1), words(1)),
            Kind::Float | Kind::Double => format!("({name})(int)REAL({})", words(1)),
            Kind::Pair => format!("(struct pair){{{}}}", words(2)),
            Kind::Tiny => format!("(struct tiny){{(byte)({}), (half)({})}}", words(1), words(1)),
            Kind::Triple => {
                format!("(struct triple){{{}, (half)({}), {}}}", words(1), words(1), words(1))
            }
            Kind::Five => format!("(struct five){{{{{}}}}}", words(5)),
            Kind::Either => format!("(union either){{{}}}", words(1)),
            Kind::Floats => {
                format!("(struct floats){{(float)(int)REAL({}), (float)(int)REAL({})}}", words(1), words(1))
            }
            Kind::Vector2 => format!("(vector2){{{}}}", words(2)),
            Kind::Vector4 => format!("(vector4){{{}}}", words(4)),
            Kind::Pointer | Kind::Function => return None,
        })
    }

    /// Makes a word from a value.
    pub fn word(self, value: &str) -> String {
        match self {
            Kind::Word => value.to_owned(),
            Kind::Byte | Kind::Short => format!("(u)({value})"),
            Kind::Long => format!("of_wide({value})"),
            Kind::Float | Kind::Double => format!("of_real({value})"),
            Kind::Pair
            | Kind::Tiny
            | Kind::Triple
            | Kind::Five
            | Kind::Either
            | Kind::Floats
            | Kind::Vector2
            | Kind::Vector4 => format!("of_{}({value})", self.name().rsplit(' ').next().unwrap_or_default()),
            Kind::Pointer => format!("(*{value})"),
            Kind::Function => format!("(u)({value} == twin_0)"),
        }
    }
}
