"""The moves of the search: their registry, parameters and records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances import generate
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.search import SEARCH, SearchParams
from jigsaw_opt.solvers.search.moves import move_types, names
from jigsaw_opt.solvers.search.param_file import as_toml, from_toml
from jigsaw_opt.solvers.solve import solve
from tests.installed import installed


def test_every_move_is_registered_under_its_own_name() -> None:
    assert [kind.name for kind in move_types()] == list(names())
    assert len(set(names())) == len(names())


def test_a_third_party_registers_a_move(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    points = {"exchange_priorities": "examples.own_move:ExchangePriorities"}
    monkeypatch.syspath_prepend(installed(tmp_path, "jigsaw_opt.moves", points))
    assert names()[-1] == "exchange_priorities"
    params = SearchParams(without=tuple(names()[:-1]))
    result = solve(generate("server", 2), SEARCH, Options(threads=1, work_limit=0.1, params=params))
    assert [move.name for move in result.moves] == ["opening", "exchange_priorities"]
    assert result.moves[1].calls > 0
    assert result.plan is not None


@pytest.mark.slow
def test_what_moves_earn_is_recorded() -> None:
    result = solve(generate("server", 2), "search", Options(threads=1, work_limit=0.3))
    assert result.objective is not None
    assert result.moves[0].name == "opening"
    assert len({move.name for move in result.moves}) == len(result.moves) > 2
    first = next(event.objective for event in result.trajectory if event.objective is not None)
    assert 0 < sum(move.improvement for move in result.moves) == first - result.objective
    assert all(move.calls >= move.successes >= (move.improvement > 0) for move in result.moves)
    assert all(move.seconds >= 0 for move in result.moves)


def test_moves_are_left_out() -> None:
    params = SearchParams(without=("restart", "cp_repair"))
    result = solve(generate("server", 2), "search", Options(threads=1, work_limit=0.1, params=params))
    made = {move.name for move in result.moves}
    assert len(made) > 1 and not made & {"restart", "cp_repair"}


def test_the_printed_parameters_are_the_defaults() -> None:
    assert from_toml(as_toml(SearchParams())) == SearchParams()
    assert from_toml("") == SearchParams()


def test_parameters_are_read() -> None:
    params = from_toml('without = ["restart"]\n[driver]\npatience = 3\nfloor = 1\n')
    assert (params.without, params.driver.patience, params.driver.floor) == (("restart",), 3, 1)


def test_all_problems_of_a_parameter_file_are_told_at_once() -> None:
    text = 'speed = 1\nwithout = ["restarts", 3]\n[driver]\npatience = 0\ndecay = "much"\nflor = 1\n[driver.more]\n'
    with pytest.raises(InvalidInputError) as error:
        from_toml(text)
    found = {problem.path: problem.message for problem in error.value.problems}
    assert list(found) == [
        "$.speed", "$.without", "$.driver.patience", "$.driver.decay", "$.driver.flor", "$.driver.more",
    ]  # fmt: skip
    assert found["$.driver.decay"] == "must be a number"
    assert "between" in found["$.driver.patience"]
    with pytest.raises(InvalidInputError, match="did you mean 'restart'"):
        from_toml('without = ["restarts"]')
    with pytest.raises(InvalidInputError, match="is not TOML"):
        from_toml("driver = ")


def test_the_command_line_takes_parameters_and_shows_what_moves_earned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solvers", "--params"]) == 0
    file = tmp_path / "search.toml"
    file.write_text(capsys.readouterr().out.replace("without = []", 'without = ["restart"]'))
    command = ["solve", "server:2", "--solver", "search", "--workers", "1", "--work-limit", "0.1", "--json", "-v"]
    assert main([*command, "--params", str(file)]) == 0
    printed = capsys.readouterr()
    made = [move["name"] for move in json.loads(printed.out)["moves"]]
    assert made[0] == "opening" and len(made) > 1 and "restart" not in made
    assert "improvement" in printed.err and made[-1] in printed.err
    file.write_text("[driver]\npatience = -1\nnothing = 1\n")
    assert main([*command, "--params", str(file)]) == 3
    assert "2 problems" in capsys.readouterr().err


@pytest.mark.slow
def test_orders_of_insertion_are_annealed_for_weighted_completions_alone() -> None:
    """The move alone makes plans better, the same ones for a seed, and every one of them passes the checker."""
    params = SearchParams(without=tuple(name for name in names() if name != "order_insertion"))
    options = Options(threads=1, work_limit=0.4, params=params)
    first, again = (solve(generate("crowded", 4), SEARCH, options) for _ in range(2))
    assert first.plan is not None and again.plan is not None
    assert (first.objective, first.plan.jobs) == (again.objective, again.plan.jobs)
    assert [move.name for move in first.moves] == ["opening", "order_insertion"]
    assert first.moves[1].successes > 0
    assert [move.name for move in solve(generate("crowded", 0), SEARCH, options).moves] == ["opening"]
