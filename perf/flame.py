#!/usr/bin/env python3
"""Draws what a request costs as a flame graph: the difference of two callgrind runs that perf/counts.sh kept.

    KEEP=/tmp/costs perf/counts.sh; perf/flame.py /tmp/costs read 1 > perf/flames/read.svg

A box is a function with what it calls on top of it, as wide as its instructions; a pointer on a box tells its name and number.
Callgrind counts calls by caller and callee and not by whole stacks: where a function has several callers, what it calls
is drawn above each of them in proportion. Boxes narrower than a pixel are left out.
"""
import argparse
import html
import re
import sys

from costs import Profile

WIDTH, ROW, LETTER, NARROWEST = 1400, 17, 6.4, 1.0
DEEPEST = 60
# Calls that cost less are noise between two runs.
LEAST = 0.5
COLOURS = {
    "server": "#e8a33d", "wire": "#e5c33d", "query": "#d9693b", "cql": "#d9693b", "replication": "#b85c9e",
    "storage": "#5b8dd6", "sstable": "#3fa7a0", "memory": "#6fb55c", "model": "#9a7bd0", "reactor": "#c9566b",
}
OTHER = "#b9b9b9"


def short(name):
    """A function's name as one reads it: without hashes and arguments of types, methods behind their type."""
    name = re.sub(r"::h[0-9a-f]{16}$|'\d+$", "", name)

    def plain(found):
        before, inside = found[1], found[2]
        if inside.startswith("impl "):
            return before + inside.rsplit(" ", 1)[-1].rsplit("::", 1)[-1]
        return before.removesuffix("::") if before else inside.split(" as ", 1)[0]
    # From the inside out; each round takes a pair of brackets away.
    while (less := re.sub(r"(\w|::|^|[^\w:])<([^<>]*)>", plain, name, count=1)) != name:
        name = less
    return name


def crate(name):
    found = re.match(r"[<&]*(?:dyn |mut )*(\w+)::", name)
    return found[1] if found else ""


class Graph:
    def __init__(self, profile):
        self.own, self.callees = {}, {}
        for (function, _, _), cost in profile.own().items():
            self.own[function] = self.own.get(function, 0) + cost
        called = set()
        for (caller, callee), cost in profile.calls().items():
            if cost >= LEAST:
                self.callees.setdefault(caller, []).append((callee, cost))
                called.add(callee)
        self.roots = [name for name in self.callees if name not in called]

    def total(self, name):
        return self.own.get(name, 0) + sum(cost for _, cost in self.callees.get(name, ()))

    def boxes(self, scale):
        """All boxes: (depth, from pixel, pixels, name, instructions)."""
        out, at = [], 0.0
        for root in sorted(self.roots, key=self.total, reverse=True):
            cost = self.total(root)
            self.stack(out, (root,), at, cost, scale)
            at += cost * scale
        return out

    def stack(self, out, path, left, cost, scale):
        name = path[-1]
        if cost * scale < NARROWEST or len(path) > DEEPEST:
            return
        out.append((len(path) - 1, left, cost * scale, name, cost))
        total = self.total(name)
        part = cost / total if total else 0
        for callee, each in sorted(self.callees.get(name, ()), key=lambda call: -call[1]):
            # What calls itself in a circle is the caller's own cost.
            if callee not in path:
                self.stack(out, (*path, callee), left, each * part, scale)
                left += each * part * scale


def draw(title, graph):
    whole = sum(graph.total(root) for root in graph.roots)
    boxes = graph.boxes(WIDTH / whole)
    height = (max(box[0] for box in boxes) + 4) * ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="4" y="13" font-size="13">{html.escape(title)}: {whole:,.0f} instructions</text>',
    ]
    for at, (name, colour) in enumerate([*COLOURS.items(), ("others", OTHER)]):
        lines.append(f'<rect x="{at * 100 + 4}" y="{ROW + 3}" width="10" height="10" fill="{colour}"/>'
                     f'<text x="{at * 100 + 18}" y="{ROW + 12}">{name}</text>')
    for depth, left, width, name, cost in boxes:
        text, y = short(name), height - (depth + 1) * ROW
        fits = int((width - 4) / LETTER)
        label = text if len(text) <= fits else "…" + text[len(text) - fits + 1:] if fits > 4 else ""
        lines.append(f'<g><title>{html.escape(text)}: {cost:,.0f} ({cost / whole:.1%})</title>'
                     f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" stroke="#fff" stroke-width=".5" '
                     f'fill="{COLOURS.get(crate(name), OTHER)}"/>'
                     + (f'<text x="{left + 2:.1f}" y="{y + 12}">{html.escape(label)}</text>' if label else "") + "</g>")
    lines.append("</svg>")
    return "\n".join(lines)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("directory")
    options.add_argument("kind")
    options.add_argument("in_flight")
    options.add_argument("--title")
    options = options.parse_args()
    title = options.title or f"a {options.kind}, {options.in_flight} in flight"
    sys.setrecursionlimit(10_000)
    print(draw(title, Graph(Profile(options.directory, options.kind, options.in_flight))))


if __name__ == "__main__":
    main()
