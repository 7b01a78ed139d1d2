# Compares stable facts at the ends of linked paths. PATHS and CALLS are set.
import gdb

# The size of a kernel's stack (THREAD_SIZE, arch/x86/include/asm/page_32_types.h).
STACK = 8192


def register(name):
    return int(gdb.parse_and_eval("(unsigned int)$" + name))


def number(address, width):
    """Returns a number in memory, or None if there is no memory."""
    try:
        return int.from_bytes(bytes(gdb.selected_inferior().read_memory(address, width)), "little")
    except gdb.MemoryError:
        return None


class Call:
    """A call: the stack pointer at its entry, the addresses of objects, and the values of facts."""

    def __init__(self, path):
        self.stack = register("esp")
        self.is_in_path = True
        self.addresses = []
        for place in path["objects"]:
            if "register" in place:
                self.addresses.append(register(place["register"]))
            elif "address" in place:
                self.addresses.append(place["address"])
            else:
                outer = self.addresses[place["object"]]
                self.addresses.append(outer and number(outer + place["offset"], 4))
        values = [self.value(fact) for fact in path["facts"]]
        self.facts = [
            (fact, value)
            for fact, value in zip(path["facts"], values)
            if value is not None and fact.get("value", value) == value
        ]

    def value(self, fact):
        address = self.addresses[fact["object"]]
        value = number(address + fact["offset"], fact["width"]) if address else None
        return value if value is None else value & fact["mask"]

    def changed(self):
        return [fact["name"] for fact, value in self.facts if self.value(fact) != value]


class Path:
    """A path: its calls and their ends, and the facts that held at an entry but not at the end."""

    def __init__(self, path):
        self.path = path
        self.calls = self.missed = self.ends = 0
        self.changed = {}
        # The calls that may not have returned, by stack.
        self.running = {}

    def calls_of_stack(self):
        """Returns the calls on this stack, the last one at the end."""
        stack = register("esp")
        calls = self.running.setdefault(stack // STACK, [])
        while calls and calls[-1].stack < stack:
            calls.pop()
        return calls

    def enter(self):
        if CALLS and sum(path.calls for path in paths) >= CALLS:
            return True
        calls = self.calls_of_stack()
        if calls and calls[-1].stack == register("esp"):
            calls.pop()
        calls.append(Call(self.path))
        self.calls += 1
        return False

    def leave(self, compares, leaves):
        """Compares the facts of the last call if it is still in the path."""
        calls = self.calls_of_stack()
        if not calls or not calls[-1].is_in_path:
            return False
        for name in calls[-1].changed() if compares else []:
            self.changed[name] = self.changed.get(name, 0) + 1
        calls[-1].is_in_path = not leaves
        self.ends += compares and leaves
        self.missed += not compares
        return False


class At(gdb.Breakpoint):
    """Does something at an address, and stops the machine if that says so, or fails."""

    def __init__(self, address, what, *words):
        super().__init__("*%#x" % address, gdb.BP_HARDWARE_BREAKPOINT)
        self.silent = True
        self.what, self.words = what, words

    def stop(self):
        try:
            return self.what(*self.words)
        except Exception as error:
            problems.append("at %#x: %r" % (register("pc"), error))
            return True


gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set breakpoint always-inserted on")
problems = []
paths = [Path(path) for path in PATHS]
for path in paths:
    At(path.path["entry"], path.enter)
    for address in path.path["misses"]:
        At(address, path.leave, False, True)
    for address in path.path["ends"]:
        At(address, path.leave, True, True)
    for address in path.path["branches"]:
        At(address, path.leave, True, False)
try:
    gdb.execute("continue")
    gdb.execute("delete")
    gdb.execute("detach")
except gdb.error as error:
    # The machine has ended.
    print(error)
for path in paths:
    print("path %s: %d calls, %d missed, %d ends" % (path.path["name"], path.calls, path.missed, path.ends))
    for name, count in path.changed.items():
        print("changed %s: %d" % (name, count))
if problems:
    print("\n".join(problems))
    gdb.execute("quit 1")
