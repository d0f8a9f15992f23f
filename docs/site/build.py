"""Build the site of the documentation, and refuse it where a link or an anchor leads nowhere.

Run it by ``make docs``, or as ``python docs/site/build.py``. Pages lie in ``out/site/pages`` as in the repository, with
the README as the first one and a page of all public names; Zensical (extra ``docs``) makes ``out/site/html`` of them.
The site is read without a network, and without a server: no page loads anything from elsewhere, and the search works
where ``out/site/html/index.html`` is opened as a file.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "site"
PAGES, HTML = OUT / "pages", OUT / "html"
CONFIG = Path(__file__).with_name("zensical.toml")
_LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s]+)\)")
_VENDOR = Path(__file__).with_name("vendor")
_FIRST = "index.md"
_API = "docs/api.md"


def pages() -> dict[str, Path]:
    """Every page of the site by its path there, but for that of the public names."""
    found = {_FIRST: ROOT / "README.md"}
    for path in (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))):
        found[path.relative_to(ROOT).as_posix()] = path
    return found


def named_pages() -> list[str]:
    """The pages that the navigation names, in its order."""

    def walk(entries: list[dict[str, object]]) -> Iterator[str]:
        for entry in entries:
            for value in entry.values():
                if isinstance(value, str):
                    yield value
                elif isinstance(value, list):
                    yield from walk(value)

    return list(walk(tomllib.loads(CONFIG.read_text())["project"]["nav"]))


def lay_out() -> None:
    """Write the pages; a link to a file that is no page becomes its name."""
    shutil.rmtree(OUT, ignore_errors=True)
    known = pages()
    for name, path in known.items():
        target = PAGES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_LINK.sub(lambda found, path=path: _link(found, path), path.read_text()))
    for path in (ROOT / "docs").iterdir():
        if path.suffix in (".png", ".svg", ".csv"):
            shutil.copy(path, PAGES / "docs")
    for path in _VENDOR.iterdir():
        shutil.copy(path, PAGES)
    (PAGES / _API).write_text(_names())
    shutil.copy(CONFIG, OUT)


def _link(found: re.Match[str], page: Path) -> str:
    text, target = found.groups()
    place, _, anchor = target.partition("#")
    if not place or ":" in place:
        return found[0]
    path = (page.parent / place).resolve()
    if path == ROOT / "README.md":
        return f"[{text}]({'../' if page.parent != ROOT else ''}{_FIRST}{'#' if anchor else ''}{anchor})"
    if path in pages().values() or (path.parent == ROOT / "docs" and path.is_file()):
        return found[0]
    return text


def _names() -> str:
    """A page of all public names with their docstrings."""
    import jigsaw_opt

    head = "# Python names\n\nEverything that `import jigsaw_opt` offers.\n"
    return "\n".join([head, *(f"::: jigsaw_opt.{name}\n" for name in sorted(jigsaw_opt.__all__, key=str.lower))])


class _Targets(HTMLParser):
    """Collects what a page links to, what it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        given = dict(attrs)
        self.anchors.update(str(given[key]) for key in ("id", "name") if given.get(key))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        elif tag in ("script", "img", "iframe") and given.get("src"):
            self.loads.append(str(given["src"]))
        elif tag == "link" and given.get("href") and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(str(given["href"]))


def broken() -> Iterator[str]:
    """What leads nowhere or is loaded from elsewhere, page by page."""
    read: dict[Path, _Targets] = {}
    for path in sorted(HTML.rglob("*.html")):
        read[path] = _Targets()
        read[path].feed(path.read_text())
    for path, targets in read.items():
        if "<p>```" in path.read_text():
            yield f"{path.relative_to(HTML)}: a block of code is not closed, or has options that the site does not know"
        for target in targets.loads:
            if re.match(r"(https?:)?//", target):
                yield f"{path.relative_to(HTML)}: loads {target}"
        for target in targets.links if path.name != "404.html" else ():
            place, _, anchor = unquote(target).partition("#")
            if re.match(r"[a-z]+:|//", place):
                continue
            goal = (path.parent / place).resolve() if place else path
            if not goal.exists():
                yield f"{path.relative_to(HTML)}: {target} is not there"
            elif anchor and goal in read and anchor not in read[goal].anchors:
                yield f"{path.relative_to(HTML)}: {target} has no such anchor"


def main() -> int:
    """Build and check; returns the exit code."""
    missing = sorted({*pages(), _API} ^ set(named_pages()))
    if missing:
        print(f"the navigation and the pages differ in {', '.join(missing)}", file=sys.stderr)
        return 1
    lay_out()
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(OUT / CONFIG.name)]
    if subprocess.run(command, cwd=OUT).returncode:
        return 1
    wrong = list(broken())
    print("\n".join(wrong) or f"wrote {HTML / 'index.html'}", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
