"""Clusters from nvidia-smi topo -m, and every problem of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.simulation.inputs.cluster_files import cluster_in_words
from jigsaw_opt.simulation.inputs.gpu_topology import read_gpu_topology
from tests.refusals import misuse

FILE = Path(__file__).parents[1] / "data" / "topology.nvidia-smi.txt"
GB = 10**9
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


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read_gpu_topology(text, "f")
    return [str(problem) for problem in caught.value.problems]


def test_sockets_are_servers_behind_a_switch() -> None:
    cluster = cluster_in_words(f"nvidia-smi:{FILE}")
    assert cluster is not None
    found = [(s.name, s.gpu_type, s.gpus, s.gpu_memory, s.fabric_bandwidth) for s in cluster.servers]
    assert found == [("host0.0", "gpu", 2, 16 * GB, 100 * GB), ("host0.1", "gpu", 2, 16 * GB, 100 * GB)]
    assert cluster.switches == ("host0-sys",)
    assert cluster.links == tuple(Link(f"host0.{k}", (f"host0.{k}", "host0-sys"), 10 * GB) for k in range(2))


def test_options_say_what_the_text_does_not() -> None:
    cluster = cluster_in_words(f"nvidia-smi,machines=3,type=A100,memory=80,net=12.5,SYS=16,NV=20:{FILE}")
    assert cluster is not None
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
        ("NV18", 1, 450),
        ("SYS", 2, 300),
        ("SOC", 2, 300),
        ("PSB", 1, 12),
    ],
)
def test_two_gpus(cell: str, servers: int, fabric: int) -> None:
    text = f"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{cell}\t0-7\nGPU1\t{cell}\t X \t0-7\n"
    cluster = read_gpu_topology(text, "f", "type=a100")
    assert [s.fabric_bandwidth for s in cluster.servers] == [fabric * GB] * servers
    assert cluster.gpu_count == 2 and len(cluster.links) == (2 if servers == 2 else 0)


@pytest.mark.parametrize(
    ("name", "servers"),
    [("h100", [("host0", 8, 450 * GB)]), ("pairs", [("host0", 4, 12 * GB)])],
)
def test_matrices_from_the_field(name: str, servers: list[tuple[str, int, int]]) -> None:
    cluster = read_gpu_topology((FILE.parent / "cases" / "topology" / f"{name}.txt").read_bytes(), name)
    assert [(server.name, server.gpus, server.fabric_bandwidth) for server in cluster.servers] == servers


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
    assert problems(text) == [
        "f:5: GPU2 has a row already",
        "f:2: GPU0 to GPU2 is one of NV#, PIX, PXB, PHB, NODE, SYS, not 'FOO'",
        "f:3: GPU1 has cells for 1 of 4 GPUs",
        "f:4: GPU2 to GPU2 is X, not 'SYS'",
        "f:4: GPU2 to GPU3 is one of NV#, PIX, PXB, PHB, NODE, SYS, not 'NV0'",
        "f: GPU3 has no row",
        "f:6: GPU9 has 0 columns",
    ]
    assert problems("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tSYS\tX\n") == ["f:3: GPU1 to GPU0 is SYS, and the other way PIX"]
    assert problems("nothing\n") == ["f: has no line that begins with GPU0, as nvidia-smi topo -m prints it"]


@pytest.mark.parametrize("word", ["SYS=0", "SYS=-1", "SYS", "size=3", "machines=0", "machines=1.5", "memory=x", ""])
def test_every_option_that_is_wrong(word: str) -> None:
    code = "out-of-range" if word.startswith(("SYS=", "machines", "memory")) else "unknown-option"
    with misuse(f"{code} cluster", "unknown-option cluster", naming=[f"'{word}'", "machines=N", "'a=b'"]):
        cluster_in_words(f"nvidia-smi,{word},a=b:{FILE}")


def test_options_that_do_not_go_together() -> None:
    with misuse("out-of-range cluster"):
        cluster_in_words(f"nvidia-smi,machines=1000000:{FILE}")
    with misuse("unknown-option cluster"):
        cluster_in_words("sinfo,type=a100:file")
