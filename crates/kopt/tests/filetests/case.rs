//! Parsing of a test file.

use kopt::{OptimizeFor, Options, PassRef, Scope};
use kplan::Plan;

/// The assemblers of machines.
const I386: &[&str] = &["as", "--32"];
const X86_64: &[&str] = &["as", "--64"];
const ARM: &[&str] = &["arm-linux-gnueabihf-as"];

/// The start of a part's first line.
const PART: &str = "=== ";
/// The last part, which blessing replaces.
const EXPECTED: &str = "=== expected\n";

/// A program and the settings of its test.
pub struct Case<'t> {
    /// The file up to the expected output.
    head: &'t str,
    /// The functions that enter the program.
    pub entries: Vec<String>,
    /// The passes to run.
    pub passes: Vec<PassRef>,
    /// The options of the passes besides the plan.
    pub options: Options,
    /// The assembler, with its arguments.
    pub assembler: &'static [&'static str],
    /// Whether loadable modules can use the kernel's exports.
    pub modules: bool,
    /// The assembly of each object, by name.
    pub sources: Vec<(&'t str, &'t str)>,
    /// The linker script of a kernel.
    pub linker_script: Option<&'t str>,
    /// The plan.
    pub plan: Plan,
}

impl<'t> Case<'t> {
    /// Parses a test file of a pass.
    ///
    /// # Errors
    /// The reason why the file is not valid.
    pub fn parse(text: &'t str, pass: PassRef) -> Result<Case<'t>, String> {
        let head = text.find(EXPECTED).map_or(text, |at| &text[..at]);
        let mut case = Case {
            head,
            entries: Vec::new(),
            passes: vec![pass],
            options: Options { verify: true, ..Options::default() },
            assembler: I386,
            modules: false,
            sources: Vec::new(),
            linker_script: None,
            plan: Plan::default(),
        };
        let (settings, parts) =
            head.split_once(&format!("\n{PART}")).ok_or("there is no part `=== NAME.s`")?;
        case.read_settings(settings)?;
        for part in parts.split(&format!("\n{PART}")) {
            let (name, content) = part.split_once('\n').unwrap_or((part, ""));
            match name.rsplit_once('.') {
                Some((_, "s")) => case.sources.push((name, content)),
                Some((_, "lds")) => case.linker_script = Some(content),
                _ if name == "plan.json" => {
                    case.plan = Plan::parse(content, name).map_err(|error| error.to_string())?;
                }
                _ => return Err(format!("part `{name}`: expected NAME.s, NAME.lds or plan.json")),
            }
        }
        if case.linker_script.is_some() != case.entries.is_empty() {
            return Err("expected either `entries:` or a linker script".to_owned());
        }
        Ok(case)
    }

    fn read_settings(&mut self, settings: &str) -> Result<(), String> {
        let (comment, settings): (Vec<&str>, Vec<&str>) =
            settings.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with("# "));
        if comment.is_empty() {
            return Err("expected a comment (`# …`) that says what the case shows".to_owned());
        }
        for line in settings {
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            let words = || value.split(", ").map(str::to_owned);
            match (name, value) {
                ("entries", _) => self.entries = words().collect(),
                ("passes", _) => {
                    self.passes = words().map(|name| kopt::pass(&name)).collect::<Result<_, _>>()?
                }
                ("machine", "arm") => self.assembler = ARM,
                ("machine", "x86_64") => self.assembler = X86_64,
                ("modules", "yes") => self.modules = true,
                ("assume-complete", "yes") => self.options.assume_complete = true,
                ("merge", "all") => self.options.merge = Scope::All,
                ("optimize-for", "image") => self.options.optimize_for = OptimizeFor::Image,
                _ => return Err(format!("the setting `{line}` is not known; the head of main.rs lists all")),
            }
        }
        Ok(())
    }

    /// Returns the file with this expected output.
    pub fn with(&self, expected: &str) -> String {
        let gap = if self.head.ends_with('\n') { "" } else { "\n" };
        [self.head, gap, EXPECTED, expected].concat()
    }
}
