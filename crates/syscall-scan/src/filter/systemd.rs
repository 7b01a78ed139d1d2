//! The lines of a systemd unit that confine a service to its system calls (`systemd.exec(5)`).

use kplan::Abi;

use super::{Action, Filter};

/// Returns the lines, which cannot restrict arguments.
pub fn unit(filter: &Filter) -> String {
    let names: Vec<&str> = filter.calls.keys().map(String::as_str).collect();
    let architectures: Vec<&str> = filter.abis.iter().map(|&abi| architecture(abi)).collect();
    let (names, architectures) = (names.join(" "), architectures.join(" "));
    let calls = match filter.action {
        Action::Errno(errno) => {
            let errno = errno.name().unwrap_or("EPERM");
            format!("SystemCallFilter={names}\nSystemCallErrorNumber={errno}\n")
        }
        // This is the default of systemd.
        Action::Kill => format!("SystemCallFilter={names}\n"),
        Action::Log => format!("SystemCallLog=~{names}\n"),
    };
    format!("{calls}SystemCallArchitectures={architectures}\n")
}

fn architecture(abi: Abi) -> &'static str {
    match abi {
        Abi::I386 => "x86",
        Abi::X86_64 => "x86-64",
        Abi::X32 => "x32",
        Abi::Arm => "arm",
        Abi::Aarch64 => "arm64",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    #[test]
    fn one_line_of_calls() {
        let plan = plan(Abi::I386, &[(3, "read", &[(0, &[0])]), (1, "exit", &[])]);
        let unit = |action| unit(&Filter::new(&plan, action, true, &[]));
        let calls = "SystemCallFilter=execve exit read\n";
        let architectures = "SystemCallArchitectures=x86\n";
        assert_eq!(unit(Action::Kill), format!("{calls}{architectures}"));
        assert_eq!(unit(Action::ERRNO), format!("{calls}SystemCallErrorNumber=EPERM\n{architectures}"));
        assert_eq!(unit(Action::Log), format!("SystemCallLog=~execve exit read\n{architectures}"));
    }
}
