# Compares stable facts at the ends of linked paths. PATHS and CALLS are set.
import gdb

# The size of a kernel's stack (THREAD_SIZE, arch/x86/include/asm/page_32_types.h).
STACK = 8192


def register(name):
    return int(gdb.parse_and_eval("(unsigned int)$" + name))


def stack():
    return register("esp") & ~(STACK - 1)


def number(address, width):
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(address, width)), "little")


class Path:
    """A path: its calls, and the facts that held at its entry but not at an end."""

    def __init__(self, path):
        self.path = path
        self.calls = self.ends = 0
        self.changed = {}
        # By stack: the addresses of the objects, and the values of facts.
        self.entered = {}

    def content(self, addresses, fact):
        address = addresses[fact["object"]]
        return number(address + fact["offset"], fact["width"]) & fact["mask"] if address else None

    def enter(self):
        if CALLS and sum(path.calls for path in paths) >= CALLS:
            return True
        addresses = []
        for place in self.path["objects"]:
            if "register" in place:
                addresses.append(register(place["register"]))
            elif "address" in place:
                addresses.append(place["address"])
            else:
                outer = addresses[place["object"]]
                addresses.append(number(outer + place["offset"], 4) if outer else 0)
        values = [self.content(addresses, fact) for fact in self.path["facts"]]
        self.entered[stack()] = (addresses, values)
        self.calls += 1
        return False

    def end(self):
        self.ends += 1
        addresses, values = self.entered[stack()]
        for fact, before in zip(self.path["facts"], values):
            is_fact = before is not None and fact.get("value", before) == before
            if is_fact and self.content(addresses, fact) != before:
                self.changed[fact["name"]] = self.changed.get(fact["name"], 0) + 1
        return False


class At(gdb.Breakpoint):
    """Does something at an address, and stops the machine if that says so."""

    def __init__(self, address, what):
        super().__init__("*%#x" % address, gdb.BP_HARDWARE_BREAKPOINT)
        self.silent = True
        self.what = what

    def stop(self):
        return self.what()


gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set breakpoint always-inserted on")
paths = [Path(path) for path in PATHS]
for path in paths:
    At(path.path["entry"], path.enter)
    for address in path.path["ends"]:
        At(address, path.end)
try:
    gdb.execute("continue")
    gdb.execute("delete")
    gdb.execute("detach")
except gdb.error as error:
    # The machine has ended.
    print(error)
for path in paths:
    print("path %s: %d calls, %d ends" % (path.path["name"], path.calls, path.ends))
    for name, count in path.changed.items():
        print("changed %s: %d" % (name, count))
