//! The parts of objects that an option adds between `#if`, although the objects stay without it.
//!
//! An option names lines of source files (`source`); the debugging information of an object says which of its bytes
//! come from these lines (`recompile`, `debug`). What the text shows and the lines do not makes an option unclear: a
//! macro, `IS_ENABLED` in an expression, a condition that only the compiler can decide.

mod debug;
mod expression;
mod recompile;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use kcfg::graph::{CodeName, Graph};
use kcfg::index::{InputId, NodeId};
use kcli::Progress;
use kplan::FunctionName;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::classes::{Ran, RanFunction};
use crate::closure::Closures;
use crate::config::Closure;
use crate::costs::is_init;
use crate::gates::Gates;
use crate::mentions::Mentions;
use crate::tree::Tree;
use debug::{SourceLines, Span};
use source::{Lost, SourceFile};

/// Maximum number of objects that are compiled again for the inline functions of a header.
const MAX_INCLUDERS: usize = 50;

/// Maximum number of objects that are compiled again for an option that stays unclear.
const MAX_UNCLEAR: usize = 10;

/// The files and lines of a build, for all options.
pub struct Parts<'a> {
    tree: &'a Tree,
    graph: &'a Graph,
    mentions: &'a Mentions,
    gates: &'a Gates,
    sources: FxHashMap<String, SourceFile>,
    /// The files that mention each option.
    of_option: FxHashMap<String, Vec<String>>,
    /// A file for each object that includes one which cannot be read.
    unread: FxHashMap<String, String>,
    /// The reason why any option may have more parts: a linked object without a record of its files.
    unrecorded: Option<String>,
    /// The lines of objects, with absolute paths, or the reason why they are not known.
    lines: FxHashMap<String, Result<SourceLines, String>>,
    places: Places<'a>,
}

/// The parts of one option.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Nodes that come from its lines alone.
    pub whole: Vec<NodeId>,
    /// These and the blocks of which some bytes come from its lines.
    pub touched: FxHashSet<NodeId>,
    /// The functions of these blocks that ran. A part that ran of a function that stays counts as used.
    pub ran: Vec<RanFunction>,
    /// Why there may be more of it than these nodes, for people.
    pub unclear: Option<String>,
    /// The functions for which stubs stand without it, by name.
    pub replaced: Vec<String>,
}

/// The lines of files that an option adds, and the objects whose lines are needed.
#[derive(Default)]
struct Needed<'a> {
    /// The files by absolute path.
    lost: Vec<(String, Lost)>,
    objects: BTreeSet<&'a str>,
    unclear: Option<String>,
    replaced: Vec<String>,
}

/// The parts that were found so far.
#[derive(Default)]
struct Found<'l> {
    part: Part,
    /// The functions that ran, by their first block.
    ran: BTreeMap<NodeId, RanFunction>,
    /// The lost lines that left code or data, with their files.
    seen: FxHashSet<(&'l str, u32)>,
}

impl<'a> Parts<'a> {
    /// Reads the source files that mention options, and the lines of the objects in which the options have parts.
    pub fn read(
        tree: &'a Tree,
        graph: &'a Graph,
        mentions: &'a Mentions,
        gates: &'a Gates,
        closures: &Closures,
    ) -> Parts<'a> {
        let files: Vec<&str> = mentions.files().collect();
        let parsed: Vec<(&str, Option<SourceFile>)> =
            files.into_par_iter().map(|file| (file, source_file(tree, file))).collect();
        let mut parts = Parts {
            tree,
            graph,
            mentions,
            gates,
            sources: FxHashMap::default(),
            of_option: FxHashMap::default(),
            unread: FxHashMap::default(),
            unrecorded: None,
            lines: FxHashMap::default(),
            places: Places::of(graph),
        };
        for (file, source) in parsed {
            let Some(source) = source else {
                let objects = mentions.includers(file);
                parts.unread.extend(objects.map(|object| (object.to_owned(), file.to_owned())));
                continue;
            };
            let options: BTreeSet<&str> = source.options().collect();
            for &option in &options {
                parts.of_option.entry(option.to_owned()).or_default().push(file.to_owned());
            }
            if !options.is_empty() {
                parts.sources.insert(file.to_owned(), source);
            }
        }
        let mut linked: Vec<&&str> = parts.places.of_object.keys().collect();
        linked.sort_unstable();
        let unrecorded = linked.into_iter().find(|object| !mentions.has(object));
        parts.unrecorded =
            unrecorded.map(|object| format!("no record tells which files {object} was made from"));
        let mut objects: BTreeSet<String> = BTreeSet::new();
        for closure in closures.values().flatten() {
            let needed = parts.needed(closure);
            // The option stays unclear, but a part that ran shows that it is used.
            if needed.unclear.is_none() || needed.objects.len() <= MAX_UNCLEAR {
                objects.extend(needed.objects.into_iter().map(str::to_owned));
            }
        }
        let progress = Progress::bar(objects.len() as u64, "reading lines of objects");
        let lines = |object: String| {
            let mut lines = recompile::lines(&tree.build, &object, &mentions.files_of(&object));
            lines.iter_mut().flat_map(|lines| &mut lines.files).for_each(|file| *file = parts.absolute(file));
            progress.advance(1);
            (object, lines)
        };
        let lines = objects.into_par_iter().map(lines).collect();
        Parts { lines, ..parts }
    }

    /// Returns the parts of the options that change, apart from the objects that are linked for them alone.
    pub fn of(&self, changes: &Closure, ran: Option<&Ran>) -> Part {
        let needed = self.needed(changes);
        let mut found =
            Found { part: Part { unclear: needed.unclear, ..Part::default() }, ..Found::default() };
        for object in &needed.objects {
            let problem = match (self.places.of_object.get(*object), self.lines.get(*object)) {
                (None, _) => Some("is not linked by itself"),
                (_, Some(Err(why))) => Some(why.as_str()),
                (Some(sections), Some(Ok(lines))) => {
                    self.object(&mut found, &needed.lost, sections, lines, ran)
                }
                (_, None) => Some("its lines were not read"),
            };
            if let Some(problem) = problem {
                found.part.unclear.get_or_insert_with(|| format!("{object} has a part of it, and {problem}"));
            }
        }
        for (file, lost) in &needed.lost {
            let is_seen = |lines: &&Range<u32>| {
                Range::clone(lines).any(|line| found.seen.contains(&(file.as_str(), line)))
            };
            if let Some(lines) = lost.visible.iter().find(|lines| !is_seen(lines)) {
                let place = || format!("{}:{}", self.shown(file), lines.start);
                let unclear = || format!("{} is a part of it, and has no code of its own", place());
                found.part.unclear.get_or_insert_with(unclear);
            }
        }
        found.part.replaced = needed.replaced;
        found.part.ran = found.ran.into_values().collect();
        found.part
    }

    /// Adds the parts in one object, with these sections and lines. Returns why there may be more, if so.
    fn object<'l>(
        &self,
        found: &mut Found<'l>,
        lost: &'l [(String, Lost)],
        sections: &FxHashMap<&str, Option<InputId>>,
        lines: &SourceLines,
        ran: Option<&Ran>,
    ) -> Option<&'static str> {
        let of_file = |file: &String| lost.iter().find(|(own, _)| own == file);
        let files: Vec<Option<&(String, Lost)>> = lines.files.iter().map(of_file).collect();
        // An object may use nothing of a header.
        if files.iter().all(Option::is_none) && lost.iter().any(|(file, _)| !file.ends_with(".h")) {
            return Some("its lines name none of the files with parts");
        }
        let lost_line = |&(file, line): &(usize, u32)| {
            let (name, lost) = files[file]?;
            lost.lines.iter().any(|lines| lines.contains(&line)).then_some((name.as_str(), line))
        };
        let mut kept: FxHashSet<NodeId> = FxHashSet::default();
        let mut own: BTreeSet<NodeId> = BTreeSet::new();
        let mut problem = None;
        // Code without a line is the compiler's.
        for span in lines.spans.iter().filter(|span| !span.places.is_empty()) {
            let is_lost = span.places.iter().any(|place| lost_line(place).is_some());
            // Sections that are not linked are not in the kernel.
            let Some(section) = sections.get(lines.sections[span.section].as_str()) else { continue };
            let Some(section) = *section else {
                problem = problem.or(is_lost.then_some("has several sections of one name"));
                continue;
            };
            let nodes = self.places.nodes(section, &span.bytes);
            if !is_lost {
                kept.extend(nodes);
                continue;
            }
            own.extend(nodes);
            found.seen.extend(span.places.iter().filter_map(lost_line));
            let bytes = u64::from(span.bytes.start)..u64::from(span.bytes.end);
            if let Some(ran) = ran.filter(|ran| ran.any(section, &bytes))
                && let Some(function) = self.places.function(section, span.bytes.start)
            {
                let node = function.1.node;
                let is_lost = |place: &(usize, u32)| lost_line(place).is_some();
                let function = || self.ran_function(ran, function, lines, section, &is_lost, &span.places);
                found.ran.entry(node).or_insert_with(function);
            }
        }
        found.part.touched.extend(&own);
        found.part.whole.extend(own.into_iter().filter(|node| !kept.contains(node)));
        problem
    }

    /// Returns what a function that ran says about the option: the function itself if its first line is lost, too.
    fn ran_function(
        &self,
        ran: &Ran,
        (start, function): &(u32, CodeName<'_>),
        lines: &SourceLines,
        section: InputId,
        is_lost: &dyn Fn(&(usize, u32)) -> bool,
        places: &[(usize, u32)],
    ) -> RanFunction {
        let own_section = &*self.graph.inputs()[section].name;
        let is_first =
            |span: &&Span| lines.sections[span.section] == own_section && span.bytes.contains(start);
        let mut first = lines.spans.iter().filter(is_first);
        let is_whole = first.any(|span| span.places.last().is_some_and(is_lost));
        if is_whole && let Some(ran) = ran.at(function.node) {
            return ran.clone();
        }
        let is_init = is_init(own_section);
        let line = places.iter().find(|place| is_lost(place)).map_or(0, |(_, line)| *line);
        let used = (!is_init).then(|| format!("line {line} ran, a part of a function that stays"));
        let symbol = function.symbol;
        let name = FunctionName {
            name: symbol.name.clone(),
            file: symbol.file.as_deref().map(str::to_owned),
            nth: function.nth,
        };
        RanFunction { name, node: function.node, is_init, used, is_notified: false, callers: Vec::new() }
    }

    /// Returns an absolute path without `.` and `..`. Relative paths are relative to the build directory.
    fn absolute(&self, path: &str) -> String {
        let mut parts: Vec<Component<'_>> = Vec::new();
        let whole = self.tree.build.join(path);
        for component in whole.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => drop(parts.pop()),
                other => parts.push(other),
            }
        }
        parts.iter().collect::<PathBuf>().display().to_string()
    }

    /// Returns a path for people: relative to the source tree if the file is there.
    fn shown(&self, path: &str) -> String {
        let path = self.absolute(path);
        let below = Path::new(&path).strip_prefix(&self.tree.source).map(|path| path.display().to_string());
        below.unwrap_or(path)
    }

    /// Returns the lines that the kernel loses with an option, and the objects that may have code or data of these lines.
    fn needed(&self, changes: &Closure) -> Needed<'_> {
        let then = self.tree.config.with(changes);
        let options: Vec<&str> = changes.keys().map(String::as_str).collect();
        let files: BTreeSet<&String> =
            options.iter().filter_map(|option| self.of_option.get(*option)).flatten().collect();
        let removed = self.gates.removed_by(&then);
        let mentioning = self.mentions.of(options.iter().copied(), &removed);
        let unread = mentioning.into_iter().find_map(|object| self.unread.get(object));
        let unread = unread.map(|file| format!("{} cannot be read", self.shown(file)));
        let mut needed = Needed { unclear: unread.or_else(|| self.unrecorded.clone()), ..Needed::default() };
        for file in files {
            let is_left = |object: &&str| removed.binary_search(object).is_err();
            let includers: Vec<&str> = self.mentions.includers(file).filter(is_left).collect();
            if includers.is_empty() {
                continue;
            }
            let is_header = file.ends_with(".h");
            let mut lost = self.sources[file].lost(&options, &self.tree.config, &then, is_header);
            needed.replaced.append(&mut lost.replaced);
            let has_code = if is_header { lost.body.is_some() } else { !lost.lines.is_empty() };
            let is_wide = is_header && has_code && includers.len() > MAX_INCLUDERS;
            let wide = lost.body.filter(|_| is_wide);
            let wide =
                wide.map(|line| (line, format!("has inline functions for {} objects", includers.len())));
            if let Some((line, why)) = lost.unclear.take().or(wide) {
                needed.unclear.get_or_insert_with(|| format!("{}:{line} {why}", self.shown(file)));
            }
            if has_code && !is_wide {
                needed.objects.extend(includers);
                needed.lost.push((self.absolute(file), lost));
            }
        }
        needed
    }
}

/// Reads a file; `None` if it cannot be read.
fn source_file(tree: &Tree, file: &str) -> Option<SourceFile> {
    let bytes = fs::read(tree.build.join(file)).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(if text.contains("CONFIG_") { SourceFile::parse(&text) } else { SourceFile::default() })
}

/// The nodes and functions of the input sections of a graph.
struct Places<'g> {
    /// The sections of each object by name; `None` if several sections of an object have it.
    of_object: FxHashMap<&'g str, FxHashMap<&'g str, Option<InputId>>>,
    /// The nodes of each section by their offset.
    nodes: FxHashMap<InputId, Vec<(u32, u32, NodeId)>>,
    /// The functions of each section by their offset.
    functions: FxHashMap<InputId, Vec<(u32, CodeName<'g>)>>,
}

impl<'g> Places<'g> {
    fn of(graph: &'g Graph) -> Places<'g> {
        let mut places = Places {
            of_object: FxHashMap::default(),
            nodes: FxHashMap::default(),
            functions: FxHashMap::default(),
        };
        for (id, input) in graph.inputs().iter_enumerated() {
            let sections = places.of_object.entry(&*input.object).or_default();
            let several = sections.contains_key(&*input.name);
            sections.insert(&*input.name, (!several).then_some(id));
        }
        for id in graph.node_ids().filter(|&id| graph.node(id).live) {
            if let Some(origin) = graph.node(id).origin() {
                places.nodes.entry(origin.section).or_default().push((origin.offset, origin.end(), id));
            }
        }
        places.nodes.values_mut().for_each(|nodes| nodes.sort_unstable());
        for named in graph.code_names() {
            if let Some(origin) = graph.node(named.node).origin() {
                places
                    .functions
                    .entry(origin.section)
                    .or_default()
                    .push((origin.offset + named.offset, named));
            }
        }
        places.functions.values_mut().for_each(|functions| functions.sort_by_key(|(offset, _)| *offset));
        places
    }

    /// Returns the nodes that hold some bytes of a section.
    fn nodes(&self, section: InputId, bytes: &Range<u32>) -> Vec<NodeId> {
        let nodes = self.nodes.get(&section).map_or(&[][..], Vec::as_slice);
        let first = nodes.partition_point(|(_, end, _)| *end <= bytes.start);
        nodes[first..].iter().take_while(|(start, ..)| *start < bytes.end).map(|(.., id)| *id).collect()
    }

    /// Returns the function at an offset of a section, and where it begins.
    fn function(&self, section: InputId, offset: u32) -> Option<&(u32, CodeName<'g>)> {
        let functions = self.functions.get(&section)?;
        let behind = functions.partition_point(|(start, _)| *start <= offset);
        functions[..behind].last()
    }
}
