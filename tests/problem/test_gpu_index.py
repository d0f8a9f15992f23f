"""The GPUs of a cluster by number."""

from __future__ import annotations

import pickle

from jigsaw_opt.problem.cluster import Cluster, Server


def test_gpus_are_numbered_server_by_server() -> None:
    cluster = Cluster(tuple(Server(name, "gpu", gpus, 1, 1) for name, gpus in (("a", 2), ("b", 1), ("c", 3))))
    gpus = cluster.gpus
    assert len(gpus) == cluster.gpu_count == 6
    assert gpus.of_server == (range(2), range(2, 3), range(3, 6))
    assert gpus.server_of == (0, 0, 1, 2, 2, 2)
    assert gpus.places == ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2))
    assert gpus.names == tuple(cluster.gpu_name(*place) for place in gpus.places)
    assert all(gpus.place_of[name] == place for name, place in zip(gpus.names, gpus.places, strict=True))
    assert cluster.gpus is gpus


def test_what_is_kept_changes_no_cluster() -> None:
    first, second = (Cluster((Server("a", "gpu", 2, 1, 1),)) for _ in range(2))
    assert first.gpus.names == ("a/0", "a/1")
    assert first == second and hash(first) == hash(second) and repr(first) == repr(second)
    assert pickle.loads(pickle.dumps(first)) == second
    assert len(first.without(servers=["a"]).gpus) == 0
