"""Clusters from sinfo, GraphML and nvidia-smi topo -m, and every problem of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.simulation.inputs.cluster_files import FORMATS, cluster_in_words, read_gpu_topology
from tests.refusals import misuse

DATA = Path(__file__).parents[1] / "data"
GB = 10**9


def problems(name: str, text: str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        FORMATS[name](text, "f")
    return [str(problem) for problem in caught.value.problems]


def test_nodes_of_slurm() -> None:
    cluster = cluster_in_words(f"sinfo:{DATA / 'cluster.sinfo.txt'}")
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
        "gpu:a100:no_consume:4": [("a100", 4)],
        "gpu": [("gpu", 1)],
        "gpu:h100": [("h100", 1)],
        "vgpu:4,craynetwork:4,gpu:nvidia_a100_80gb_pcie:2(S:0,3),notgpu:3": [("nvidia_a100_80gb_pcie", 2)],
        "gpu:6000:3(CPU:0-7)": [("6000", 3)],
        "gpu:8(S:0-1)": [("gpu", 8)],
        "gpu:0": [],
    }
    text = "NODELIST|GRES\n" + "".join(f"n{k}|{one}\n" for k, one in enumerate(gres))
    found = [(one.gpu_type, one.gpus) for one in FORMATS["sinfo"](text, "f").servers]
    assert found == [one for servers in gres.values() for one in servers]
    assert problems("sinfo", "NODELIST|GRES\nn|gpu:4\nm|gpu:a100:x\nk|gpu:tesla:v100:4\n") == [
        "f:3: 'gpu:a100:x' is no number of GPUs, as in gpu:a100:8",
        "f:4: 'gpu:tesla:v100:4' is no number of GPUs, as in gpu:a100:8",
    ]


def test_a_node_with_several_types_of_gpu_is_a_server_for_each() -> None:
    text = "NODELIST|GRES\nm|gpu:a100:6(S:0-1),gpu:a100_3g.20gb:4(S:0),mps:400\nn1|gpu:v100:4\nc|(null)\n"
    cluster = FORMATS["sinfo"](text, "f")
    assert [(s.name, s.gpu_type, s.gpus, s.gpu_memory // GB, s.fabric_bandwidth // GB) for s in cluster.servers] == [
        ("m.a100", "a100", 6, 40, 300),
        ("m.a100_3g.20gb", "a100_3g.20gb", 4, 20, 12),
        ("n1", "v100", 4, 32, 150),
    ]
    inside = [(("m.a100", "m-sys"), 10), (("m.a100_3g.20gb", "m-sys"), 10)]
    found = [(link.ends, link.bandwidth / GB) for link in cluster.links]
    assert found == [*inside, (("m-sys", "switch"), 1.25), (("n1", "switch"), 1.25)]


@pytest.mark.parametrize(
    ("spelling", "memory", "fabric"),
    [
        ("nvidia_h100_80gb_hbm3", 80, 450),
        ("NVIDIA-A100-PCIE-40GB", 40, 32),
        ("tesla_v100-sxm2-16gb", 16, 150),
        ("tesla_t4", 16, 16),
        ("a100_80", 80, 300),
        ("a100-80g", 80, 300),
        ("nvidia_a100_80gb_pcie_3g.40gb", 40, 12),
        ("nvidia_a40_48gb", 48, 12),  # no data sheet
        ("nvidia_gh200_480gb", 16, 12),  # the memory of its processor
        ("nvidia_a10g", 16, 12),  # the name of a type, and no 10 GB
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


FILE = Path(__file__).parents[1] / "data" / "topology.nvidia-smi.txt"
# A machine of eight V100: two squares, a link of each GPU to the other square, and no switch for NVLinks.
MESH = """\
        GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  mlx5_0  CPU Affinity
GPU0     X    NV1   NV1   NV2   NV2   SYS   SYS   SYS   PIX     0-19
GPU1    NV1    X    NV2   NV1   SYS   NV2   SYS   SYS   PIX     0-19
GPU2    NV1   NV2    X    NV2   SYS   SYS   NV1   SYS   PHB     0-19
GPU3    NV2   NV1   NV2    X    SYS   SYS   SYS   NV1   PHB     0-19
GPU4    NV2   SYS   SYS   SYS    X    NV1   NV1   NV2   SYS     20-39
GPU5    SYS   NV2   SYS   SYS   NV1    X    NV2   NV1   SYS     20-39
GPU6    SYS   SYS   NV1   SYS   NV1   NV2    X    NV2   SYS     20-39
GPU7    SYS   SYS   SYS   NV1   NV2   NV1   NV2    X    SYS     20-39
mlx5_0  PIX   PIX   PHB   PHB   SYS   SYS   SYS   SYS    X
"""


def wrong_lines(text: str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read_gpu_topology(text, "f")
    return [str(problem) for problem in caught.value.problems]


def test_sockets_are_servers_behind_a_switch() -> None:
    cluster = cluster_in_words(f"nvidia-smi:{FILE}")
    found = [(s.name, s.gpu_type, s.gpus, s.gpu_memory, s.fabric_bandwidth) for s in cluster.servers]
    assert found == [("host0.0", "gpu", 2, 16 * GB, 100 * GB), ("host0.1", "gpu", 2, 16 * GB, 100 * GB)]
    assert cluster.switches == ("host0-sys",)
    assert cluster.links == tuple(Link(f"host0.{k}", (f"host0.{k}", "host0-sys"), 10 * GB) for k in range(2))


def test_options_say_what_the_text_does_not() -> None:
    cluster = cluster_in_words(f"nvidia-smi,machines=3,type=A100,memory=80,net=12.5,SYS=16,NV=20:{FILE}")
    assert {(s.gpu_type, s.gpu_memory, s.fabric_bandwidth) for s in cluster.servers} == {("a100", 80 * GB, 80 * GB)}
    assert cluster.gpu_count == 12
    assert cluster.switches == ("host0-sys", "host1-sys", "host2-sys", "switch")
    assert [link.bandwidth for link in cluster.links] == [16 * GB] * 6 + [12_500_000_000] * 3
    assert cluster.links[-1] == Link("net2", ("host2-sys", "switch"), 12_500_000_000)


def test_a_mesh_is_one_server_whose_fabric_is_its_slowest_needed_connection() -> None:
    cluster = read_gpu_topology(MESH, "f", "machines=2,type=v100")
    assert [(s.name, s.gpus, s.gpu_memory, s.fabric_bandwidth) for s in cluster.servers] == [
        ("host0", 8, 32 * GB, 50 * GB),  # GPU0-3-2-1-5-6-7-4-0 are two NVLinks wide
        ("host1", 8, 32 * GB, 50 * GB),
    ]
    assert [link.ends for link in cluster.links] == [("host0", "switch"), ("host1", "switch")]


@pytest.mark.parametrize(
    ("cell", "servers", "fabric"),
    [
        ("PIX", 1, 12),
        ("PHB", 1, 12),
        ("NODE", 1, 12),
        ("PSB", 1, 12),
        ("NV18", 1, 450),
        ("SYS", 2, 300),
        ("SOC", 2, 300),
    ],
)
def test_two_gpus(cell: str, servers: int, fabric: int) -> None:
    text = f"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{cell}\t0-7\nGPU1\t{cell}\t X \t0-7\n"
    cluster = read_gpu_topology(text, "f", "type=a100")
    assert [s.fabric_bandwidth for s in cluster.servers] == [fabric * GB] * servers
    assert cluster.gpu_count == 2 and len(cluster.links) == (2 if servers == 2 else 0)


@pytest.mark.parametrize(
    ("options", "fabric"),
    [("type=b200", 900), ("type=nvidia_gb200", 900), ("type=h100", 450), ("type=b200,NV=25", 450)],
)
def test_links_of_the_fifth_generation_are_twice_as_fast(options: str, fabric: int) -> None:
    text = (FILE.parent / "cases" / "field" / "topo_gb200.txt").read_text()
    (server,) = read_gpu_topology(text, "f", options).servers
    assert server.fabric_bandwidth == fabric * GB


def test_every_problem_of_the_text() -> None:
    text = (
        "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\tX\tNV2\tFOO\tSYS\t0\nGPU1\tNV2\n"
        "GPU2\tSYS\tSYS\tSYS\tNV0\t0\nGPU2\tX\nGPU9\tX\n"
    )
    assert wrong_lines(text) == [
        "f:5: GPU2 has a row already",
        "f:2: GPU0 to GPU2 is one of NV#, PIX, PXB, PHB, NODE, SYS, not 'FOO'",
        "f:3: GPU1 has cells for 1 of 4 GPUs",
        "f:4: GPU2 to GPU2 is X, not 'SYS'",
        "f:4: GPU2 to GPU3 is one of NV#, PIX, PXB, PHB, NODE, SYS, not 'NV0'",
        "f: GPU3 has no row",
        "f:6: GPU9 has 0 columns",
    ]
    assert wrong_lines("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tSYS\tX\n") == [
        "f:3: GPU1 to GPU0 is SYS, and the other way PIX"
    ]
    assert wrong_lines("nothing\n") == ["f: has no line that begins with GPU0, as nvidia-smi topo -m prints it"]


@pytest.mark.parametrize("word", ["SYS=0", "SYS=-1", "SYS", "size=3", "machines=0", "machines=1.5", "memory=x", ""])
def test_every_option_that_is_wrong(word: str) -> None:
    code = "out-of-range" if word.startswith(("SYS=", "machines", "memory")) else "unknown-option"
    with misuse(f"{code} cluster", "unknown-option cluster", naming=[f"'{word}'", "machines=N", "'a=b'"]):
        cluster_in_words(f"nvidia-smi,{word},a=b:{FILE}")
