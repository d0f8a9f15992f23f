"""Advice on a dump of Slurm from a cluster of two types of GPU, against a program that shares no code with it."""

from __future__ import annotations

import json
import random
import re
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from statistics import fmean, median

import pytest

from jigsaw_opt.cli import main

NODES = "NODELIST|GRES\nn1|gpu:a100:8(S:0-1)\nn2|gpu:v100:4\nn3|gpu:v100:4\nlogin|(null)\n"


def dump(seed: int) -> str:
    """Jobs of one to eight GPUs; most name their type, and the others ran on either."""
    draw, first = random.Random(seed), datetime(2026, 3, 2, 8)
    lines, now = ["JobID|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|User"], 0
    for k in range(60):
        now += draw.randrange(200, 2000)
        kind, gpus = draw.choice(("a100", "v100")), draw.choice((1, 1, 2, 4, 8))
        asked = f"cpu=8,gres/gpu={gpus}" + (f",gres/gpu:{kind}={gpus}" if draw.random() < 0.7 else "")
        start, length = now + draw.randrange(1800), draw.randrange(300, 7200)
        times = "|".join((first + timedelta(seconds=s)).isoformat() for s in (now, start, start + length))
        elapsed = f"{length // 3600:02}:{length // 60 % 60:02}:{length % 60:02}"
        lines.append(f"{k}|COMPLETED|{times}|{elapsed}|cpu=8,gres/gpu={gpus},gres/gpu:{kind}={gpus}|{asked}|u{k % 5}")
    return "\n".join(lines) + "\n"


def three_figures(sacct: str) -> tuple[float, float, float]:
    """Mean and median wait of the record, and the mean wait under FIFO by type, in hours."""
    speed, free = {"a100": Fraction(1), "v100": Fraction("0.43")}, {"a100": 8, "v100": 8}
    jobs = []
    for line in sacct.splitlines()[1:]:
        _, _, submit, start, end, _, got, asked, _ = line.split("|")
        times = [datetime.fromisoformat(text).timestamp() for text in (submit, start, end)]
        (ran_on,) = (name for name in speed if f"gpu:{name}=" in got)
        may = [name for name in speed if f"gpu:{name}=" in asked] or list(speed)
        jobs.append((*times, int(asked.split("gres/gpu=")[1].split(",")[0]), ran_on, may))
    waits = [start - submit for submit, start, *_ in jobs]
    starts: dict[int, Fraction] = {}
    running: list[tuple[Fraction, str, int]] = []
    queue: list[int] = []
    coming = [(Fraction(job[0]), k) for k, job in enumerate(jobs)]
    while coming or running:
        now = min([each[0] for each in coming[:1]] + [each[0] for each in running])
        for one in [each for each in running if each[0] == now]:
            running.remove(one)
            free[one[1]] += one[2]
        while coming and coming[0][0] == now:
            queue.append(coming.pop(0)[1])
        held: set[str] = set()
        for k in list(queue):
            submit, start, end, gpus, ran_on, may = jobs[k]
            chosen = next((name for name in may if name not in held and free[name] >= gpus), None)
            if chosen is None:
                held.update(may)
                continue
            queue.remove(k)
            free[chosen] -= gpus
            starts[k] = now
            running.append((now + Fraction(end - start) * speed[ran_on] / speed[chosen], chosen, gpus))
    simulated = [float(starts[k]) - job[0] for k, job in enumerate(jobs)]
    return fmean(waits) / 3600, median(waits) / 3600, fmean(simulated) / 3600


@pytest.mark.parametrize("seed", [1, 2])
def test_the_first_three_figures_are_those_of_another_program(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sacct, nodes = tmp_path / "sacct.txt", tmp_path / "nodes.txt"
    sacct.write_text(dump(seed))
    nodes.write_text(NODES)
    words = ["advise", f"slurm:{sacct}", "--cluster", f"sinfo:{nodes}", "--policy", "fifo", "srtf", "--seeds", "0"]
    words += ["--round", "0", "--restart", "0", "--speeds", "a100=1,v100=0.43", "-o", str(tmp_path / "out"), "-q"]
    assert main([*words, "--json"]) == 0
    out = capsys.readouterr()
    told = json.loads(out.out)
    mean, middle, fifo = three_figures(sacct.read_text())
    figures = re.findall(r"fifo|[\d.]+ h\b", told["calibration"])
    assert figures[:4] == [f"{mean:.4g} h", f"{middle:.4g} h", "fifo", f"{fifo:.4g} h"]
    assert told["today"] == "recorded" and fifo > 0
    assert "no type of GPU" in out.err
    speeds = told["assumed"]["speeds of GPUs"]
    assert speeds.startswith("a100 1, v100 0.43 ") and "60 jobs" in speeds
