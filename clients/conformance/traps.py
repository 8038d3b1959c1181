#!/usr/bin/env python3
"""naive.py with a mistake: `traps.py --trap NAME`. traps.txt has the mistakes, as changes of its text.

`traps.py --check` says which of them do not fit the text any more.
"""

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


def changed(name):
    """naive.py with this mistake."""
    text = naive
    for old, new in changes(traps[name]):
        if text.count(old) != 1:
            sys.exit(f"{name}: not once in naive.py: {old}")
        text = text.replace(old, new)
    return compile(text, "naive.py", "exec")


if sys.argv[1:] == ["--check"]:
    [changed(name) for name in traps]
else:
    exec(changed(sys.argv[2]) if sys.argv[1:2] == ["--trap"] else naive, {"__name__": "__main__"})
