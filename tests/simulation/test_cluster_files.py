"""Clusters from sinfo and GraphML, and every problem of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.simulation.inputs.cluster_files import FORMATS, cluster_in_words

DATA = Path(__file__).parents[1] / "data"
GB = 10**9


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
    text = "NODELIST|GRES\nn[1-|gpu:2\nk\no|gpu:2\no|gpu:4\n"
    assert problems("sinfo", text) == [
        "f:2: 'n[1-' is no name of a node, and no list of them",
        "f:3: 1 cells; they are NODELIST|GRES, as sinfo -N -o '%N|%G' prints them",
        "f:5: node 'o' has other GPUs than in a line before",
    ]
    assert problems("sinfo", "NODELIST|GRES\nn|(null)\n") == ["f: has no node with a GPU"]


def test_resources_of_a_node_of_slurm() -> None:
    gres = {
        "a": "gpu:a100:no_consume:4",
        "b": "gpu",
        "c": "gpu:h100",
        "d": "vgpu:4,craynetwork:4,gpu:nvidia_a100_80gb_pcie:2(S:0,3),notgpu:3",
        "e": "gpu:6000:3(CPU:0-7)",
        "f": "gpu:8(S:0-1)",
        "g": "gpu:0",
    }
    text = "NODELIST|GRES\n" + "".join(f"{name}|{one}\n" for name, one in gres.items())
    assert [(one.name, one.gpu_type, one.gpus) for one in FORMATS["sinfo"](text, "f").servers] == [
        ("a", "a100", 4),
        ("b", "gpu", 1),
        ("c", "h100", 1),
        ("d", "nvidia_a100_80gb_pcie", 2),
        ("e", "6000", 3),
        ("f", "gpu", 8),
    ]
    assert problems("sinfo", "NODELIST|GRES\nn|gpu:4\nm|gpu:a100:x\nk|gpu:tesla:v100:4\n") == [
        "f:3: 'gpu:a100:x' is no number of GPUs, as in gpu:a100:8",
        "f:4: 'gpu:tesla:v100:4' is no number of GPUs, as in gpu:a100:8",
    ]


def test_a_node_with_several_types_of_gpu_is_a_server_for_each() -> None:
    text = "NODELIST|GRES\nm|gpu:a100:6(S:0-1),gpu:a100_3g.20gb:4(S:0),mps:400\nn[1-2]|gpu:v100:4\nc|(null)\n"
    cluster = FORMATS["sinfo"](text, "f")
    assert [(s.name, s.gpu_type, s.gpus, s.gpu_memory // GB, s.fabric_bandwidth // GB) for s in cluster.servers] == [
        ("m.a100", "a100", 6, 40, 300),
        ("m.a100_3g.20gb", "a100_3g.20gb", 4, 20, 12),
        ("n1", "v100", 4, 32, 150),
        ("n2", "v100", 4, 32, 150),
    ]
    assert cluster.switches == ("m-sys", "switch")
    assert [(link.ends, link.bandwidth / GB) for link in cluster.links] == [
        (("m.a100", "m-sys"), 10),
        (("m.a100_3g.20gb", "m-sys"), 10),
        (("m-sys", "switch"), 1.25),
        (("n1", "switch"), 1.25),
        (("n2", "switch"), 1.25),
    ]
    assert [one.name for one in FORMATS["sinfo"]("NODELIST|GRES\nm|gpu:a100:2,gpu:v100:1\n", "f").servers] == [
        "m.a100",
        "m.v100",
    ]


@pytest.mark.parametrize(
    ("spelling", "memory", "fabric"),
    [
        ("nvidia_a100-sxm4-80gb", 80, 300),
        ("nvidia_h100_80gb_hbm3", 80, 450),
        ("NVIDIA-A100-PCIE-40GB", 40, 32),
        ("nvidia_h100_pcie", 80, 64),
        ("tesla_v100-sxm2-16gb", 16, 150),
        ("tesla_t4", 16, 16),
        ("a100_80", 80, 300),
        ("a100-80g", 80, 300),
        ("nvidia_a100_80gb_pcie_3g.40gb", 40, 12),
        ("gtx_1080", 16, 12),
        ("nvidia_a40_48gb", 48, 12),  # no data sheet
        ("nvidia_gh200_480gb", 16, 12),  # the memory of its processor
        ("a100_1g.5gb", 5, 12),
        ("nvidia_a10g", 16, 12),  # the name of a type, and no 10 GB
        ("NVlink_A100_40GB", 40, 300),
        ("nvidia_h100_pcie_1g.20gb", 20, 12),
        ("tesla_v100-sxm3-32gb", 32, 150),
    ],
)
def test_types_mean_data_sheets_by_their_words(spelling: str, memory: int, fabric: int) -> None:
    (server,) = FORMATS["sinfo"](f"NODELIST|GRES\nn|gpu:{spelling}:4\n", "f").servers
    assert (server.gpu_type, server.gpu_memory, server.fabric_bandwidth) == (spelling.lower(), memory * GB, fabric * GB)


@pytest.mark.parametrize("model", ["model_a100", "model_nvidia_a100-sxm4-80gb"])
def test_models_of_a_type_in_another_spelling(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, made = tmp_path / "n.txt", tmp_path / "i.json"
    lines = (DATA / "cases" / "field" / "sinfo_long.txt").read_text().splitlines(keepends=True)
    nodes.write_text("".join(line for line in lines if "v100" not in line))
    profile = f"big={DATA / 'cases' / 'field' / model}.json"
    of_nodes = ["new", "--cluster", f"sinfo:{nodes}"]
    assert main([*of_nodes, "--profile", profile, "--job", "a:big:2:3", "-o", str(made)]) == 0
    assert load_instance(made).cluster.servers[0].gpu_memory == 80 * GB
    told = "assumed: model big: its times on a100 for nvidia_a100-sxm4-80gb" in capsys.readouterr().err
    assert told == (model == "model_a100")
    assert main([*of_nodes, "--job", "a:resnet50:2:3", "-o", str(tmp_path / "e.json")]) == 0


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
