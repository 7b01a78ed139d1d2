//! Translates addresses of a rewritten kernel into places of the original.

mod console;
mod kernel;

use std::io::{BufRead, Write};

use kcli::{Failure, Output};

pub use kernel::Kernel;

/// Prints the places of addresses, one per line (`kelf where`).
pub fn print_places(kernel: &Kernel, addresses: &[String], is_return: bool) -> Result<(), Failure> {
    let mut output = Output::stdout();
    for text in addresses {
        let found = match console::parse_address(text) {
            Some(address) => vec![address],
            None => {
                let place = console::parse_place(text).ok_or_else(|| {
                    Failure::bad_input(format!(
                        "{text}: not an address; expected one in hexadecimal digits (c0123456) or a place \
                         (schedule+0x1a)"
                    ))
                })?;
                kernel.addresses(place.name, place.offset, place.size)
            }
        };
        let places: Vec<String> =
            found.iter().flat_map(|&address| kernel.places(address, is_return)).collect();
        let Some((first, rest)) = places.split_first() else {
            writeln!(output, "{text}: no original code at this address")?;
            continue;
        };
        writeln!(output, "{text}: {first}")?;
        let also = " ".repeat(text.len());
        rest.iter().try_for_each(|place| writeln!(output, "{also}  or {place}"))?;
    }
    Ok(output.commit()?)
}

/// Copies a console log and replaces the places of the rewritten kernel by places of the original (`kelf symbolize`).
pub fn symbolize(kernel: &Kernel, mut log: impl BufRead, name: &str) -> Result<(), Failure> {
    let mut output = Output::stdout();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = log.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::bad_input(format!("cannot read {name}: {error}")))? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        output.write_all(console::symbolize(kernel, &text).as_bytes())?;
    }
    Ok(output.commit()?)
}
