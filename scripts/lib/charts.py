"""Draws charts from the tables of docs/performance.md. A table or row that is missing is an error."""

import html
import math
import re

# Legible on white and on black: the pages of GitHub and of the book are either.
STYLE = """
text{font:13px sans-serif;fill:#24292f}.t{font-size:16px;font-weight:bold}.s{fill:#57606a}
.g{stroke:#d0d7de;stroke-width:1}.b{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9da7b3}.g{stroke:#3d444d}.b{fill:#0d1117}}
"""
BLUE, GREEN, ORANGE, PURPLE = "#2f81f7", "#2da44e", "#d9730d", "#a45ee5"
WIDTH, HEIGHT = 760, 400
UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


def tables(page):
    """The rows of each table by the title above it; a row is a list of cells, the first one its name."""
    found, title = {}, ""
    for line in page.splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(title, {})[cells[0]] = cells[1:]
    return found


def cell(found, title, row, column):
    try:
        return found[title][row][column]
    except (KeyError, IndexError):
        raise SystemExit(f"docs/performance.md: no row {row!r} with a column {column + 2} below {title!r}") from None


def time(text):
    """In seconds: the first time in the text."""
    match = re.match(r"([\d.]+) (µs|ms|s)\b", text)
    if not match:
        raise SystemExit(f"docs/performance.md: no time in {text!r}")
    return float(match[1]) * UNITS[match[2]]


def shown(seconds):
    for unit in ("µs", "ms"):
        number = seconds / UNITS[unit]
        if number < 999.5:
            return f"{number:.3g} {unit}" if number < 100 else f"{number:.0f} {unit}"
    return f"{seconds:.3g} s"


def text(x, y, words, anchor="start", kind="", more=""):
    of = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{of}{more}>{html.escape(words)}</text>'


def page(title, subtitle, body, height=HEIGHT):
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f'<rect width="{WIDTH}" height="{height}" class="b"/>'
    )
    head += text(20, 28, title, kind="t") + text(20, 48, subtitle, kind="s")
    return "\n".join([head, *body, "</svg>", ""])


def hand_off(found):
    """Time of a hand-off against the number of waiters, log-log."""
    plain, fair = "Hand-off, with waiters on one lock", "Hand-off of a fair lock, with waiters on it"
    lines = [
        ("Lua recipe of a fair lock (Redisson's algorithm)", ORANGE, fair, "recipe", (10, 100, 1000, 10000)),
        ("DLOCK", BLUE, plain, "DLOCK", (2, 100, 10000)),
        ("BLPOP + RPUSH, no lease and no owner", PURPLE, plain, "BLPOP + RPUSH", (2, 100, 10000)),
        ("DFAIR", GREEN, fair, "DFAIR", (10, 100, 1000, 10000)),
    ]
    left, right, top, bottom = 76, WIDTH - 24, 110, HEIGHT - 50
    x_of = lambda n: left + (right - 70 - left) * math.log10(n) / 4
    y_of = lambda s: bottom - (bottom - top) * (math.log10(s) + 5) / 3.5
    body = []
    for power in range(-5, -1):
        y = y_of(10**power)
        body.append(f'<path d="M{left} {y:.1f}H{right}" class="g"/>' + text(left - 8, y + 4, shown(10**power), "end", "s"))
    for power in range(5):
        label = f"{10**power:,}" + (" waiters" if power == 4 else "")
        body.append(text(x_of(10**power), bottom + 20, label, "middle", "s"))
    for n, (name, colour, table, row, counts) in enumerate(lines):
        times = [(count, time(cell(found, table, f"{row}, {count} waiters: time", 0))) for count in counts]
        points = " ".join(f"{x_of(count):.1f},{y_of(seconds):.1f}" for count, seconds in times)
        dash = ("", "", ' stroke-dasharray="2 4"', ' stroke-dasharray="8 4"')[n]
        body.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
        for count, seconds in times:
            body.append(f'<circle cx="{x_of(count):.1f}" cy="{y_of(seconds):.1f}" r="4" fill="{colour}"/>')
        column, line = n % 2, n // 2
        x, y = left + 370 * column, 70 + 18 * line
        body.append(f'<path d="M{x} {y - 4}h24" stroke="{colour}" stroke-width="2.5"{dash}/>' + text(x + 32, y, name))
        # The last values of three lines are too close to each other to carry labels: one range for them.
        if n == 0:
            body.append(text(x_of(times[-1][0]) + 10, y_of(times[-1][1]) + 4, shown(times[-1][1])))
    ends = [time(cell(found, t, f"{r}, 10000 waiters: time", 0)) for _, _, t, r, _ in lines[1:]]
    low, high = f"{min(ends) * 1e6:.0f}", f"{max(ends) * 1e6:.0f} µs"
    body.append(text(x_of(10000) + 10, y_of(sum(ends) / 3) + 4, f"{low}–{high}"))
    subtitle = "Time per hand-off against the number of waiters; both axes logarithmic"
    return page("Hand-off with waiters", subtitle, body)


def bars(title, subtitle, groups, start, decades, format_of, labels):
    """Horizontal bars on a logarithmic axis. A group has a name, and its values with their colours."""
    left, right, top, step = 236, WIDTH - 90, 84, 20
    x_of = lambda value: left + (right - left) * (math.log10(value) - start) / decades
    body, y = [], top
    height = top + sum(len(values) * step + 16 for _, values in groups) + 30
    for power in range(start, start + decades + 1):
        x = x_of(10**power)
        body.append(f'<path d="M{x:.1f} {top - 6}V{height - 36}" class="g"/>' + text(x, height - 18, format_of(10**power), "middle", "s"))
    for n, (name, colour) in enumerate(labels):
        x = 20 + 130 * n
        body.append(f'<rect x="{x}" y="58" width="14" height="10" fill="{colour}"/>' + text(x + 20, 68, name))
    for name, values in groups:
        body.append(text(left - 10, y + len(values) * step / 2 + 2, name, "end"))
        for value, colour in values:
            wide = x_of(value) - left
            body.append(f'<rect x="{left}" y="{y}" width="{wide:.1f}" height="{step - 5}" fill="{colour}"/>')
            body.append(text(left + wide + 6, y + 12, format_of(value)))
            y += step
        y += 16
    return page(title, subtitle, body, height)


def lateness(found):
    title = "Lateness of the hand-off when a lease runs out"
    groups = []
    for row, name in (
        ("DLOCK, expiry to next holder, at the client", "DLOCK, at the client"),
        ("DLOCK, alarm, in the server", "DLOCK, in the server"),
        ("BLPOP timing out, at the client", "BLPOP timing out, at the client"),
        ("a sleeping process, woken by its timer", "a sleeping process"),
    ):
        tail = cell(found, title, row, 1).split(" · ")
        values = [time(cell(found, title, row, 0)), *map(time, tail)]
        groups.append((name, list(zip(values, (BLUE, ORANGE, PURPLE), strict=True))))
    labels = [("median", BLUE), ("p99", ORANGE), ("worst of 1000", PURPLE)]
    return bars(title, "Logarithmic axis; an idle server", groups, -5, 4, shown, labels)


def memory(found):
    title = "Memory of a place in a queue"
    number = lambda row: int(re.match(r"(\d+) bytes", cell(found, title, row, 0))[1])
    rows = [
        ("DLOCK, QUEUE, one lock", number("DLOCK, all at one lock"), BLUE),
        ("DLOCK, QUEUE, a lock each", number("DLOCK, each at another lock"), BLUE),
        ("DFAIR, QUEUE, one lock", number("DFAIR, all at one lock"), BLUE),
        ("DFAIR, QUEUE, a lock each", number("DFAIR, each at another lock"), BLUE),
        ("DLOCK, BLOCK, with connection", number("a blocked call of DLOCK"), ORANGE),
        ("BLPOP, with connection", number("BLPOP, server without dlock"), ORANGE),
    ]
    held = cell(found, "Memory of a held lock", "100000 held", 0)
    match = re.match(r"(\d+) · (\d+) bytes", held)
    if not match:
        raise SystemExit(f"docs/performance.md: no two sizes in {held!r}")
    rows += [("a held lock, of 100,000", int(match[1]), GREEN), ("a plain key (SET PX), of 100,000", int(match[2]), GREEN)]
    groups = [(name, [(value, colour)]) for name, value, colour in rows]
    labels = [("a place", BLUE), ("a blocked call", ORANGE), ("a key", GREEN)]
    bytes_of = lambda value: f"{value:,} B"
    return bars("Memory of a waiter and of a held lock", "Bytes; logarithmic axis", groups, 1, 4, bytes_of, labels)


def all_of(page_text):
    """The charts by their file names."""
    found = tables(page_text)
    return {"chart-hand-off.svg": hand_off(found), "chart-lateness.svg": lateness(found), "chart-memory.svg": memory(found)}
