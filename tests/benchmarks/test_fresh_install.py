"""What `benchmarks/fresh_install.py` counts and complains about, with commands that stand for those of the program."""

from __future__ import annotations

import shutil
from pathlib import Path

import fresh_install
import pytest
from fresh_install import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place on this machine whose user `second` begins elsewhere, with an installed file."""
    homes = {"root": str(tmp_path), "second": str(tmp_path / "second")}
    for name in ("jigsaw/bin", "second"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "jigsaw" / "module.py").write_text("a = 1\n")
    return Place("test", str(tmp_path), homes, {"root": [], "second": []}, lambda path: shutil.copy(path, tmp_path))


def test_a_command_knows_nothing_of_the_user_who_measures(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    printed, seconds = place.run("pwd; echo $HOME $PYTHONPATH$SAID; echo too >&2", "second", SAID="said")
    assert printed.splitlines() == [place.homes["second"], f"{place.homes['second']} said", "too"]
    assert seconds > 0


def test_a_command_that_fails_ends_the_measurement(place: Place) -> None:
    with pytest.raises(SystemExit, match=r"exit 3: exit code 3\nwhy\n"):
        place.run("echo why; exit 3")


def test_pip_finds_the_packages_and_the_certificates_of_this_machine(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    certificates = tmp_path / "elsewhere" / "ca.crt"
    certificates.write_text("certificates")
    for name in ("PIP_INDEX_URL", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", str(certificates))
    assert fresh_install.pip_settings(place) == {"PIP_CERT": f"{place.folder}/ca.crt"}
    assert (tmp_path / "ca.crt").read_text() == "certificates"


SOLVES = "echo solved > plan.json; echo $* > same.json"
"""Stands for the program."""


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        (SOLVES, None),
        (
            f"{SOLVES}; test $1.${{PWD##*/}} != plot.second || echo Warning: no cache",
            "another user is warned: Warning: no cache",
        ),
        (f"{SOLVES}; echo 'a = 2' > $(dirname $0)/../module.py", "the commands changed the installed files"),
        (f"{SOLVES}; date +%N >> same.json", "the same steps made other plans"),
    ],
)
def test_what_is_not_as_promised_is_told(place: Place, tmp_path: Path, program: str, complaint: str | None) -> None:
    (tmp_path / "jigsaw" / "bin" / "jigsaw").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "jigsaw" / "bin" / "jigsaw").chmod(0o755)
    installed = fresh_install.package_files(place)
    assert {each.split()[-1].removeprefix(place.folder) for each in installed} == {
        "/jigsaw/bin/jigsaw",
        "/jigsaw/module.py",
    }
    assert fresh_install.problems_in_use(place, installed) == ([complaint] if complaint else [])
