"""Parameters of the search, in Python and as a TOML file, with those of the release before."""

from __future__ import annotations

import warnings
from dataclasses import fields
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.solvers import params as module
from jigsaw_opt.solvers.params import FORMER, DriverParams, InsertionParams, PriceParams, SearchParams
from jigsaw_opt.solvers.search.param_file import as_toml, from_toml
from tests.refusals import carries, refuses


def test_the_file_that_is_printed_holds_the_defaults() -> None:
    text = as_toml(SearchParams())
    assert from_toml(text) == SearchParams()
    changed = from_toml(text.replace("patience = 12", "patience = 7").replace("best = 3", "best = 9"))
    assert (changed.driver.patience, changed.candidates.best) == (7, 9)


def test_what_is_wrong_in_a_file_is_told_all_at_once() -> None:
    text = 'without = ["restar"]\ninsertion = 3\n[driver]\npatient = 3\ndecay = 2\nfloor = "much"\n'
    with pytest.raises(InvalidInputError) as caught:
        from_toml(text)
    paths = [problem.path for problem in caught.value.problems]
    assert sorted(paths) == ["$.driver.decay", "$.driver.floor", "$.driver.patient", "$.insertion", "$.without[0]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("driver.patience = 1.5", "wrong-type $.driver.patience"),
        ("driver.decay = true", "wrong-type $.driver.decay"),
        ("driver.decay = nan", "out-of-range $.driver.decay"),
        ("without = 'restart'", "wrong-type $.without"),
        ("relocation.temperatures = 3", "wrong-type $.relocation.temperatures"),
        ("relocation.temperatures = ['a']", "wrong-type $.relocation.temperatures"),
        ("relocation.temperatures = []", "empty $.relocation.temperatures"),
        ("prices.foo = 1", "unknown-field $.prices.foo"),
        ("prices = 3", "wrong-type $.prices"),
    ],
)
def test_each_wrong_value_has_a_code_and_a_path(text: str, expected: str) -> None:
    with refuses(expected):
        from_toml(text)


@pytest.mark.parametrize("part", sorted(set(FORMER) - {"", "prices"}))
def test_former_parameters_are_ignored_with_a_warning(part: str) -> None:
    kind = type(getattr(SearchParams(), part))
    assert not FORMER[part].intersection(each.name for each in fields(kind))
    for name in FORMER[part]:
        with pytest.warns(FutureWarning, match=rf"^{part}\.{name} is no longer tunable") as told:
            assert kind(**{name: 1}) == kind()
        assert told[0].filename == __file__
        with pytest.warns(FutureWarning, match=rf"^\$\.{part}\.{name} is no longer tunable"):
            assert from_toml(f"{part}.{name} = 1") == SearchParams()


def test_a_former_part_is_ignored_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match=r"^prices.engine is no longer tunable"):
        prices = PriceParams(engine=2.0)  # type: ignore[call-arg]
    with pytest.warns(FutureWarning, match=r"^prices is no longer tunable"):
        assert SearchParams(without=("restart",), prices=prices).without == ("restart",)  # type: ignore[call-arg]
    with pytest.warns(FutureWarning, match=r"^\$.prices.engine is no longer tunable"):
        assert from_toml("[prices]\nengine = 2.0\n[driver]\npatience = 3\n").driver == DriverParams(patience=3)


def test_names_that_never_were_are_refused() -> None:
    with pytest.raises(TypeError, match="hurry"):
        DriverParams(hurry=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        InsertionParams(0.1)  # type: ignore[misc]


def test_parameters_that_there_are_make_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SearchParams(("restart",), driver=DriverParams(patience=3)).driver.patience == 3
    assert module.SearchParams is SearchParams


def test_the_command_line_tells_of_a_former_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "params.toml"
    for text, code in (("driver.fading = 0.5\n", 0), ("driver.fading = 0.5\ndriver.hurry = 1\n", 3)):
        path.write_text(text, "utf-8")
        command = ["solve", "tiny/000", "--solver", "search", "--params", str(path), "--work-limit", "0.01"]
        assert main(command) == code
        assert carries(capsys.readouterr().err, "warning", "$.driver.fading")
