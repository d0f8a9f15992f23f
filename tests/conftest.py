"""Fixtures that every room's tests may use."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from jigsaw_opt.documents import load_instance, load_plan
from jigsaw_opt.problem import Instance, Plan

pytest.register_assert_rewrite("tests.refusals")

DATA = Path(__file__).parent / "data"

# The same examples on every machine, whatever its speed and whatever an earlier run found.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Where the tests run in the background, they inherit that Ctrl-C is ignored, and would hand it down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def pair_path() -> Path:
    """Two jobs on one server (specification: instance)."""
    return DATA / "pair.json"


@pytest.fixture
def pair_plan_path() -> Path:
    """Its optimal plan (specification: plan)."""
    return DATA / "pair.plan.json"


@pytest.fixture
def pair(pair_path: Path) -> Instance:
    return load_instance(pair_path)


@pytest.fixture
def pair_plan(pair_plan_path: Path) -> Plan:
    return load_plan(pair_plan_path)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured profiles and traces; tests that need it skip where it is missing."""
    folder = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"measured data not found at {folder}; set JIGSAW_SHARED to the folder that holds data/")
    return folder
