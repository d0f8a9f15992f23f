"""Parameters of the search, in Python and as a TOML file."""

from __future__ import annotations

import warnings

import pytest

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.solvers import params as module
from jigsaw_opt.solvers.params import DriverParams, InsertionParams, SearchParams
from jigsaw_opt.solvers.search.param_file import as_toml, from_toml
from tests.refusals import refuses


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
        ("driver.hurry = 1", "unknown-field $.driver.hurry"),
        ("hurry.driver = 1", "unknown-field $.hurry"),
    ],
)
def test_each_wrong_value_has_a_code_and_a_path(text: str, expected: str) -> None:
    with refuses(expected):
        from_toml(text)


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
