"""Names in the manual that must be the program's: messages that are explained, and verbs of `ceto ctl`."""

import re
import subprocess

from markdown import Page
from session import BINARY

LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
# In a message of the page a run of these is a value.
GAP = re.compile(r"\s*…\s*")
FRAGMENT_LETTERS_MIN = 6


def literals(repo):
    """All texts in the sources, with continued lines joined."""
    texts = []
    for path in sorted((repo / "crates").glob("*/src/**/*.rs")):
        for text in LITERAL.findall(path.read_text()):
            texts.append(re.sub(r"\\\n\s*", "", text).replace('\\"', '"').replace("\\\\", "\\"))
    return "\n".join(texts)


def unknown_messages(page, texts):
    """Headings that quote a message which no source has; parts around `…`, which is a value, are looked for."""
    for _, heading, line in page.headings():
        for message in re.findall(r"`([^`]+)`", heading):
            parts = [part for part in GAP.split(message) if sum(map(str.isalpha, part)) >= FRAGMENT_LETTERS_MIN]
            lacking = [part for part in parts if part not in texts]
            if lacking or not parts:
                yield f"{page.path}:{line}: no source has {lacking or message}"


def wrong_verbs(page):
    """Verbs of `ceto ctl help` that the tables of the page lack, and what they wrongly say is there or is not."""
    help_text = subprocess.run([BINARY, "ctl", "help"], capture_output=True, check=True, text=True).stdout
    there = set(re.findall(r"^  (\w+) +\S", help_text.split("Commands:")[1].split("Options:")[0], re.M)) - {"help"}
    cells = [line.split("|")[1] for _, line in page.prose if line.startswith("|")]
    named = {verb for cell in cells if cell.startswith(" `") for verb in re.findall(r"`(\w+)", cell)}
    yield from (f"{page.path}: the tables lack `{verb}`" for verb in sorted(there - named))
    yield from (f"{page.path}: `ceto ctl` has no `{verb}`" for verb in sorted(named - there))
    absent = cells[cells.index(" Verb of nodetool ") + 2 :]
    for verb in re.findall(r"\w+", " ".join(absent)):
        done = subprocess.run([BINARY, "ctl", verb], capture_output=True, text=True)
        if f"'{verb}' is not supported" not in done.stderr:
            yield f"{page.path}: `ceto ctl {verb}` does not say that it is not supported, but {done.stderr}"


def reports(repo, docs):
    page = Page(docs / "guide" / "troubleshooting.md")
    wrong = list(unknown_messages(page, literals(repo)))
    yield "\n".join(wrong) if wrong else "messages that are explained are in the sources", not wrong
    wrong = list(wrong_verbs(Page(docs / "guide" / "ctl.md")))
    yield "\n".join(wrong) if wrong else "the table of `ceto ctl` has its verbs", not wrong
