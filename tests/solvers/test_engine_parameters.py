"""Parameters of search and engine are handed through, and wrong ones are refused all at once before anything runs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from jigsaw_opt import Fix, Instance, Options, Result, Status, UsageError, solve
from jigsaw_opt.cli import main
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances import load
from jigsaw_opt.solvers import params as module
from jigsaw_opt.solvers.cpsat import model as cpsat_model
from jigsaw_opt.solvers.params import DriverParams, InsertionParams, SearchParams
from jigsaw_opt.solvers.search.param_file import as_toml, from_toml
from tests.refusals import misuse, refuses

WRONG = {
    "cpsat": (
        {"num_wrkers": 1, "nonsense": 2, "random_seed": "one", "search_branching": "DEEP", "relative_gap_limit": 0.5},
        ("did you mean 'num_workers'", "'nonsense'", "'random_seed'", "'search_branching'", "'relative_gap_limit'"),
    ),
    "ilp": (
        {"thread": 1, "nonsense": 2, "presolve": "maybe", "mip_rel_gap": 0.5},
        ("did you mean 'threads'", "'nonsense'", "'presolve'", "'mip_rel_gap'"),
    ),
}


def require_engine(solver: str) -> None:
    for engine in ("ortools",) if solver == "cpsat" else ("pulp", "highspy"):
        pytest.importorskip(engine)


@pytest.mark.parametrize("solver", WRONG)
def test_all_wrong_parameters_are_told_at_once(solver: str, pair: Instance) -> None:
    require_engine(solver)
    parameters, parts = WRONG[solver]
    with pytest.raises(UsageError) as caught:
        solve(pair, solver, Options(engine_parameters=parameters))
    assert len(caught.value.args) == len(parameters)
    for part in parts:
        assert part in str(caught.value)


def test_fields_of_all_types_reach_the_engine(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")
    engines: list[Any] = []
    configure = cpsat_model.configure

    def configured(solver: Any, *asked: Any) -> None:
        engines.append(solver)
        configure(solver, *asked)

    monkeypatch.setattr(cpsat_model, "configure", configured)
    wanted = {
        "linearization_level": 2,
        "max_time_in_seconds": 7.5,
        "interleave_search": True,
        "search_branching": "PORTFOLIO_SEARCH",
        "ignore_subsolvers": "core,fixed",
    }
    result = solve(load("server/weighted"), "cpsat", Options(threads=1, work_limit=0.2, engine_parameters=wanted))
    assert result.plan is not None and engines
    for solver in engines:
        parameters = solver.parameters
        assert (parameters.linearization_level, parameters.max_time_in_seconds) == (2, 7.5)
        assert parameters.interleave_search
        assert parameters.search_branching.name == "PORTFOLIO_SEARCH"
        assert list(parameters.ignore_subsolvers) == ["core", "fixed"]


@pytest.mark.parametrize(
    ("solver", "name", "value"),
    [
        ("ilp", "mip_max_nodes", 0),
        ("ilp", "presolve", "off"),
        ("cpsat", "max_deterministic_time", 0.001),
    ],
)
def test_what_is_handed_through_shows_in_the_log(solver: str, name: str, value: object) -> None:
    require_engine(solver)
    lines: list[str] = []
    options = Options(threads=1, engine_parameters={name: value}, engine_log=lines.append)
    result = solve(load("tiny/014"), solver, options)
    assert result.plan is not None
    assert any(str(value) in line or "node limit" in line.lower() for line in lines)
    assert all("\n" not in line for line in lines)


def test_a_level_logs_the_engine(pair: Instance, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("ortools")
    with caplog.at_level(logging.DEBUG, logger="jigsaw_opt"):
        solve(load("server/weighted"), "cpsat", Options(threads=1, work_limit=0.1, engine_log=logging.DEBUG))
    engine = [record for record in caplog.records if record.name == "jigsaw_opt.engine"]
    assert any("CP-SAT" in record.getMessage() for record in engine)
    assert {record.levelno for record in engine} == {logging.DEBUG}
    told = [record.getMessage() for record in caplog.records if record.name == "jigsaw_opt.solvers.run"]
    assert "solving" in told[0] and "stopped by" in told[-1]


def test_without_a_level_an_engine_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("highspy")
    for log in (None, lambda line: None):
        solve(load("tiny/014"), "ilp", Options(threads=1, work_limit=1, engine_log=log))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("options", [Options(engine_parameters={"x": 1}), Options(engine_log=10)])
def test_a_solver_that_hands_nothing_through_says_so(options: Options, pair: Instance) -> None:
    with misuse(f"unsupported {options.given[-1]}", naming=["'greedy'", "engine"]):
        solve(pair, "greedy", options)


def test_a_parameter_that_an_engine_does_not_have_is_told_by_its_name(pair: Instance) -> None:
    pytest.importorskip("ortools")
    with misuse("unknown-option engine_parameters.zz"):
        solve(pair, "cpsat", Options(engine_parameters={"zz": 1}))


@pytest.mark.slow
def test_the_models_of_the_portfolio_and_of_a_re_solve_take_them_too() -> None:
    pytest.importorskip("ortools")
    instance = load("server/weighted")
    old = solve(instance, "greedy").plan
    assert old is not None

    def log_of(used: Callable[[Options], Result]) -> str:
        lines: list[str] = []
        handed = {"linearization_level": 2, "log_prefix": "mine"}
        used(Options(threads=1, work_limit=0.2, engine_parameters=handed, engine_log=lines.append))
        return "\n".join(lines)

    for text in (
        log_of(lambda o: solve(instance, "portfolio", o)),
        log_of(lambda o: solve(instance, "auto", o, start=old, fix=Fix())),
    ):
        assert "CP-SAT" in text and "linearization_level: 2" in text
    with pytest.raises(UsageError, match="no parameter 'x'"):
        solve(instance, "auto", Options(engine_parameters={"x": 1}), start=old, fix=Fix())


def test_the_command_line_hands_them_through(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    asked = ["--threads", "1", "--work-limit", "0.1"]
    values = ["--engine-parameter", "linearization_level=2", "--engine-parameter", "log_prefix=mine"]
    assert main(["solve", "server/weighted", "--solver", "cpsat", "-q", *asked, *values]) == 0
    assert main(["solve", "server/weighted", *asked, "--engine-parameter", "wrong=1", *values[:1], "w=true"]) == 2
    assert main(["solve", "server/weighted", "--engine-parameter", "wrong"]) == 2
    told = capsys.readouterr().err
    assert "'wrong'" in told and "'w'" in told and "NAME=VALUE" in told


def test_a_proof_holds_with_other_parameters(pair: Instance) -> None:
    pytest.importorskip("ortools")
    for solver in ("cpsat", "portfolio", "auto"):
        result = solve(pair, solver, Options(threads=1, engine_parameters={"cp_model_probing_level": 0}))
        assert (result.status, result.objective) == (Status.OPTIMAL, 1800)


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
        ("relocation.temperatures = ['a']", "wrong-type $.relocation.temperatures[0]"),
        ("relocation.temperatures = []", "wrong-count $.relocation.temperatures"),
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
