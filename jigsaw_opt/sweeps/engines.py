"""What runs the tasks of a sweep, by name."""

from __future__ import annotations

from typing import Literal

from jigsaw_opt.errors import argument, missing_option, not_together
from jigsaw_opt.sweeps.task import SweepEngine


def sweep_engine(
    name: Literal["local", "ray"] = "local", *, jobs: int | None = None, address: str | None = None, cores: int = 1
) -> SweepEngine:
    """Return processes of this machine or a Ray cluster, or refuse what is for the other one.

    `jobs`: how many tasks run at once on this machine; None for 1. `address, cores`: of the cluster, and the cores that
    a task reserves there.
    """
    there = ray_address(name, address)
    if there is None:
        from jigsaw_opt.sweeps.engine_local import LocalEngine

        return LocalEngine(1 if jobs is None else jobs)
    from jigsaw_opt.sweeps.engine_ray import RayEngine

    if jobs is not None:
        told = f"{argument('jobs')} is for {argument('engine', 'local')}; a Ray cluster runs as many solves as it has"
        raise not_together(argument("jobs"), f"{told} cores for")
    return RayEngine(there, cores)


def ray_address(name: Literal["local", "ray"], address: str | None) -> str | None:
    """Return the address of a Ray cluster, or None for processes of this machine; refuse one that is wanting or idle.

    `name`: name of the engine.
    """
    if name == "local" and address is not None:
        raise not_together(argument("address"), f"{argument('address')} is for {argument('engine', 'ray')}")
    if name == "ray" and address is None:
        told = f"{argument('engine', 'ray')} needs the {argument('address')} of a cluster, as in 10.0.0.1:6379, or auto"
        raise missing_option(argument("address"), told)
    return address
