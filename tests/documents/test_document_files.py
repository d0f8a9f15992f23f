"""Loading and writing files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import (
    encode_instance,
    encode_plan,
    load_document,
    load_instance,
    load_plan,
    save_instance,
    save_plan,
    write_atomically,
)
from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.problem import Instance, Plan
from tests.refusals import carries, misuse, refuses


def test_what_is_saved_is_loaded(tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    save_instance(pair, tmp_path / "i.json")
    save_plan(pair_plan, tmp_path / "p.json")
    assert load_instance(tmp_path / "i.json") == load_document(tmp_path / "i.json") == pair
    assert load_plan(str(tmp_path / "p.json")) == load_document(tmp_path / "p.json") == pair_plan


def test_what_gzip_has_compressed_is_loaded(tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    path = tmp_path / "it.json.gz"
    path.write_bytes(gzip.compress(encode_plan(pair_plan)))
    assert load_plan(path) == load_document(path) == pair_plan
    assert main(["validate", str(path)]) == 0
    path.write_bytes(gzip.compress(encode_instance(pair)))
    assert load_instance(path) == pair
    path.write_bytes(path.read_bytes()[:-20])
    for load in (load_instance, load_plan, load_document):
        with refuses(f"unreadable {path}"):
            load(path)
    assert main(["validate", str(path)]) == 3


def test_a_broken_plan_is_judged_as_a_plan(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"format" : "jigsaw-plan/1"}')
    with refuses(*["missing-field $"] * 8, naming=['"bound"']):
        load_document(tmp_path / "p.json")


@pytest.mark.parametrize("name", ["missing.json", ".", "null\0character"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    for load in (load_instance, load_plan, load_document):
        with refuses(f"unreadable {path}"):
            load(path)


def test_problems_of_the_whole_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(b"{")
    with pytest.raises(InvalidInputError) as caught:
        load_instance(path)
    assert caught.value.problems[0].path == str(path)


def test_writing_replaces_and_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    fresh = tmp_path / "fresh"
    fresh.touch()
    assert path.stat().st_mode == fresh.stat().st_mode
    path.chmod(0o640)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "fresh"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail) if step == "fsync" else monkeypatch.setattr(Path, "replace", fail)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else JigsawError
    with pytest.raises(expected) as caught:
        write_atomically(path, b"new")
    assert isinstance(error, KeyboardInterrupt) or carries(str(caught.value), "space", "left")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_places_that_cannot_be_written(tmp_path: Path, pair: Instance) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    for path in (tmp_path / "folder", tmp_path / "file" / "x", tmp_path / "a\0b"):
        with misuse(f"unwritable {path}"):
            save_instance(pair, path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]
