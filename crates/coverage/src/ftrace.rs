//! The text of the kernel's function tracer, from `/sys/kernel/tracing/trace`, from the kernel's dump on the console,
//! or from `trace-cmd report`; and the text of the function graph tracer.
//!
//! ```text
//!      swapper-1   [000] d..1.     0.000000: vfs_open <-do_open
//!      swapper-1   [000]           0.000000: function:             vfs_open <-- do_open
//!  0)               |  do_open() {
//! ```
//!
//! Each line provides the function, and its caller, which has also run because it is on the stack. The caller adds some
//! of the functions that the tracer leaves out (`notrace`). The order is that of the lines, which the kernel has sorted
//! by time; timestamps are not used, because the clock may jump while a kernel boots.
//!
//! Several local functions may share a name. If the line has the address as well (option `sym-addr`), the address
//! decides. Otherwise, all functions of that name count as run, and their number is reported; callees of an ambiguous
//! caller are left out.

use kelf::FunctionIndex;
use kplan::{CallEdge, Coverage, CoveredFunction, Run};
use ktext::{KernelText, function_name};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::lines::Lines;

/// The separator before the caller of a function.
const CALLER: &[u8] = b"<-";

/// Maximum number of processors (`NR_CPUS` is at most this).
const MAX_PROCESSORS: usize = 8192;

/// Maximum depth of a call stack in a function graph (`FTRACE_RETFUNC_DEPTH` is 50).
const MAX_DEPTH: usize = 1024;

/// The figures of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Lines with a function.
    pub events: u64,
    /// Number of these whose function the kernel has.
    pub matched: u64,
    /// Names that the kernel does not have, with the number of their events. Functions of modules include the module's
    /// name.
    pub unknown: FxHashMap<String, u64>,
    /// Names of several functions without a distinguishing address.
    pub ambiguous: FxHashSet<String>,
    /// Events that the kernel dropped, according to the trace.
    pub lost: u64,
    /// Whether the last line was cut off.
    pub is_cut: bool,
}

/// A function of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Symbol<'a> {
    name: &'a [u8],
    /// The address that the option `sym-addr` adds.
    address: Option<u64>,
    module: Option<&'a [u8]>,
}

/// The content of a line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// A function was entered.
    Call { function: Symbol<'a>, caller: Option<Symbol<'a>> },
    /// Function graph: a function was entered on a processor. A leaf has returned as well; for other functions, a later
    /// line reports the return.
    Enter { processor: usize, function: Symbol<'a>, is_leaf: bool },
    /// Function graph: the function at the top of a processor's call stack returns.
    Leave { processor: usize },
    /// Events were lost.
    Lost(u64),
    /// Something else.
    Other,
}

/// Records functions that ran, and calls.
#[derive(Debug)]
pub struct CallRecorder<'a> {
    kernel: &'a KernelText,
    functions: FxHashMap<FunctionIndex, EnteredFunction>,
    calls: FxHashMap<(FunctionIndex, FunctionIndex), u64>,
    /// The call stack of each processor in a function graph; `None` for an unknown or ambiguous function.
    stacks: FxHashMap<usize, Vec<Option<FunctionIndex>>>,
}

/// The data of a function that ran.
#[derive(Debug)]
struct EnteredFunction {
    first: u64,
    /// Number of times that it was entered; `None` if it was only seen as a caller.
    count: Option<u64>,
}

impl<'a> CallRecorder<'a> {
    /// Creates a recorder for traces of `kernel`.
    pub fn new(kernel: &'a KernelText) -> CallRecorder<'a> {
        let (functions, calls, stacks) = Default::default();
        CallRecorder { kernel, functions, calls, stacks }
    }

    /// Reads a trace, and records its functions and calls.
    ///
    /// # Errors
    /// If the trace cannot be read, is not such a trace, or has no function of the kernel.
    pub fn read(&mut self, lines: &mut Lines) -> Result<TraceCounts> {
        let mut trace = TraceCounts::default();
        while let Some(line) = lines.read_line()? {
            self.note(line, &mut trace);
        }
        trace.is_cut = lines.is_cut();
        trace.check(&lines.name, self.kernel)?;
        Ok(trace)
    }

    fn note(&mut self, line: &[u8], trace: &mut TraceCounts) {
        match parse(line) {
            Line::Call { function, caller } => {
                let caller = caller.and_then(|caller| self.only(caller));
                self.enter(function, caller, trace);
            }
            Line::Enter { processor, function, is_leaf } => {
                let caller = self.stacks.get(&processor).and_then(|stack| stack.last().copied().flatten());
                let entered = self.enter(function, caller, trace);
                let stack = self.stacks.entry(processor).or_default();
                if !is_leaf && stack.len() < MAX_DEPTH {
                    stack.push(entered);
                }
            }
            Line::Leave { processor } => {
                // The stack is empty if the trace begins within a function.
                self.stacks.get_mut(&processor).and_then(Vec::pop);
            }
            Line::Lost(count) => {
                trace.lost = trace.lost.saturating_add(count);
                self.stacks.clear();
            }
            Line::Other => {}
        }
    }

    /// Records that a function was entered. Returns it if its name is unambiguous.
    fn enter(
        &mut self,
        symbol: Symbol<'_>,
        caller: Option<FunctionIndex>,
        trace: &mut TraceCounts,
    ) -> Option<FunctionIndex> {
        trace.events += 1;
        let functions = self.functions(symbol);
        if functions.is_empty() {
            *trace.unknown.entry(symbol.describe()).or_default() += 1;
            return None;
        }
        trace.matched += 1;
        if let Some(caller) = caller {
            self.run(caller);
        }
        for &function in &functions {
            let count = &mut self.run(function).count;
            *count = Some(count.unwrap_or(0) + 1);
        }
        let [function] = functions[..] else {
            trace.ambiguous.insert(symbol.describe());
            return None;
        };
        if let Some(caller) = caller {
            *self.calls.entry((caller, function)).or_default() += 1;
        }
        Some(function)
    }

    fn run(&mut self, function: FunctionIndex) -> &mut EnteredFunction {
        let first = self.functions.len() as u64;
        self.functions.entry(function).or_insert(EnteredFunction { first, count: None })
    }

    /// Returns the functions that a symbol may mean.
    fn functions(&self, symbol: Symbol<'_>) -> Vec<FunctionIndex> {
        let name = std::str::from_utf8(symbol.name).unwrap_or("");
        if symbol.module.is_some() {
            return Vec::new();
        }
        let named = self.kernel.linked.named(name);
        let at = symbol.address.and_then(|address| self.kernel.linked.at(address));
        match at {
            Some((function, _)) if named.contains(&function) => vec![function],
            _ => named,
        }
    }

    /// Returns the function that a symbol means, if it is unambiguous.
    fn only(&self, symbol: Symbol<'_>) -> Option<FunctionIndex> {
        match self.functions(symbol)[..] {
            [function] => Some(function),
            _ => None,
        }
    }

    /// Returns the section `coverage` for this trace.
    pub fn finish(self, run: Run) -> Coverage {
        let mut entered: Vec<_> = self.functions.into_iter().collect();
        entered.sort_by_key(|(_, entered)| entered.first);
        let places: FxHashMap<_, _> =
            entered.iter().enumerate().map(|(place, &(function, _))| (function, place)).collect();
        let functions = entered.iter().map(|(index, entered)| {
            let function = self.kernel.linked.function(*index);
            CoveredFunction {
                function: function_name(function),
                section: self.kernel.linked.section_of(function).name.clone(),
                size: function.size,
                first: entered.first,
                count: entered.count,
                ran: None,
            }
        });
        let calls = self.calls.iter().map(|((from, to), &count)| {
            let (from, to) = (places[from], places[to]);
            CallEdge { from, to, count }
        });
        let mut coverage =
            Coverage { runs: vec![run], functions: functions.collect(), calls: calls.collect() };
        coverage.normalise();
        coverage
    }
}

impl TraceCounts {
    fn check(&self, name: &str, kernel: &KernelText) -> Result<()> {
        let name = name.to_owned();
        if self.events == 0 {
            let problem = "no line of it names a function".into();
            let expected = "the text of the function tracer (see `coverage ftrace --help`)";
            return Err(Error::NotATrace { name, problem, expected: expected.into() });
        }
        if self.matched == 0 {
            let problem = format!("it has none of the functions in {} events", self.events);
            return Err(Error::OtherKernel { name, kernel: kernel.path.clone(), problem });
        }
        Ok(())
    }

    /// Describes unused or unreliable parts of the trace, one remark per line.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut unknown: Vec<_> = self.unknown.iter().collect();
        unknown.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        if let [(first, _), ..] = unknown[..] {
            let events: u64 = unknown.iter().map(|(_, count)| *count).sum();
            remarks.push(format!(
                "{events} of {} events are of {} functions that the kernel does not have, such as {first}",
                self.events,
                unknown.len()
            ));
        }
        if let Some(first) = self.ambiguous.iter().min() {
            remarks.push(format!(
                "{} names belong to several functions, such as {first}; all of these count as run (the trace \
                 option sym-addr distinguishes them)",
                self.ambiguous.len()
            ));
        }
        if self.lost > 0 {
            remarks.push(format!(
                "{} events were lost during recording: functions may be missing, and counts are too low; record \
                 with a larger buffer",
                self.lost
            ));
        }
        if self.is_cut {
            remarks.push("the last line is truncated and was ignored; the trace is not complete".into());
        }
        remarks
    }
}

/// The trace as an entry of [`kplan::Coverage::runs`].
pub fn run(trace: &TraceCounts, name: &str, kernel: &KernelText) -> Run {
    Run {
        source: "ftrace".into(),
        trace: name.into(),
        kernel: kernel.path.clone(),
        build_id: kernel.linked.build_id.clone(),
        unknown: trace.unknown.values().sum(),
        unordered: false,
        reads: None,
    }
}

impl Symbol<'_> {
    fn describe(&self) -> String {
        let name = String::from_utf8_lossy(self.name);
        match self.module {
            Some(module) => format!("{name} [{}]", String::from_utf8_lossy(module)),
            None => name.into_owned(),
        }
    }
}

fn parse(line: &[u8]) -> Line<'_> {
    if line.starts_with(b"#") {
        return written(line).map_or(Line::Other, Line::Lost);
    }
    if let Some(lost) = lost(line) {
        return Line::Lost(lost);
    }
    if let Some(arrow) = find(line, CALLER) {
        let after = line[arrow + CALLER.len()..].trim_ascii_start();
        let caller = symbol(after.strip_prefix(b"-").unwrap_or(after));
        return match last_symbol(&line[..arrow]) {
            Some(function) => Line::Call { function, caller },
            None => Line::Other,
        };
    }
    graph(line).unwrap_or(Line::Other)
}

/// Parses `# entries-in-buffer/entries-written: 140080/250280   #P:4`, and returns the number of overwritten entries.
fn written(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, figures) = text.split_once("entries-in-buffer/entries-written:")?;
    let (kept, written) = figures.split_whitespace().next()?.split_once('/')?;
    let lost = written.parse::<u64>().ok()?.checked_sub(kept.parse().ok()?)?;
    (lost > 0).then_some(lost)
}

/// Parses `CPU:0 [LOST 12 EVENTS]`, or from trace-cmd `CPU:0 [12 EVENTS DROPPED]`.
fn lost(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, rest) = text.split_once('[')?;
    let events = match rest.strip_prefix("LOST ") {
        Some(rest) => rest.strip_suffix(" EVENTS]")?,
        None => rest.strip_suffix(" EVENTS DROPPED]")?,
    };
    events.parse().ok()
}

/// Parses a line of the function graph: `PROCESSOR) DURATION | FUNCTION() {`, `… FUNCTION();`, `… }`; from trace-cmd
/// `TASK [PROCESSOR] TIME: funcgraph_entry: DURATION | FUNCTION() {`.
fn graph(line: &[u8]) -> Option<Line<'_>> {
    let bar = line.iter().rposition(|&byte| byte == b'|')?;
    let (head, body) = (&line[..bar], line[bar + 1..].trim_ascii());
    let processor = processor(head)?;
    if body.starts_with(b"}") {
        return Some(Line::Leave { processor });
    }
    let parenthesis = find(body, b"(")?;
    let function = symbol(&body[..parenthesis])?;
    let is_leaf = body.ends_with(b";");
    (is_leaf || body.ends_with(b"{")).then_some(Line::Enter { processor, function, is_leaf })
}

/// The number in `[001]`, or before the first `)`.
fn processor(head: &[u8]) -> Option<usize> {
    let digits = match find(head, b"[") {
        Some(open) => head[open + 1..].split(|&byte| byte == b']').next()?,
        None => head[..find(head, b")")?].split(|&byte| byte == b' ').next_back()?,
    };
    let number: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number < MAX_PROCESSORS).then_some(number)
}

/// Parses the symbol at the start of `text`: `NAME` or `NAME+0x4/0x20`, optionally followed by ` [MODULE]` and
/// ` <ADDRESS>`.
fn symbol(text: &[u8]) -> Option<Symbol<'_>> {
    let mut words = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let first = words.next()?;
    let name = first.split(|&byte| byte == b'+').next()?;
    let mut symbol = Symbol { name, address: None, module: None };
    for word in words.take(2) {
        if let Some(module) = word.strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]")) {
            symbol.module = Some(module);
        } else if let Some(address) = word.strip_prefix(b"<").and_then(|word| word.strip_suffix(b">")) {
            symbol.address = hexadecimal(address);
        }
    }
    is_name(name).then_some(symbol)
}

/// Parses the symbol at the end of `text`.
fn last_symbol(text: &[u8]) -> Option<Symbol<'_>> {
    let text = text.trim_ascii_end();
    let mut start = text.len();
    // At most a name, a module and an address; the name is the first text that is neither of the others.
    for _ in 0..3 {
        let word_end = text[..start].trim_ascii_end().len();
        start = text[..word_end].iter().rposition(|&byte| byte == b' ').map_or(0, |space| space + 1);
        if !matches!(text.get(start), Some(b'<' | b'[')) {
            return symbol(&text[start..]);
        }
    }
    None
}

/// Whether this can be the name of a function, not an address without a name.
fn is_name(name: &[u8]) -> bool {
    let starts = name.first().is_some_and(|&byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$'))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Symbol<'_> {
        Symbol { name: name.as_bytes(), address: None, module: None }
    }

    fn call<'a>(function: Symbol<'a>, caller: Option<&'a str>) -> Line<'a> {
        Line::Call { function, caller: caller.map(name) }
    }

    #[test]
    fn lines_of_the_function_tracer() {
        let kernel = b"          <idle>-0     [000] d..1.     0.000000: vfs_open <-do_open";
        assert_eq!(parse(kernel), call(name("vfs_open"), Some("do_open")));
        let dumped = b"[    1.204612] swapper-1         0d..1. 1204567us : vfs_open.isra.0 <-do_open";
        assert_eq!(parse(dumped), call(name("vfs_open.isra.0"), Some("do_open")));
        let offsets = b"  sh-12 [001] ...1. 1.5: vfs_open+0x4/0x40 <-do_open+0x12/0x80";
        assert_eq!(parse(offsets), call(name("vfs_open"), Some("do_open")));
        let command = b"  sh-12  [001]  1.500000: function:             vfs_open <-- do_open";
        assert_eq!(parse(command), call(name("vfs_open"), Some("do_open")));
        let addresses = b"  sh-12 [001] ...1. 1.5: init <c1000010> <-do_open <c1000020>";
        let Line::Call { function, caller: Some(caller) } = parse(addresses) else { panic!() };
        assert_eq!((function.name, function.address), (&b"init"[..], Some(0xc100_0010)));
        assert_eq!((caller.name, caller.address), (&b"do_open"[..], Some(0xc100_0020)));
        let module = b"  sh-12 [001] ...1. 1.5: ext2_open [ext2] <-vfs_open";
        let Line::Call { function, .. } = parse(module) else { panic!() };
        assert_eq!((function.name, function.module), (&b"ext2_open"[..], Some(&b"ext2"[..])));
        assert_eq!(parse(b"  sh-12 [001] ...1. 1.5: vfs_open <-0xc1000000"), call(name("vfs_open"), None));
        assert_eq!(parse(b"  sh-12 [001] ...1. 1.5: 0xc1000000 <-vfs_open"), Line::Other);
    }

    #[test]
    fn lines_of_the_graph() {
        let enter = |processor, function, is_leaf| Line::Enter { processor, function, is_leaf };
        assert_eq!(parse(b" 0)               |  do_open() {"), enter(0, name("do_open"), false));
        assert_eq!(parse(b" 12)  + 0.123 us   |    vfs_open();"), enter(12, name("vfs_open"), true));
        assert_eq!(parse(b" 0)   1.456 us    |  }"), Line::Leave { processor: 0 });
        assert_eq!(parse(b" 0)   1.456 us    |  } /* do_open */"), Line::Leave { processor: 0 });
        let command = b"  sh-12 [003]  1.5: funcgraph_entry:        0.5 us   |  vfs_open();";
        assert_eq!(parse(command), enter(3, name("vfs_open"), true));
    }

    #[test]
    fn what_was_lost() {
        assert_eq!(parse(b"CPU:0 [LOST 12 EVENTS]"), Line::Lost(12));
        assert_eq!(parse(b"CPU:1 [7 EVENTS DROPPED]"), Line::Lost(7));
        assert_eq!(parse(b"# entries-in-buffer/entries-written: 100/250   #P:1"), Line::Lost(150));
        assert_eq!(parse(b"# entries-in-buffer/entries-written: 250/250   #P:1"), Line::Other);
        for line in
            ["", "# tracer: function", "##### CPU 0 buffer started ####", "  sh-1 [000] 1.5: sched_switch: a"]
        {
            assert_eq!(parse(line.as_bytes()), Line::Other, "{line}");
        }
    }
}
