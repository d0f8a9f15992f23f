"""The glossary defines every term once, and the page that it names uses the term."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.pages import ROOT, anchors

GLOSSARY = ROOT / "docs" / "glossary.md"


class Entry(NamedTuple):
    term: str
    symbol: str | None
    meaning: str
    page: str


LINE = re.compile(r"^\* \*\*(.+?)\*\*(?: \((.+?)\))?: (.*\.) (\[[^\]]+\]\([^)]+\))$", re.MULTILINE)


def entries() -> list[Entry]:
    text = GLOSSARY.read_text(encoding="utf-8")
    found = [Entry(*each.groups()) for each in LINE.finditer(text)]
    assert len(found) == len(re.findall(r"^\* ", text, re.MULTILINE))
    return found


def uses(term: str, text: str) -> bool:
    """Whether a text has the term, in the singular or plural, whatever its case and breaks of lines, or as a key."""
    words = r"[\s_]+".join(map(re.escape, re.sub(r"y$", "", term).split()))
    return re.search(rf"\b{words}(?:y|ies|s|es)?\b", text, re.IGNORECASE) is not None


def test_every_term_is_there_once_and_its_page_uses_it() -> None:
    terms = Counter(entry.term.lower() for entry in entries())
    assert len(terms) > 50
    assert [term for term, count in terms.items() if count > 1] == []
    for entry in entries():
        found = re.fullmatch(r"\[[^\]]+\]\(([\w-]+\.md)(?:#([\w-]+))?\)", entry.page)
        assert found, entry.page
        page = Path(GLOSSARY.parent, found[1])
        assert page.is_file() and (found[2] is None or found[2] in anchors(page)), entry.page
        assert uses(entry.term, page.read_text(encoding="utf-8")), entry.term


def test_uses_are_told_from_other_words() -> None:
    assert uses("depth rule", "two depth\nrules") and uses("policy", "Policies")
    assert not uses("ring", "during") and not uses("gap", "gaping")
