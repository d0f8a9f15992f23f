"""One method on one instance, in a process of its own so that a crash, its memory and its libraries stay with it.

``python run_one.py METHOD INSTANCE FOLDER`` writes ``found.json``, and with a plan ``plan.json``, into the folder.
Engines are imported and the instance is read before the clock starts; building the model counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from attempt import Attempt
from methods import METHODS

from jigsaw_opt.documents import encode_plan, instance_sha256, load_instance
from jigsaw_opt.problem import Plan, compile_instance


def stated_plan(attempt: Attempt, method: str) -> Plan | None:
    """The plan as the method states it: its own objective, and its bound where it proves one."""
    if attempt.best is None or attempt.objective is None:
        return None
    instance, solver = attempt.operations.instance, {"name": method, "seconds": attempt.elapsed, "seed": attempt.seed}
    period, jobs, bound = attempt.best.period_us, attempt.best.plans_of(instance), attempt.bound or 0
    digest = instance_sha256(instance)
    return Plan.of_jobs(instance.name, digest, "feasible", attempt.objective, bound, period, jobs, solver)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("instance", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-limit", type=float, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    method, instance = METHODS[asked.method], load_instance(asked.instance)
    method.warm_up()
    attempt = Attempt(compile_instance(instance), asked.time_limit, asked.threads, asked.seed)
    method.run(attempt)
    found = {
        "objective": attempt.objective,
        "bound": attempt.bound,
        "seconds": attempt.elapsed,
        "trajectory": attempt.trajectory,
        "note": attempt.note,
    }
    plan = stated_plan(attempt, asked.method)
    if plan is not None:
        (asked.folder / "plan.json").write_bytes(encode_plan(plan))
    (asked.folder / "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
