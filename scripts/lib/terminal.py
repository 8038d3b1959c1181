"""Programs in tmux, and their screens as an animated SVG."""

import html
import re
import subprocess
import time

CHAR, LINE, PAD, BAR = 8.4, 18, 12, 26
FONT = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
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
    """The line as (column, text, style) without the spaces between, and its backgrounds as (column, width, colour)."""
    style, column, found, backgrounds, at = {}, 0, [], [], 0

    def add(text):
        nonlocal column
        if text and "bg" in style:
            backgrounds.append((column, len(text), style["bg"]))
        # A text for each column: renderers collapse spaces, and some ignore its length.
        for part in re.finditer(r"\S+(?: \S+)*", text):
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
    return found, backgrounds


def drawn(line, y):
    out = []
    found, backgrounds = runs(line)
    for column, wide, colour in backgrounds:
        x = PAD + column * CHAR
        out.append(f'<rect x="{x:.1f}" y="{y - 13}" width="{wide * CHAR:.1f}" height="{LINE}" fill="{colour}"/>')
    for column, text, style in found:
        x, wide = PAD + column * CHAR, len(text) * CHAR
        more = f' fill="{style["fg"]}"' if "fg" in style else ""
        more += ' font-weight="bold"' if style.get("bold") else ""
        # The length keeps columns aligned in any font.
        out.append(f'<text x="{x:.1f}" y="{y}" textLength="{wide:.1f}"{more}>{html.escape(text)}</text>')
    return "".join(out)


def svg(title, frames, names, columns, rows):
    """The panes below each other, legible on a phone. Without animation it shows the last frame."""
    total = sum(seconds for seconds, _ in frames)
    pane_height = BAR + rows * LINE + 2 * PAD
    width, height = columns * CHAR + 2 * PAD, len(names) * pane_height
    body, rules = [], {}
    for pane, name in enumerate(names):
        top = pane * pane_height
        body.append(
            f'<rect x="{PAD / 2:.0f}" y="{top + 6}" width="{width - PAD:.1f}" height="{pane_height - 12}" rx="8" '
            f'fill="{BACKGROUND}" stroke="{BORDER}"/><text x="{width / 2:.1f}" y="{top + 24}" '
            f'text-anchor="middle" fill="{DIM}">{html.escape(name)}</text>'
        )
        for row in range(rows):
            y = top + BAR + PAD + row * LINE + 10
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
                    body.append(drawn(line, y))
                    continue
                name_of = rules.setdefault(key, f"k{len(rules)}")
                hidden = "" if lasts else " h"
                body.append(f'<g class="{name_of}{hidden}">{drawn(line, y)}</g>')
    style = ".h{visibility:hidden}"
    for (begin, end), name in rules.items():
        steps = ("" if begin == 0 else "0%{visibility:hidden}") + f"{begin}%{{visibility:visible}}"
        steps += "" if end == 100 else f"{end}%{{visibility:hidden}}"
        steps += f"100%{{visibility:{'visible' if end == 100 else 'hidden'}}}"
        style += f"@keyframes {name}{{{steps}}}.{name}{{animation:{name} {total:.1f}s step-end infinite}}"
    style += "@media(prefers-reduced-motion:reduce){*{animation:none!important}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        f'font-family="{FONT}" font-size="14" fill="{TEXT}" role="img">'
        f"<title>{html.escape(title)}</title><style>{style}</style>"
    )
    return "\n".join([head, *body, "</svg>", ""])
