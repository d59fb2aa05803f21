"""Reads the part of YAML that the manifests keep to, and refuses all else: Python's standard library has no reader."""

import re

KEY = re.compile(r"""([\w./<-]+):(?:\s+(.*))?$""")
SCALAR = re.compile(r"""\s*("[^"\\]*"|'[^']*'|[^\s"'\[\]{},&*#!|>][^\[\]{},#]*?)\s*(?=[,\]}]|$)""")


class Reader:
    def __init__(self, text):
        lines = [line.rstrip() for line in text.splitlines()]
        self.lines = [(number, line) for number, line in enumerate(lines, 1)]
        self.anchors = {}

    def peek(self):
        """Indentation and content of the next line with content."""
        while self.lines and (not self.lines[0][1].strip() or self.lines[0][1].lstrip().startswith("#")):
            self.lines.pop(0)
        if not self.lines:
            return -1, ""
        line = self.lines[0][1]
        return len(line) - len(line.lstrip()), line.strip()

    def fail(self, why):
        raise ValueError(f"line {self.lines[0][0] if self.lines else 'last'}: {why}")

    def block(self, indent):
        """The value of lines that are indented by `indent`."""
        found, content = self.peek()
        if found != indent:
            self.fail(f"expected {indent} spaces")
        return self.items(indent) if content.startswith("- ") else self.entries(indent)

    def items(self, indent):
        items = []
        while self.peek()[0] == indent and self.peek()[1].startswith("- "):
            number, line = self.lines[0]
            rest = line.strip()[2:].strip()
            if KEY.match(rest):
                # The rest of the line is the first entry of a map, two spaces further in.
                self.lines[0] = (number, " " * (indent + 2) + rest)
                items.append(self.entries(indent + 2))
            else:
                self.lines.pop(0)
                items.append(self.inline(rest))
        return items

    def entries(self, indent):
        entries = {}
        while self.peek()[0] == indent and not self.peek()[1].startswith("- "):
            found = KEY.match(self.peek()[1])
            if not found:
                self.fail(f"no key: {self.peek()[1]}")
            key, rest = found[1], found[2] or ""
            if key in entries:
                self.fail(f"{key} is there twice")
            self.lines.pop(0)
            value = self.value(rest, indent)
            if key == "<<":
                entries = {**value, **entries}
            else:
                entries[key] = value
        if self.peek()[0] > indent:
            self.fail("indented too far")
        return entries

    def value(self, rest, indent):
        if rest.startswith("*"):
            return self.anchors[rest[1:]]
        if rest.startswith("&"):
            self.anchors[rest[1:]] = value = self.value("", indent)
            return value
        if rest == "|":
            kept = []
            while self.lines and (not self.lines[0][1] or self.lines[0][1].startswith(" " * (indent + 1))):
                kept.append(self.lines.pop(0)[1])
            depth = len(kept[0]) - len(kept[0].lstrip())
            return "\n".join(line[depth:] for line in kept).rstrip("\n") + "\n"
        if rest:
            return self.inline(rest)
        return self.block(self.peek()[0]) if self.peek()[0] > indent else None

    def inline(self, text):
        if text[0] not in "[{\"'":
            if re.search(r"^[&*!|>%@`]|: | #", text):
                self.fail(f"not understood: {text}")
            return plain(text)
        value, rest = self.flow(text)
        if rest.strip():
            self.fail(f"not understood: {rest}")
        return value

    def flow(self, text):
        """A value at the beginning of `text`, and what follows it."""
        text = text.lstrip()
        if text.startswith("["):
            values, text = [], text[1:].lstrip()
            while not text.startswith("]"):
                value, text = self.flow(text)
                values.append(value)
                text = text.lstrip().removeprefix(",").lstrip()
            return values, text[1:]
        if text.startswith("{"):
            values, text = {}, text[1:].lstrip()
            while not text.startswith("}"):
                key, text = text.split(": ", 1)
                values[key.strip()], text = self.flow(text)
                text = text.lstrip().removeprefix(",").lstrip()
            return values, text[1:]
        found = SCALAR.match(text)
        if not found:
            self.fail(f"not understood: {text}")
        word = found[1]
        return word[1:-1] if word[0] in "\"'" else plain(word), text[found.end():]


def plain(word):
    """The value of a word without quotes."""
    if word in ("true", "false"):
        return word == "true"
    return int(word) if re.fullmatch(r"-?\d+", word) else word


def documents(text):
    """The documents of a file."""
    parts = re.split(r"(?m)^---$", text)
    return [Reader(part).block(0) for part in parts]
