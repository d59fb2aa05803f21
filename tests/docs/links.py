"""Relative links and anchors of all Markdown files of the repository, and the list of the manual's pages."""

import subprocess
from urllib.parse import unquote

from markdown import Page


def files(repo):
    """The Markdown files that git has or would take."""
    command = ["git", "-C", str(repo), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    return sorted({repo / name for name in listed if name and (repo / name).is_file()})


def dead_links(paths):
    """`FILE:LINE: reason` of each link that leads nowhere."""
    pages = {path.resolve(): Page(path) for path in paths}
    for path, page in pages.items():
        for line, target in page.links():
            if "://" in target or target.startswith("mailto:"):
                continue
            name, _, anchor = unquote(target).partition("#")
            to = (path.parent / name).resolve() if name else path
            if not to.exists():
                yield f"{path}:{line}: there is no {target}"
            elif anchor and (to not in pages or anchor not in pages[to].anchors()):
                yield f"{path}:{line}: {name or 'this page'} has no heading #{anchor}"


def unlisted(docs):
    """What SUMMARY.md lacks, has twice, or has without a page."""
    listed = [target for _, target in Page(docs / "SUMMARY.md").links()]
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {"SUMMARY.md"}
    yield from (f"SUMMARY.md does not name {name}" for name in sorted(there - set(listed)))
    yield from (f"SUMMARY.md names {name}, which is not below docs/" for name in sorted(set(listed) - there))
    yield from (f"SUMMARY.md names {name} twice" for name in sorted(set(listed)) if listed.count(name) > 1)


def reports(repo, docs):
    paths = files(repo)
    dead = list(dead_links(paths))
    yield "\n".join(dead) if dead else f"links of {len(paths)} Markdown files lead somewhere", not dead
    wrong = list(unlisted(docs))
    yield "\n".join(wrong) if wrong else "SUMMARY.md names every page", not wrong
