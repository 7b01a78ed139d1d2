//! The side table: its files, and its calls in the slab allocator.

use kcli::Failure;

use super::Files;
use super::accessors::Compressed;
use super::edit::Edit;
use super::make::Edits;
use super::text::Tree;

/// The line that headers with codes need.
pub const INCLUDE: &str = "#include <linux/kshrink_fields.h>\n";

/// The interface of the side table.
pub(super) const HEADER: &str = include_str!("../../runtime/kshrink_fields.h");

/// The side table.
pub(super) const TABLE: &str = include_str!("../../runtime/kshrink_fields.c");

/// The place of the interface in the kernel's source.
const HEADER_FILE: &str = "include/linux/kshrink_fields.h";

/// The place of the side table.
const TABLE_FILE: &str = "mm/kshrink_fields.c";

/// The place of the descriptions of all members.
const MEMBERS_FILE: &str = "mm/kshrink_members.c";

/// The slab allocator.
const SLUB: &str = "mm/slub.c";

/// Its header.
const SLAB_HEADER: &str = "mm/slab.h";

/// Number of buckets as a power of two, if every value goes into the side table.
const STARVED_BUCKET_BITS: u32 = 13;

/// A place in a file of the kernel, and the text for it.
struct Insertion {
    file: &'static str,
    /// The text after which the insertion is made. Its first occurrence counts.
    after: &'static str,
    /// Text before `after`, to find the right occurrence.
    within: &'static str,
    text: &'static str,
}

/// The calls of the side table.
const INSERTIONS: [Insertion; 8] = [
    Insertion {
        file: "mm/Makefile",
        within: "",
        after: "obj-y += slub.o\n",
        text: "obj-y += kshrink_fields.o kshrink_members.o\n",
    },
    Insertion {
        file: SLAB_HEADER,
        within: "struct kmem_cache {\n",
        after: "\tslab_flags_t flags;\n",
        text: "\tbool has_fields;\t\t/* Values of objects are in mm/kshrink_fields.c */\n",
    },
    Insertion {
        file: SLAB_HEADER,
        within: "struct kmem_cache {\n",
        after: "\n};\n",
        text: "\nvoid slab_has_fields(const void *field);\n",
    },
    Insertion { file: SLUB, within: "", after: "#include <linux/kmemleak.h>\n", text: INCLUDE },
    Insertion {
        file: SLUB,
        within: "static void __free_slab(struct kmem_cache *s, struct slab *slab)",
        after: "\tint pages = 1 << order;\n\n",
        text: "\tif (READ_ONCE(s->has_fields))\n\t\tkf_drop(slab_address(slab), PAGE_SIZE << order);\n",
    },
    Insertion {
        file: SLUB,
        within: "static __fastpath_inline\nvoid slab_free(",
        after: "\talloc_tagging_slab_free_hook(s, slab, &object, 1);\n",
        text: "\tslab_drop_fields(s, &object, 1);\n",
    },
    Insertion {
        file: SLUB,
        within: "static __fastpath_inline\nvoid slab_free_bulk(",
        after: "\talloc_tagging_slab_free_hook(s, slab, p, cnt);\n",
        text: "\tslab_drop_fields(s, p, cnt);\n",
    },
    Insertion {
        file: SLUB,
        within: "static void free_large_kmalloc(",
        after: "\tkmsan_kfree_large(object);\n",
        text: "\tkf_drop(object, PAGE_SIZE << order);\n",
    },
];

/// The functions that the insertions and the side table call.
pub(super) const DROP: &str = "\
/* Marks the cache of an object with a value in mm/kshrink_fields.c. */
void slab_has_fields(const void *field)
{
	struct slab *slab = NULL;

	if (slab_is_available() && virt_addr_valid(field))
		slab = virt_to_slab(field);
	if (slab)
		WRITE_ONCE(slab->slab_cache->has_fields, true);
}

/* Objects that keep their content while they are free lose it with their slab. */
static __always_inline void slab_drop_fields(struct kmem_cache *s, void **p, int cnt)
{
	int i;

	if (likely(!READ_ONCE(s->has_fields)) || s->ctor || (s->flags & SLAB_TYPESAFE_BY_RCU))
		return;
	for (i = 0; i < cnt; i++)
		kf_drop(p[i], s->object_size);
}

";

/// The function before which [`DROP`] stands.
const DROP_BEFORE: &str = "static __fastpath_inline\nvoid slab_free(";

/// Adds the side table.
///
/// # Errors
/// Bad input if the slab allocator of this version is not known.
pub fn add(
    tree: &Tree,
    compressed: &[Compressed],
    is_starved: bool,
    edits: &mut Edits,
    files: &mut Files,
) -> Result<(), Failure> {
    if compressed.iter().all(|member| member.reference().is_empty()) {
        // Accessors of absent members need the header alone.
        files.insert(HEADER_FILE.to_owned(), (String::new(), HEADER.to_owned()));
        return Ok(());
    }
    for insertion in &INSERTIONS {
        let place = find(tree, insertion.file, insertion.within, insertion.after)? + insertion.after.len();
        let edit = Edit::new(place, place, insertion.text.to_owned());
        edits.entry(insertion.file.to_owned()).or_default().push(edit);
    }
    let place = find(tree, SLUB, "", DROP_BEFORE)?;
    edits.entry(SLUB.to_owned()).or_default().push(Edit::new(place, place, DROP.to_owned()));
    let table = match is_starved {
        true => TABLE.replace(
            "#define KF_BUCKET_BITS 8\n",
            &format!("#define KF_BUCKET_BITS {STARVED_BUCKET_BITS}\n"),
        ),
        false => TABLE.to_owned(),
    };
    for (name, text) in
        [(HEADER_FILE, HEADER.to_owned()), (TABLE_FILE, table), (MEMBERS_FILE, members(compressed))]
    {
        files.insert(name.to_owned(), (String::new(), text));
    }
    Ok(())
}

/// Returns the place of a text in a file.
fn find(tree: &Tree, name: &str, within: &str, text: &str) -> Result<usize, Failure> {
    let missing = |text: &str| {
        Failure::bad_input(format!(
            "{name}: no line {:?}; expected the slab allocator of Linux 6.12 (mm/slub.c)",
            text.trim()
        ))
    };
    let file = tree.file(name).ok_or_else(|| Failure::bad_input(format!("{name}: cannot be read")))?;
    let from = file.text.find(within).ok_or_else(|| missing(within))?;
    file.text[from..].find(text).map(|at| from + at).ok_or_else(|| missing(text))
}

/// Returns the file with the descriptions of all members.
pub fn members(compressed: &[Compressed]) -> String {
    let declarations: String = compressed.iter().map(Compressed::declaration).collect();
    let definitions: String = compressed.iter().map(Compressed::definition).collect();
    let references: String = compressed.iter().map(Compressed::reference).collect();
    format!(
        "\
// SPDX-License-Identifier: GPL-2.0
/* The members that are stored as codes: see include/linux/kshrink_fields.h. */
#include <linux/kshrink_fields.h>

{declarations}
{definitions}struct kf_member *const kf_members[] = {{
{references}\tNULL
}};
"
    )
}
