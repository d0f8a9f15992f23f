"""The comparison of configurations with ``transformers``: without it, it says so; its list has every type and class."""

from __future__ import annotations

import runpy
import sys

import hugging_face_counts
import pytest

from jigsaw_opt.instances.configurations.model_types import MODEL_TYPES


def test_without_the_package_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(sys, "argv", ["hugging_face_counts.py"])
    with pytest.raises(SystemExit, match="6"):
        runpy.run_path(hugging_face_counts.__file__, run_name="__main__")
    assert capsys.readouterr().err == ("error: transformers is not installed; run: pip install 'transformers[torch]'\n")


def test_every_type_and_class_is_compared() -> None:
    titles = [title for title, _ in hugging_face_counts.configurations()]
    assert len(titles) == len(set(titles)) > 100
    assert {f"{kind}, {end}" for kind, model_type in MODEL_TYPES.items() for end in model_type.heads} <= set(titles)
