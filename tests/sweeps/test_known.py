"""Runs beside the best known values: better plans and contradictions are found, the rest says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from jigsaw_opt.instances.catalogue import BestKnown, RecordedRun
from jigsaw_opt.sweeps.bench import known
from jigsaw_opt.sweeps.bench.known import Beyond, best_known_by_hash, beyond_known

RUN = RecordedRun("old", "1", 0, 1, 1.0, "2026-01-01", "a machine")
STORED = BestKnown("hash", 900, 500, "a proof", RUN, RUN)


@pytest.fixture(autouse=True)
def _stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "read_best_known", lambda _path: {"set/one": STORED})


def row(objective: int | None, bound: int | None, sha256: str = "hash") -> dict[str, Any]:
    return {"instance_sha256": sha256, "solver": "auto", "seed": 3, "objective": objective, "bound": bound}


@pytest.mark.parametrize(
    ("run", "kinds"),
    [
        (row(900, 500), []),
        (row(901, 400), []),
        (row(None, 900), []),
        (row(1, 1, "another"), []),
        (row(899, 500), [("better", 899, 900)]),
        (row(500, 500), [("better", 500, 900)]),
        (row(499, 400), [("contradiction", 499, 500)]),
        (row(None, 901), [("contradiction", 901, 900)]),
        (row(499, 901), [("contradiction", 499, 500), ("contradiction", 901, 900)]),
        ({"instance_sha256": "hash", "solver": "auto", "error": "no memory"}, []),
    ],
)
def test_what_goes_beyond_the_stored_values_is_found(run: dict[str, Any], kinds: list[tuple[Any, ...]]) -> None:
    assert [(each.kind, each.found, each.stored) for each in beyond_known([run])] == kinds


def test_it_says_which_run_it_was() -> None:
    assert beyond_known([row(901, 1), row(800, 1)]) == [Beyond("set/one", "auto", 3, "better", 800, 900)]


def test_instances_are_found_by_their_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert {name for name, _ in best_known_by_hash().values()} >= {"tiny/000", "pod/weighted"}
