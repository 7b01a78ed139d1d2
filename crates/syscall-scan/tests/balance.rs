//! What plain arithmetic says of the stack pointer has to agree with what the flow of values says.

mod common;

use common::{Machine, busybox};
use syscall_scan::code::Function;
use syscall_scan::flow::{Flows, is_balanced};
use syscall_scan::image::{Addr, Image, Object, Process};
use syscall_scan::reach::reach;

#[test]
fn functions_that_are_balanced_have_frames_to_be_trusted() {
    for machine in [Machine::I386, Machine::X86_64, Machine::Thumb, Machine::Aarch64] {
        let object = Object::read(&std::fs::read(busybox(machine)).unwrap()).unwrap();
        let image = Image::link(&Process::single(object, "busybox")).unwrap();
        let code = reach(&image).unwrap().code;
        let mut flows = Flows::new(&code).unwrap();
        let entries = code.entries().map(|(at, _)| at).filter(|&at| code.entry(at).is_some());
        let entries: Vec<Addr> = entries.collect();
        let is_proved = |at: &&Addr| is_balanced(&code, &Function::new(&code, **at));
        let balanced: Vec<Addr> = entries.iter().filter(is_proved).copied().collect();
        for &entry in &balanced {
            assert!(flows.flow(entry).trust_frame, "{machine:?}: {entry}");
        }
        let (proved, all) = (balanced.len(), entries.len());
        assert!(proved * 10 > all * 9, "{machine:?}: only {proved} of {all} functions are proved");
    }
}
