"""Markdown as far as the manual uses it: fences, headings and their anchors, links, comments.

Links and headings are looked for outside fences and code spans alone. Anchors are GitHub's, which are mdBook's
too for headings of letters, digits, spaces, hyphens and underscores.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(\s*)(`{3,})(.*)$")
COMMENT = re.compile(r"^<!--\s*([\w-]+):\s*(.*?)\s*-->$")
# The target of a link or an image; a title behind it is left out.
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


@dataclass
class Block:
    """A fenced block: the words of its info string, its text, and the line of its fence."""

    words: list
    text: str
    line: int

    @property
    def language(self):
        return self.words[0] if self.words else ""

    def has(self, word):
        return word in self.words[1:]

    def option(self, name, default=None):
        for word in self.words[1:]:
            if word.startswith(name + "="):
                return word[len(name) + 1 :]
        return default


@dataclass
class Comment:
    """A comment `<!-- name: text -->` on a line of its own."""

    name: str
    text: str
    line: int


class Page:
    """One Markdown file, read once."""

    def __init__(self, path):
        self.path = Path(path)
        self.items, self.prose = [], []
        self._read(self.path.read_text().splitlines())

    def _read(self, lines):
        fence, words, inside, start = None, [], [], 0
        for number, line in enumerate(lines, 1):
            found = FENCE.match(line)
            if fence:
                if found and found[2].startswith(fence[1]) and not found[3].strip():
                    self.items.append(Block(words, "\n".join(inside), start))
                    fence = None
                else:
                    inside.append(line[len(fence[0]) :] if line.startswith(fence[0]) else line)
            elif found and "`" not in found[3]:
                fence, start, inside = (found[1], found[2]), number, []
                words = [word for word in found[3].strip().split(",") if word]
            else:
                self.prose.append((number, line))
                comment = COMMENT.match(line)
                if comment:
                    self.items.append(Comment(comment[1], comment[2], number))
        if fence:
            raise ValueError(f"{self.path}:{start}: the fence is not closed")

    @property
    def blocks(self):
        return [item for item in self.items if isinstance(item, Block)]

    def links(self):
        """Targets of links with their lines."""
        for number, line in self.prose:
            plain = CODE_SPAN.sub("", line)
            for found in LINK.finditer(plain):
                yield number, found[1]
            found = REFERENCE.match(plain)
            if found:
                yield number, found[1]

    def headings(self):
        """(level, text, line) of every heading."""
        for number, line in self.prose:
            found = re.match(r"^(#{1,6})\s+(.*?)\s*#*$", line)
            if found:
                yield len(found[1]), found[2], number

    def anchors(self):
        """The anchors of all headings; a second one of the same text has `-1` behind it."""
        seen, anchors = {}, set()
        for _, heading, _ in self.headings():
            slug = anchor_of(heading)
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            anchors.add(f"{slug}-{count}" if count else slug)
        return anchors


def anchor_of(heading):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.lower())
    return text.replace(" ", "-")
