#!/usr/bin/env python3
"""naive.py with a mistake: `traps.py --trap NAME`. traps.txt has the mistakes, as changes of its text."""

import sys
from pathlib import Path

here = Path(__file__).parent
naive = (here / "naive.py").read_text()


def changes(text):
    """The texts of a trap to replace, with what replaces them: runs of lines with - and +."""
    found = []
    for mark, line in ((line[:1], line[2:]) for line in text.splitlines()[1:]):
        if mark == "-" and (not found or found[-1][1]):
            found.append(([], []))
        if mark in ("-", "+"):
            found[-1][mark == "+"].append(line)
    return [("\n".join(old), "\n".join(new)) for old, new in found]


traps = {text.split(":")[0]: text for text in (here / "traps.txt").read_text().split("\ntrap ")[1:]}
for old, new in changes(traps[sys.argv[2]]) if sys.argv[1:2] == ["--trap"] else []:
    if naive.count(old) != 1:
        sys.exit(f"{sys.argv[2]}: not once in naive.py: {old}")
    naive = naive.replace(old, new)
exec(compile(naive, "naive.py", "exec"), {"__name__": "__main__"})
