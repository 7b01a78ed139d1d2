//! `customize`: facts for paths, from a running kernel.

mod arguments;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use customize::calls;
use customize::compare;
use customize::error::Error;
use customize::layout::{Object, locate};
use customize::observe::{Observed, observe};
use customize::script::script;
use customize::serve::Server;
use customize::serve::kernel::Kernel;
use customize::serve::seal::Seal;
use customize::symbols::Symbols;
use kcli::{Failure, Output, Table, input_name, read_input, read_key, read_plan};
use kelf::KernelBuild;
use kplan::{Declaration, Paths};

use arguments::{Arguments, Command, KernelArguments, ServeArguments};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("customize", || run(&arguments.command)))
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Script { kernel, calls, skip, output } => {
            // Opened before the work, so that an unwritable path is reported at once.
            let mut output = Output::create(output)?;
            let Declared { declaration, name, objects, symbols } = read(kernel)?;
            let text = script(&declaration, &name, &objects, &symbols, *skip, *calls).map_err(Failure::of)?;
            output.write_all(text.as_bytes())?;
            Ok(output.commit()?)
        }
        Command::Observe { kernel, logs, least, output } => {
            let mut output = Output::create(output)?;
            let Declared { declaration, objects, symbols, .. } = read(kernel)?;
            let mut calls = Vec::new();
            for log in logs {
                let name = input_name(log);
                let text = String::from_utf8_lossy(&read_input(log)?).into_owned();
                let of_boot = calls::read(&text, &name, &objects).map_err(Failure::of)?;
                if of_boot.len() < *least {
                    let (entry, calls) = (declaration.entry.clone(), of_boot.len());
                    return Err(Failure::of(Error::FewCalls { name, entry, calls, least: *least }));
                }
                calls.extend(of_boot);
            }
            let (path, observed) = observe(&declaration, &objects, &calls, &symbols);
            eprint!("{}", summary(&observed));
            Paths { paths: vec![path] }.write(&mut output)?;
            Ok(output.commit()?)
        }
        Command::Compare { dir, paths, calls, output } => {
            let mut output = Output::create(output)?;
            let paths =
                Paths::read(read_input(paths)?.as_slice(), &input_name(paths)).map_err(Failure::of)?;
            output.write_all(compare::Kernel::read(dir)?.compare(&paths, *calls)?.as_bytes())?;
            Ok(output.commit()?)
        }
        Command::Serve(arguments) => serve(arguments),
    }
}

/// Answers devices until the process is terminated.
fn serve(arguments: &ServeArguments) -> Result<(), Failure> {
    let ServeArguments { vmlinux, dir, paths, plan, key, listen } = arguments;
    let listener = TcpListener::bind(listen)
        .map_err(|error| Failure::job(format!("cannot listen at {listen}: {error}")))?;
    let key = read_key(key)?;
    let name = input_name(paths);
    let list = Paths::read(read_input(paths)?.as_slice(), &name).map_err(Failure::of)?;
    let [path] = &list.paths[..] else {
        let count = list.paths.len();
        return Err(Failure::bad_input(format!("{name}: {count} paths; expected one")));
    };
    let plan = read_plan(plan)?;
    let build = KernelBuild::find(vmlinux).map_err(Failure::of)?;
    Kernel::with(&build, dir, &plan, path, |kernel| {
        let address = listener.local_addr().map_or_else(|_| listen.clone(), |address| address.to_string());
        eprintln!("customize: listening at {address} for the path from {}", path.entry);
        Server::new(kernel, Seal::new(key)).listen(&listener);
        Ok(())
    })
}

/// A declaration, and what it means in a kernel.
struct Declared {
    declaration: Declaration,
    /// The name of the declaration for messages.
    name: String,
    objects: Vec<Object>,
    symbols: Symbols,
}

/// Reads a declaration and the kernel.
fn read(arguments: &KernelArguments) -> Result<Declared, Failure> {
    let name = input_name(&arguments.declaration);
    let text = read_input(&arguments.declaration)?;
    let declaration = Declaration::read(text.as_slice(), &name).map_err(Failure::of)?;
    let symbols = Symbols::read(&arguments.vmlinux)?;
    // A symbolic link to a vmlinux elsewhere means the build there.
    let file = fs::canonicalize(&arguments.vmlinux)?;
    let build = file.parent().unwrap_or(Path::new("/"));
    let bytes = kbuild::compile_again(build, &declaration.types, kbuild::WITH_TYPES)?;
    let structures =
        ktypes::read(&declaration.types, &bytes).map_err(|error| Failure::of(Error::from(error)))?;
    let objects = locate(&declaration, &name, &structures).map_err(Failure::of)?;
    Ok(Declared { declaration, name, objects, symbols })
}

/// Returns a table of what was observed.
fn summary(observed: &[Observed]) -> String {
    let mut table = Table::new(["object", "calls", "members", "one value", "pointers left out"]);
    for Observed { name, calls, same, pointers, members } in observed {
        let numbers = [*calls, *members, *same, *pointers].map(|number| number.to_string());
        table.row([name.clone()].into_iter().chain(numbers));
    }
    table.to_string()
}
