"""Clusters from sinfo and GraphML, and every problem of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.simulation.cluster_files import FORMATS, cluster_in_words
from tests.refusals import carries

DATA = Path(__file__).parents[1] / "data"


def problems(name: str, text: str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        FORMATS[name](text, "f")
    return [str(problem) for problem in caught.value.problems]


def test_nodes_of_slurm() -> None:
    cluster = cluster_in_words(f"sinfo:{DATA / 'cluster.sinfo.txt'}")
    assert cluster is not None
    found = [(server.name, server.gpu_type, server.gpus, server.gpu_memory) for server in cluster.servers]
    gb = 10**9
    assert found == [("node01", "a100", 8, 40 * gb), ("node02", "a100", 8, 40 * gb), ("node03", "gpu", 4, 16 * gb)]
    assert len(cluster.links) == 3 and cluster.switches == ("switch",)


def test_every_problem_of_sinfo() -> None:
    text = "NODELIST|GRES\nn[1-4]|gpu:2\nm|gpu:a100:2,gpu:v100:1\nk\no|gpu:2\no|gpu:4\n"
    assert problems("sinfo", text) == [
        "f:2: 'n[1-4]' is no name of one node; sinfo -N has a line for each",
        "f:3: node 'm' has GPUs of 2 types, and a server has one",
        "f:4: 1 cells; they are NODELIST|GRES, as sinfo -N -o '%N|%G' prints them",
        "f:6: node 'o' has other GPUs than in a line before",
    ]
    assert problems("sinfo", "NODELIST|GRES\nn|(null)\n") == ["f: has no node with a GPU"]


def test_a_graph() -> None:
    cluster = cluster_in_words(f"graphml:{DATA / 'cluster.graphml'}")
    assert cluster is not None
    assert [(server.name, server.gpus, server.gpu_memory) for server in cluster.servers] == [
        ("a", 8, 32 * 10**9),
        ("b", 4, 16 * 10**9),
    ]
    assert cluster.switches == ("top",)
    assert cluster.links == (Link("l0", ("a", "top"), 3_125_000_000), Link("l1", ("b", "top"), 1_250_000_000))


def test_every_problem_of_a_graph() -> None:
    text = (DATA / "cluster.graphml").read_text()
    wrong = text.replace(">8<", ">0<").replace('target="top"/>', 'target="b"/>').replace("3125000000", "-1")
    assert problems("graphml", wrong) == [
        "f: node 'a': gpus is a whole number of at least 1, not 0",
        "f: edge 0: bandwidth is a whole number of at least 1, not -1",
        "f: edge 1: joins 'b' to itself",
    ]
    assert problems("graphml", "<graphml")[0].startswith("f: is no GraphML: ")
    assert problems("graphml", text.replace("<data", "<nodata").replace("</data", "</nodata")) == [
        "f: no node has gpus"
    ]


def test_commands_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = f"graphml:{DATA / 'cluster.graphml'}"
    assert main(["new", "--cluster", cluster, "--job", "a:resnet50:2:3", "-o", str(tmp_path / "i.json")]) == 0
    assert load_instance(tmp_path / "i.json").cluster.gpu_count == 12
    assert "behind one switch" not in capsys.readouterr().err
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,submit_s,gpus,duration_s\na,0,2,60\n")
    run = ["simulate", "--workload", str(jobs), "--policy", "las", "-o", str(tmp_path / "o"), "--cluster"]
    equal = tmp_path / "equal.graphml"
    equal.write_text((DATA / "cluster.graphml").read_text().replace("16000000000", "32000000000"))
    assert main([*run, f"graphml:{equal}"]) == 0
    assert main([*run, "sinfo:none", "--force"]) == 3
    assert carries(capsys.readouterr().err, "none", "cannot")


def test_types_with_a_data_sheet_in_letters_of_any_case() -> None:
    for text, name, memory, fabric in (
        ("2x4:A100", "a100", 40, 300),
        ("1x8:MI300X", "mi300x", 192, 448),
        ("1x8:H100", "h100", 80, 450),
        ("1x8:B200", "b200", 180, 900),
        ("1x2:l40s", "l40s", 48, 32),
        ("1x1:T4", "t4", 16, 16),
        ("1x1:RTX", "RTX", 16, 12),
    ):
        cluster = cluster_in_words(text)
        assert cluster is not None
        found = {(one.gpu_type, one.gpu_memory, one.fabric_bandwidth) for one in cluster.servers}
        assert found == {(name, memory * 10**9, fabric * 10**9)}
