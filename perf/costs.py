#!/usr/bin/env python3
"""What a request costs, function by function: the difference of two callgrind runs that perf/counts.sh kept.

    KEEP=/tmp/costs perf/counts.sh; perf/costs.py /tmp/costs read 1 [--inclusive] [--lines PATTERN]

Prints instructions of one request, own ones or with those of what is called; --lines breaks functions that match down
to files and lines.
"""
import argparse
import os
import re

FEW, MANY = 2000, 12000
LEAST = 8


def load(path):
    """Own cost by (function, file, line); cost with callees by function, recursion counted once a level; cost of calls by
    (caller, callee)."""
    files, functions = {}, {}
    own, inclusive, calls = {}, {}, {}

    def name(token, table):
        number, text = re.match(r"\((\d+)\)(?: (.*))?", token).groups()
        if text is not None:
            table[number] = text
        return table.get(number, "?")
    function = file = None
    line, callee, calling = 0, None, False
    with open(path) as profile:
        for text in profile:
            text = text.rstrip("\n")
            if text.startswith("fn="):
                function = name(text[3:], functions)
            elif text[:3] in ("fl=", "fi=", "fe="):
                file = name(text[3:], files)
            elif text[:4] in ("cfi=", "cfl="):
                name(text[4:], files)
            elif text.startswith("cfn="):
                callee = name(text[4:], functions)
            elif text.startswith("calls="):
                calling = True
            elif found := re.match(r"(\+\d+|-\d+|\*|\d+) (\d+)$", text):
                at, cost = found[1], int(found[2])
                if at[0] in "+-":
                    line += int(at)
                elif at != "*":
                    line = int(at)
                if calling:
                    calling = False
                    if callee != function:
                        inclusive[function] = inclusive.get(function, 0) + cost
                        calls[function, callee] = calls.get((function, callee), 0) + cost
                else:
                    own[function, file, line] = own.get((function, file, line), 0) + cost
                    inclusive[function] = inclusive.get(function, 0) + cost
    return own, inclusive, calls


def show(costs, count):
    for key, cost in sorted(costs.items(), key=lambda item: -item[1])[:count]:
        if cost >= LEAST:
            print(f"{cost:9.1f}  {key[:170]}")


class Profile:
    """Costs of one request: the difference of two runs over the difference of their requests."""

    def __init__(self, directory, kind, in_flight):
        self.runs = [load(os.path.join(directory, f"{kind}.{in_flight}.{count}")) for count in (FEW, MANY)]

    def each(self, at):
        few, many = self.runs[0][at], self.runs[1][at]
        return {key: (many[key] - few.get(key, 0)) / (MANY - FEW) for key in many}

    def own(self):
        return self.each(0)

    def inclusive(self):
        return self.each(1)

    def calls(self):
        return self.each(2)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("directory")
    options.add_argument("kind")
    options.add_argument("in_flight")
    options.add_argument("--inclusive", action="store_true")
    options.add_argument("--lines", metavar="PATTERN")
    options.add_argument("--count", type=int, default=60)
    options = options.parse_args()
    profile = Profile(options.directory, options.kind, options.in_flight)
    if options.inclusive:
        show(profile.inclusive(), options.count)
        return
    own, functions, lines = profile.own(), {}, {}
    for (function, file, line), cost in own.items():
        functions[function] = functions.get(function, 0) + cost
        if options.lines and re.search(options.lines, function or ""):
            place = f"{(file or '?')[-70:]}:{line}  {function[:60]}"
            lines[place] = lines.get(place, 0) + cost
    show(lines if options.lines else functions, options.count)
    print(f"{sum(own.values()):9.1f}  in all")


if __name__ == "__main__":
    main()
