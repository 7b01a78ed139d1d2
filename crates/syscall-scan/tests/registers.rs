//! The numbers that plain arithmetic finds in registers have to agree with the flow of values.

mod common;

use common::{Machine, busybox};
use kflow::values::Element;
use syscall_scan::flow::Flows;
use syscall_scan::image::{Addr, Image, Object, Process};
use syscall_scan::reach::reach;

#[test]
fn numbers_agree_with_the_flow_of_values() {
    for machine in [Machine::I386, Machine::X86_64, Machine::Thumb, Machine::Aarch64] {
        let object = Object::read(&std::fs::read(busybox(machine)).unwrap()).unwrap();
        let image = Image::link(&Process::single(object, "busybox")).unwrap();
        let code = reach(&image).code;
        let mut flows = Flows::new(&code);
        let entries = code.entries().map(|(at, _)| at).filter(|&at| code.entry(at).is_some());
        let (mut numbers, mut confirmed) = (0, 0);
        for entry in entries.collect::<Vec<Addr>>() {
            let flow = flows.flow(entry);
            for block in &flow.function.blocks {
                // The flow of values excludes more infeasible paths.
                let Some(state) = flows.before(&flow, block.start) else { continue };
                for (register, number) in flows.numbers_at(entry, block.start) {
                    let value = state.register(register);
                    let place = format!("{machine:?} {}: {register:?} {number:#x} {value:?}", block.start);
                    let is_among = value.elements().iter().any(|atom| atom.as_number() == Some(number));
                    assert!(is_among || !value.is_numbers(), "{place}");
                    numbers += 1;
                    confirmed += usize::from(value.as_number() == Some(number));
                }
            }
        }
        // It widens values in large loops.
        assert!(confirmed > 1000 && confirmed * 10 > numbers * 9, "{machine:?}: {confirmed} of {numbers}");
    }
}
