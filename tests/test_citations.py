"""Whatever cites the specification names a place that it has, and every link between pages leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from jigsaw_opt.checking import RULES
from tests.pages import ROOT, SPECIFICATION, anchors, headings, links, pages, section

ROOMS = ("jigsaw_opt", "docs", "tests", "examples", "benchmarks")
KINDS = {".py", ".md", ".json", ".html", ".js", ".toml"}
CITATION = re.compile(r"\(specification[:]\s+([^)]*)\)")
ADDRESS = re.compile(r"docs/specification\.md#([\w-]+)")
OLD = re.compile(r"\bSPEC\b|\b[Rr]ules? [1-9]|\w \((?:[35]|4\.[1-7])\) \||\bsection [1-7] of the spec")


def sources() -> list[Path]:
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in KINDS]
    return sorted({*found, *pages()} - {Path(__file__)})


def cited(text: str) -> list[str]:
    """Names that a text cites; a citation may go on behind the mark of a comment."""
    found = CITATION.findall(re.sub(r"\n\s*(# )?", " ", text))
    return [name for group in found for name in re.split(r", +", group)] + ADDRESS.findall(text)


def test_every_citation_resolves() -> None:
    known = anchors(SPECIFICATION)
    found = [(str(path.relative_to(ROOT)), name) for path in sources() for name in cited(path.read_text("utf-8"))]
    assert len(found) > 100
    assert [(path, name) for path, name in found if name not in known] == []


def test_nothing_is_cited_by_a_number() -> None:
    old = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OLD.search(line)
    ]
    assert old == []


def test_citations_and_numbers_are_noticed() -> None:
    assert all(map(OLD.search, ("SPEC section 3", "rule 4.5", "Rules 4.1", "SPEC 4.1", "| order (3) | x")))
    text = "(specification: a, b) (specification:\n    # c,\n    # e) docs/specification.md#d"
    assert cited(text) == ["a", "b", "c", "e", "d"]


def test_the_rules_of_the_checker_are_those_of_the_specification() -> None:
    text = SPECIFICATION.read_text(encoding="utf-8")
    assert headings(section(text, "Correct plan")) == list(RULES)


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target in links(page.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            there = (page.parent / name).resolve() if name else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                broken.append((page.name, target))
    assert broken == []
