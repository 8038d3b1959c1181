"""Programs in tmux, and their screens as an animated SVG."""

import html
import re
import subprocess
import time

CHAR, LINE, PAD, BAR = 8.4, 18, 12, 26
LIMIT, SETTLED = 30, 0.06
# The terminal is dark on light pages, too; its border separates it from dark ones.
BACKGROUND, TEXT, BORDER, DIM = "#161b22", "#e6edf3", "#57606a", "#9da7b3"
COLOURS = ["#6e7681", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#e6edf3"]
CURSOR = "\x1b[7m \x1b[0m"
SGR = re.compile(r"\x1b\[([\d;]*)m|\x1b\([A-Z0-9]|[\x0e\x0f]")


class Tmux:
    """A tmux of its own; its panes have shells with the prompt `$ `."""

    def __init__(self, socket, width, height, environment):
        self.socket, self.environment = socket, environment
        self.panes = []
        self.shell = "env PS1='$ ' bash --norc --noprofile"
        self.ask("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), self.shell)
        self.ask("set-option", "-g", "status", "off")
        self.panes.append(self.ask("list-panes", "-F", "#{pane_id}").strip())

    def ask(self, *words):
        command = ["tmux", "-S", str(self.socket), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self.environment).stdout

    def split(self):
        self.panes.append(self.ask("split-window", "-h", "-P", "-F", "#{pane_id}", self.shell).strip())

    def type(self, pane, words):
        self.ask("send-keys", "-t", self.panes[pane], "-l", words)

    def press(self, pane, key):
        self.ask("send-keys", "-t", self.panes[pane], key)

    def screen(self, pane, *options):
        return self.ask("capture-pane", "-p", *options, "-t", self.panes[pane])

    def wait(self, pane, pattern):
        """Waits until the pattern is on the screen: a recording without the words that it is about is an error."""
        end = time.monotonic() + LIMIT
        while True:
            screen = self.screen(pane)
            if match := re.search(pattern, screen, re.MULTILINE):
                return match
            if time.monotonic() > end:
                raise SystemExit(f"the terminal does not show {pattern!r}:\n{screen}")
            time.sleep(0.02)

    def frame(self, seconds):
        """What all panes show, with colours, and for how long the recording shows it."""
        # A program writes a screen in pieces.
        before = None
        while before != (before := [self.screen(pane, "-e") for pane in range(len(self.panes))]):
            time.sleep(SETTLED)
        return seconds, [self.lines(pane) for pane in range(len(self.panes))]

    def lines(self, pane):
        lines = self.screen(pane, "-e").rstrip("\n").split("\n")
        plain = self.screen(pane).rstrip("\n").split("\n")
        where = self.ask("display-message", "-p", "-t", self.panes[pane], "#{cursor_flag} #{cursor_x} #{cursor_y}")
        visible, x, y = map(int, where.split())
        lines += [""] * (y + 1 - len(lines))
        plain += [""] * (y + 1 - len(plain))
        if visible and x >= len(plain[y]):
            lines[y] += " " * (x - len(plain[y])) + CURSOR
        return lines

    def close(self):
        subprocess.run(["tmux", "-S", str(self.socket), "kill-server"], capture_output=True, check=False)


def runs(line):
    """The line as (column, text, style) without the spaces between."""
    style, column, found, at = {}, 0, [], 0

    def add(text):
        nonlocal column
        for part in re.finditer(r"\S+(?: \S+)*" if not style.get("bg") else r".+", text):
            found.append((column + part.start(), part[0], dict(style)))
        column += len(text)

    for match in SGR.finditer(line):
        add(line[at : match.start()])
        at = match.end()
        for code in [int(code or 0) for code in (match[1] or "").split(";")] if match[1] is not None else []:
            if code == 0:
                style.clear()
            elif code == 1:
                style["bold"] = True
            elif code == 2:
                style["fg"] = DIM
            elif code == 7:
                style["bg"], style["fg"] = TEXT, BACKGROUND
            elif code == 27:
                style.pop("bg", None), style.pop("fg", None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                style["fg"] = COLOURS[code % 10]
            elif 40 <= code <= 47:
                style["bg"] = COLOURS[code % 10]
            elif code == 39:
                style.pop("fg", None)
            elif code == 49:
                style.pop("bg", None)
            elif code == 22:
                style.pop("bold", None)
    add(line[at:])
    return found


def drawn(line, left, y):
    out = []
    for column, text, style in runs(line):
        x, wide = left + column * CHAR, len(text) * CHAR
        if "bg" in style:
            out.append(f'<rect x="{x:.1f}" y="{y - 13}" width="{wide:.1f}" height="{LINE}" fill="{style["bg"]}"/>')
        if not text.strip():
            continue
        more = f' fill="{style["fg"]}"' if "fg" in style else ""
        more += ' font-weight="bold"' if style.get("bold") else ""
        # The length keeps columns aligned in any font.
        out.append(f'<text x="{x:.1f}" y="{y}" textLength="{wide:.1f}"{more}>{html.escape(text)}</text>')
    return "".join(out)


def svg(title, frames, names, columns, rows):
    """The panes side by side. Without animation it shows the last frame."""
    total = sum(seconds for seconds, _ in frames)
    width = PAD + sum(wide * CHAR + 2 * PAD for wide in columns)
    height = BAR + rows * LINE + 2 * PAD
    body, rules, left = [], {}, PAD
    for pane, name in enumerate(names):
        wide = columns[pane] * CHAR + PAD
        body.append(
            f'<rect x="{left - PAD / 2:.1f}" y="6" width="{wide:.1f}" height="{height - 12}" rx="8" '
            f'fill="{BACKGROUND}" stroke="{BORDER}"/><text x="{left + wide / 2 - PAD / 2:.1f}" y="24" '
            f'text-anchor="middle" fill="{DIM}">{html.escape(name)}</text>'
        )
        for row in range(rows):
            y = BAR + PAD + row * LINE + 10
            shown, since, now = None, 0.0, 0.0
            spans = []
            for seconds, panes in [*frames, (0, None)]:
                lines = panes[pane] if panes else []
                line = lines[row] if row < len(lines) else ""
                if panes is None or line != shown:
                    if shown:
                        spans.append((since, now, shown))
                    shown, since = line, now
                now += seconds
            for begin, end, line in spans:
                lasts = end >= total - 1e-6
                key = (round(begin / total * 100, 2), 100 if lasts else round(end / total * 100, 2))
                if key == (0, 100):
                    body.append(drawn(line, left, y))
                    continue
                name_of = rules.setdefault(key, f"k{len(rules)}")
                hidden = "" if lasts else " h"
                body.append(f'<g class="{name_of}{hidden}">{drawn(line, left, y)}</g>')
        left += wide + PAD
    style = f"text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:{TEXT}}}"
    style = style.replace(f"fill:{TEXT}", "") + f"svg{{fill:{TEXT}}}.h{{visibility:hidden}}"
    for (begin, end), name in rules.items():
        steps = ("" if begin == 0 else "0%{visibility:hidden}") + f"{begin}%{{visibility:visible}}"
        steps += "" if end == 100 else f"{end}%{{visibility:hidden}}"
        steps += f"100%{{visibility:{'visible' if end == 100 else 'hidden'}}}"
        style += f"@keyframes {name}{{{steps}}}.{name}{{animation:{name} {total:.1f}s step-end infinite}}"
    style += "@media(prefers-reduced-motion:reduce){*{animation:none!important}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" fill="{TEXT}" role="img">'
        f"<title>{html.escape(title)}</title><style>{style}</style>"
    )
    return "\n".join([head, *body, "</svg>", ""])
