"""The client beside a real `slurmctld`: it is killed, a node fails, and the controller starts anew."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from beside_slurm import HEADS, Trial
from slurm_order import SleepJob
from throwaway_slurm import missing_programs

from jigsaw_opt.serving.slurm.client import DEFAULT_POLICY

MISSING = missing_programs()


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"no {MISSING} here: apt-get install slurmctld slurmd slurm-client")
def test_no_job_is_lost_or_started_twice(tmp_path: Path) -> None:
    # Slurm has a job whose node failed wait for two minutes.
    given = Namespace(seconds=30, kills=5, node_down=True, restart=True, patience=300)
    jobs = [SleepJob(f"j{k}", k // 3, 8 if k % 5 == 4 else 1 + k % 4, 6 + k % 5, 10) for k in range(15)]
    told = dict(zip(HEADS, Trial(tmp_path, given, DEFAULT_POLICY).run(jobs), strict=True))
    counts = ("ended", "completed once", "late", "lost", "too many", "not as planned", "given back", "clients killed")
    assert [told[name] for name in counts] == [15, 15, 0, 0, 0, 0, 0, 5]
    assert isinstance(told["starts"], int)
    assert told["starts"] > 15  # a job ran on the node that failed
