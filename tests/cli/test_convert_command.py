"""What `convert` writes is valid, or it writes nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.refusals import ends

DATA = Path(__file__).parents[1] / "data/cases"


@pytest.mark.parametrize("to", [["--to", "layers"], [], ["--to", "model"]])
def test_a_trace_without_times_makes_no_document(
    to: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = json.loads(gzip.decompress((DATA / "kineto/t_rf.json.gz").read_bytes()))
    for one in tree["traceEvents"]:
        if one.get("cat") == "cpu_op":
            one["dur"] = 0
    trace, written = tmp_path / "trace.json", tmp_path / "written.json"
    trace.write_text(json.dumps(tree))
    field = "LayerGraph.layers" if "layers" in to else "Model.segments"
    ends(f"3: out-of-range {field}", "convert", "kineto", trace, "--gpu-type", "v100", *to, "-o", written)
    assert "forward" in capsys.readouterr().err
    assert not written.exists()


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (["--servers", "99999999999"], "2: too-large"),
        (["--workers", "1000001"], "2: too-large"),
        (["--gpus", "500001"], "2: too-large"),
        (["--gpu-memory", str(2**53)], "2: out-of-range gpu_memory"),
        (["--latency-us", str(2**60)], "2: out-of-range latency_us"),
    ],
)
def test_sizes_have_a_limit(option: list[str], code: str) -> None:
    ends(code, "convert", "pipedream", DATA / "pipedream/base.graph.txt", "--gpu-type", "a100", *option)


def test_one_trace_stands_for_a_limited_number_of_ranks() -> None:
    trace = DATA / "field/chakra_ring.0.et"
    ends(f"3: too-large {trace}", "convert", "chakra", trace, "--gpu-type", "a100", "--workers", str(2**53 - 1))
