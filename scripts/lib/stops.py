"""Stops a running program at its functions, by ptrace: Linux on x86-64. A debugger takes milliseconds for a stop where
this takes microseconds. Needs nm and addr2line."""

import ctypes, os, re, signal, subprocess, sys

# Numbers of ptrace and waitpid; the place of the instruction pointer; the instruction of a breakpoint.
SEIZE, INTERRUPT, CONT, STEP, PEEK, POKE = 0x4206, 0x4207, 7, 9, 3, 6
TRACE_CLONE, RIP, ALL, BREAK = 8, 16 * 8, 0x40000000, b"\xcc"
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes, ptrace.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long


def output(*command, text=None):
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def symbols(file, *options):
    """The functions of a file by address."""
    rows = (line.split(" ", 2) for line in output("nm", "--demangle", "--defined-only", *options, file).splitlines())
    return {int(address, 16): name for address, kind, name in rows if kind in "tTwWi"}


class Traced:
    """A running program with a breakpoint at each function of `file` whose source the pattern `own` matches (path and
    line), and at each mark: a function of the file like `library` whose name `marks` matches. Two threads must not
    enter the same function at the same time."""

    def __init__(self, pid, file, own, library, marks):
        self.pid, self.stops, self.places, self.original = pid, [], {}, {}
        self.memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        self.halted = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
        for thread in self.halted:
            if ptrace(SEIZE, thread, None, TRACE_CLONE) < 0:
                sys.exit(f"process {pid} cannot be traced: run this as root, or allow it ptrace")
            ptrace(INTERRUPT, thread, None, None)
            os.waitpid(thread, ALL)
        rows = [line.split(maxsplit=5) for line in open(f"/proc/{pid}/maps")]
        bases = {row[5].strip(): int(row[0].split("-")[0], 16) for row in reversed(rows) if len(row) == 6}
        functions, base = symbols(file), bases[os.path.realpath(file)]
        lines = output("addr2line", "-e", file, text="".join(f"{address:x}\n" for address in functions)).splitlines()
        for (address, name), line in zip(functions.items(), lines, strict=True):
            # The allocator's functions, which the compiler writes, have the line of `#[global_allocator]`.
            if (found := own.match(line)) and not name.startswith("__rust"):
                name = re.sub(r"::h[0-9a-f]{16}$", "", name)
                self.places[base + address] = (found[1], f"{name} ({found[2]})")
        library = next(path for path in bases if re.search(library, path))
        for address, name in symbols(library, "--dynamic").items():
            if found := marks.fullmatch(name):
                self.places[bases[library] + address] = (None, found[1])
        for address in self.places:
            self.original[address] = self.swap(address, BREAK)

    def swap(self, address, byte):
        before = os.pread(self.memory.fileno(), 1, address)
        os.pwrite(self.memory.fileno(), byte, address)
        return before

    def taken(self):
        """The stops since the last call."""
        stops, self.stops = self.stops, []
        return stops

    def run_to(self, *names):
        """Runs to the next of these marks, and returns its name."""
        while True:
            for thread in self.halted:
                ptrace(CONT, thread, None, None)
            thread, status = os.waitpid(-1, ALL)
            self.halted = [thread]
            if not os.WIFSTOPPED(status):
                self.halted = []
                if thread == self.pid:
                    sys.exit(f"the program ended before it came to {' or '.join(names)}")
            elif status >> 16 == 0 and os.WSTOPSIG(status) != signal.SIGTRAP:
                ptrace(CONT, thread, None, os.WSTOPSIG(status))
                self.halted = []
            elif status >> 16 == 0:
                address = ptrace(PEEK, thread, RIP, None) - 1
                self.swap(address, self.original[address])
                ptrace(POKE, thread, RIP, address)
                ptrace(STEP, thread, None, None)
                os.waitpid(thread, ALL)
                self.swap(address, BREAK)
                file, name = self.places[address]
                if file:
                    self.stops.append((file, name))
                elif name in names:
                    return name
