//! The document `kshrink-field-profile/1`: the values of the members of allocated structures.

use std::fmt;

use ktypes::Kind;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of the document's format.
pub const PROFILE_SCHEMA: &str = "kshrink-field-profile/1";

/// The values of the members of the structures that a kernel allocates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`PROFILE_SCHEMA`].
    pub schema: String,
    /// The version of the kernel, `Linux version …`.
    pub kernel: String,
    /// The build ID of the kernel's vmlinux in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The memory dumps.
    pub cores: Vec<CoreTotals>,
    /// Whether loads and stores were counted.
    pub accesses: bool,
    /// The rules of the slab allocator.
    pub allocator: Option<Allocator>,
    /// The slab caches, by descending size.
    pub caches: Vec<CacheProfile>,
    /// The structures in them, by name.
    pub types: Vec<TypeProfile>,
}

/// The sums of a memory dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreTotals {
    /// The name of the file.
    pub core: String,
    /// The size of all slabs in bytes.
    pub slab: u64,
}

/// Maximum size in bytes of a structure, an object or a slab in a document: 64 MiB.
const MAX_BYTES: u64 = 64 << 20;

/// Maximum number of objects of a cache in a document.
const MAX_OBJECTS: u64 = 1 << 36;

impl Profile {
    /// Checks that no number is impossible, so that sizes can be computed without further checks.
    ///
    /// # Errors
    /// A description of the impossible number.
    pub fn check(&self) -> Result<(), String> {
        let is_size = |bytes: u64| bytes <= MAX_BYTES;
        let is_align = |align: u64| align.is_power_of_two() && is_size(align);
        if let Some(rules) = &self.allocator {
            let aligns = [rules.word, rules.page, rules.align, rules.cache_line].into_iter().all(is_align);
            let [least, greatest] = rules.orders;
            let has_slabs = least <= greatest
                && greatest <= 11
                && (1024..=1 << 16).contains(&rules.page)
                && rules.objects <= 1 << 16;
            if !aligns || !has_slabs || rules.word > 8 {
                return Err(format!("the rules of the slab allocator are impossible ({rules:?})"));
            }
        }
        for cache in &self.caches {
            let sizes = [cache.object_size, cache.size, cache.slab_bytes]
                .into_iter()
                .all(|size| size > 0 && is_size(size));
            let counts =
                [cache.objects, cache.used, cache.per_slab].into_iter().all(|count| count <= MAX_OBJECTS);
            if !sizes || !counts || !is_align(cache.align) || cache.bytes > MAX_OBJECTS {
                return Err(format!("the slab cache {:?} has impossible sizes", cache.name));
            }
        }
        for of in &self.types {
            let is_right = |member: &MemberProfile| {
                let bits = member.bits.unwrap_or_default();
                is_size(member.offset)
                    && is_size(member.bytes)
                    && is_align(member.align.max(1))
                    && is_align(member.group_align.max(1))
                    && [member.distinct, member.pages, member.zero]
                        .into_iter()
                        .all(|count| count <= MAX_OBJECTS)
                    && member.values.iter().all(|value| value.objects <= MAX_OBJECTS)
                    && bits.into_iter().all(|bit| bit <= 64)
                    && member.prefix <= 64
                    && member.zeros <= 64
                    && member
                        .own
                        .is_none_or(|own| is_size(own.distance.unsigned_abs()) && own.objects <= MAX_OBJECTS)
            };
            let wrong = of.members.iter().find(|member| !is_right(member));
            if !is_size(of.size) || !is_align(of.align.max(1)) || of.objects > MAX_OBJECTS || wrong.is_some()
            {
                let member =
                    wrong.map_or(String::new(), |member| format!(" in its member {:?}", member.name));
                return Err(format!("struct {:?} has impossible numbers{member}", of.name));
            }
        }
        Ok(())
    }
}

/// The rules by which the slab allocator (SLUB) places objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocator {
    /// The size of a pointer in bytes.
    pub word: u64,
    /// The size of a page in bytes.
    pub page: u64,
    /// The least alignment of objects in bytes (`arch_slab_minalign`).
    pub align: u64,
    /// The size of a cache line in bytes (`cache_line_size`).
    pub cache_line: u64,
    /// The least and greatest preferred order of a slab (`slub_min_order`, `slub_max_order`).
    pub orders: [u64; 2],
    /// The preferred number of objects of a slab (`calculate_order`).
    pub objects: u64,
}

/// A slab cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheProfile {
    /// Its name.
    pub name: String,
    /// The structure of its objects, if it is known.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The reason why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untyped: Option<String>,
    /// The size of an object in bytes, as asked for.
    pub object_size: u64,
    /// The size of an object in bytes, with padding.
    pub size: u64,
    /// The alignment of objects in bytes.
    pub align: u64,
    /// Whether objects begin at cache lines (`SLAB_HWCACHE_ALIGN`).
    #[serde(default)]
    pub cache_lines: bool,
    /// The place of the link to the next free object.
    pub constructor: Constructor,
    /// Number of objects of a slab.
    pub per_slab: u64,
    /// The size of a slab in bytes.
    pub slab_bytes: u64,
    /// The size of its slabs in bytes, the largest of all dumps.
    pub bytes: u64,
    /// Number of its objects, used and free, in the same dump.
    pub objects: u64,
    /// Number of its allocated objects in the same dump.
    pub used: u64,
}

/// The place of the link to the next free object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Constructor {
    /// It lies in the object, because nothing reads a free object.
    Inside,
    /// It lies after the object: the cache has a constructor, or readers that may still hold a free object
    /// (`SLAB_TYPESAFE_BY_RCU`).
    After,
}

/// A structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeProfile {
    /// Its name, without `struct`.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// The source file by which it was compiled, relative to the kernel's source.
    pub file: String,
    /// Number of live objects in all dumps, embedded ones too.
    pub objects: u64,
    /// Its members in their order, with those of unnamed structures and unions.
    pub members: Vec<MemberProfile>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberProfile {
    /// Its name.
    pub name: String,
    /// Its offset in bytes.
    pub offset: u64,
    /// Its size in bytes; of a bit-field, that of its word.
    pub bytes: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// For a bit-field: the lowest bit in its word, and number of bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<[u64; 2]>,
    /// For a number in a structure of its own, such as `kuid_t`: the name of the number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapped: Option<String>,
    /// Its kind.
    pub kind: Kind,
    /// Its type, as in C.
    #[serde(rename = "type")]
    pub of: String,
    /// The structure that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<String>,
    /// The first member with a name of the unnamed structure, union or run of bit-fields that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The alignment of that group in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub group_align: u64,
    /// Whether it shares its bytes with other members of a union.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub union: bool,
    /// The least value, as the member's type has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Value>,
    /// The greatest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Value>,
    /// The least value except 0; for a pointer the address, also of a symbol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Value>,
    /// The greatest value; for a pointer the address, also of a symbol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Value>,
    /// For a pointer: the most frequent distance from its object to the place to which it refers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
    /// Number of distinct values, at most 4,096.
    pub distinct: u64,
    /// The values by descending number of objects; empty if there are more than 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueCount>,
    /// Number of high bits that all values have in common, except 0.
    pub prefix: u32,
    /// Number of distinct pages to which a pointer refers, at most 4,096.
    pub pages: u64,
    /// Number of low bits that are 0 in all values.
    pub zeros: u32,
    /// Number of objects in which it is 0.
    pub zero: u64,
    /// Number of loads, by the access log.
    pub loads: u64,
    /// Number of stores, by the access log.
    pub stores: u64,
}

/// Pointers of objects to a place near themselves, such as a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// The distance in bytes from the start of the object.
    pub distance: i64,
    /// Number of objects with it.
    pub objects: u64,
}

/// A value of a member: a number, or a place in the kernel's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number of 64 bits, with or without a sign.
    Number(i128),
    /// The address of a symbol, `name` or `name+0x10`.
    Symbol(String),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Symbol(symbol) => serializer.serialize_str(symbol),
            Value::Number(number) => match u64::try_from(*number) {
                Ok(number) => serializer.serialize_u64(number),
                Err(_) => serializer.serialize_i64(i64::try_from(*number).unwrap_or(i64::MIN)),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        struct ValueVisitor;

        impl Visitor<'_> for ValueVisitor {
            type Value = Value;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a number or the name of a symbol")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(Value::Number(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Number(number.into()))
            }

            fn visit_str<E>(self, symbol: &str) -> Result<Value, E> {
                Ok(Value::Symbol(symbol.to_owned()))
            }
        }

        deserializer.deserialize_any(ValueVisitor)
    }
}

impl fmt::Display for Value {
    /// Writes the number in hexadecimal digits, or the symbol.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number @ 0..) => write!(formatter, "{number:#x}"),
            Value::Number(number) => write!(formatter, "{number}"),
            Value::Symbol(symbol) => write!(formatter, "{symbol}"),
        }
    }
}

/// A value, and how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCount {
    /// The value.
    pub value: Value,
    /// Number of objects.
    pub objects: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
