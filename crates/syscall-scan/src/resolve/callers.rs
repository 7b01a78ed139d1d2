//! The callers of a function.

use super::{Reason, Resolver};
use crate::code::{ExitId, ExitKind, Taken};
use crate::follow::{calls_of, calls_through};
use crate::image::Addr;

impl Resolver<'_, '_> {
    /// Returns the functions that call or jump to a function, each with the exit that does.
    pub(crate) fn callers(&mut self, function: Addr) -> Result<Vec<(Addr, ExitId)>, Reason> {
        let Some(entry) = self.flows.code.entry(function) else { return Err(Reason::Computed(function)) };
        if self.is_fallen_into(function) {
            return Err(Reason::Computed(function));
        }
        let mut callers = self.known_callers(function);
        if let Some(&taken) = entry.taken.first() {
            if taken == Taken::Start || !self.is_gate(function) {
                return Err(Reason::Callable { function, taken });
            }
            for exit in self.calls_through(&entry.taken) {
                callers.extend(self.callers_at(exit));
            }
        }
        Ok(callers)
    }

    /// Returns whether the code before a function continues into it, by falling through or after a call.
    fn is_fallen_into(&self, function: Addr) -> bool {
        let code = self.flows.code;
        let comes_back = |&exit: &ExitId| {
            let exit = code.exit(exit);
            matches!(exit.kind, ExitKind::Call(_) | ExitKind::IndirectCall) && exit.next == function
        };
        code.functions_of(function) != [function] || code.incoming(function).iter().any(comes_back)
    }

    fn callers_at(&self, exit: ExitId) -> impl Iterator<Item = (Addr, ExitId)> + use<> {
        let code = self.flows.code;
        code.functions_of(code.exit(exit).at).into_iter().map(move |caller| (caller, exit))
    }

    /// Returns the functions that call or jump to a function directly.
    pub(crate) fn known_callers(&self, function: Addr) -> Vec<(Addr, ExitId)> {
        let code = self.flows.code;
        let jumps = code
            .incoming(function)
            .iter()
            .filter(|&&exit| !matches!(code.exit(exit).kind, ExitKind::Call(callee) if callee == function));
        let calls = code.entry(function).into_iter().flat_map(|entry| entry.callers.iter());
        let mut callers: Vec<(Addr, ExitId)> = calls.flat_map(|&exit| self.callers_at(exit)).collect();
        for &exit in jumps {
            // A jump to the function's own beginning is a loop, which its states already include.
            callers.extend(self.callers_at(exit).filter(|&(caller, _)| caller != function));
        }
        callers
    }

    /// Returns the callers of a function, including calls through data or code with its address. `None` if some caller
    /// is unknown.
    pub(crate) fn callers_by_pointer(&mut self, function: Addr) -> Option<Vec<(Addr, ExitId)>> {
        if let Some(known) = self.callers_by_pointer.get(&function) {
            return known.clone();
        }
        let callers = self.find_callers_by_pointer(function);
        self.callers_by_pointer.insert(function, callers.clone());
        callers
    }

    fn find_callers_by_pointer(&mut self, function: Addr) -> Option<Vec<(Addr, ExitId)>> {
        if self.is_fallen_into(function) {
            return None;
        }
        let mut callers = self.known_callers(function);
        for taken in &self.flows.code.entry(function)?.taken {
            let calls = match *taken {
                Taken::Data(word) => calls_through(&mut self.flows, self.references, word),
                Taken::Code(at) => calls_of(&mut self.flows, self.references, function, at),
                Taken::Start | Taken::Unwinder | Taken::Named(_) => return None,
            };
            callers.extend(calls.ok()?.into_iter().flat_map(|exit| self.callers_at(exit)));
        }
        Some(callers)
    }

    /// Returns whether a function consists only of the entry into the kernel (`int $0x80; ret`). C code cannot call it
    /// through a pointer, because number and arguments are not where a C function expects them. Its callers know the
    /// function, and call it through the variable that holds its address.
    fn is_gate(&self, function: Addr) -> bool {
        let code = self.flows.code;
        let next = code.length(function).map(|length| function.plus(length));
        let exit = next.and_then(|next| code.exit_at(next));
        code.sites.contains(&function) && exit.is_some_and(|exit| code.exit(exit).kind == ExitKind::Return)
    }

    /// Returns the calls through any of these variables (`call *_dl_sysinfo`).
    fn calls_through(&self, taken: &[Taken]) -> Vec<ExitId> {
        let variables = taken.iter().filter_map(|taken| match taken {
            Taken::Data(word) => Some(*word),
            _ => None,
        });
        let named = variables.flat_map(|word| self.references.to(word));
        let code = self.flows.code;
        let calls = named.filter_map(|reference| code.exit_at(reference.at));
        let computed =
            |&exit: &ExitId| matches!(code.exit(exit).kind, ExitKind::IndirectCall | ExitKind::IndirectJump);
        calls.filter(computed).collect()
    }
}
