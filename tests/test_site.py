"""The site of the documentation has every page, bad links are found, and its search works without a server."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.views.test_html_in_browser import browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]

ROOT = Path(__file__).parents[1]


@pytest.fixture
def build() -> ModuleType:
    spec = spec_from_file_location("site_build", ROOT / "docs" / "site" / "build.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_names_every_page_once(build: ModuleType) -> None:
    named = build.named_pages()
    assert sorted(named) == sorted([*build.pages(), "docs/api.md"]) and len(set(named)) == len(named)


def test_links_to_what_is_no_page_become_their_names(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "OUT", tmp_path)
    monkeypatch.setattr(build, "PAGES", tmp_path / "pages")
    build.lay_out()
    readme = (tmp_path / "pages" / "index.md").read_text()
    assert "](docs/glossary.md" in readme and "](../README.md" not in (tmp_path / "pages/docs/tutorial.md").read_text()
    assert "](../index.md)" in (tmp_path / "pages" / "docs" / "tutorial.md").read_text()
    assert "::: jigsaw_opt.LiveScheduler\n" in (tmp_path / "pages" / "docs" / "api.md").read_text()


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ('<a href="b.html#there">b</a><p id="there">', ""),
        ('<a href="none.html">c</a>', "a.html: none.html is not there"),
        ('<a href="b.html#none">d</a>', "a.html: b.html#none has no such anchor"),
        ("<p>```console new=1", "a.html: a block of code is not closed, or has options that the site does not know"),
        ('<script src="https://elsewhere/x.js"></script>', "a.html: loads https://elsewhere/x.js"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(
    body: str, wrong: str, build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "HTML", tmp_path)
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<p id="there">')
    assert "\n".join(build.broken()) == wrong


ASKED = """
document.querySelector(".md-search__button").click();
const host = await new Promise(done => {
  const look = () => {
    const found = [...document.querySelectorAll("*")].find(it => it.shadowRoot?.querySelector("input"));
    found ? done(found) : setTimeout(look, 20);
  };
  look();
});
const field = host.shadowRoot.querySelector("input");
field.value = arguments[0];
field.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
return await new Promise(done => {
  const look = () => {
    const links = [...host.shadowRoot.querySelectorAll("a")].map(it => it.getAttribute("href"));
    links.length ? done(links) : setTimeout(look, 20);
  };
  look();
});
"""


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
def test_the_search_of_a_page_opened_as_a_file_needs_no_network(
    browser: Chrome, build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zensical", reason="zensical is not installed (extra docs)")
    for name, path in (("OUT", tmp_path), ("PAGES", tmp_path / "pages"), ("HTML", tmp_path / "html")):
        monkeypatch.setattr(build, name, path)
    assert build.main() == 0
    browser.execute_cdp_cmd("Network.enable", {})
    cut_off = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", cut_off)
    browser.get((tmp_path / "html" / "index.html").as_uri())
    browser.set_script_timeout(60)
    links = browser.execute_script(ASKED, "staircase")
    assert any("docs/specification.html" in link for link in links)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
