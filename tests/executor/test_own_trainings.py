"""Plans that drive trainings of the user's own: results, checkpoints and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import own_trainings
import pytest
import torch
from replayed import instance, run, written

from jigsaw_opt.documents import decode_instance, encode_instance, load_replay
from jigsaw_opt.errors import PluginError
from jigsaw_opt.executor.own_worker import OwnWorker
from jigsaw_opt.executor.randomness import generator_states, set_generators
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.measured.replay import Replay
from tests.processes import alive, wait_for
from tests.refusals import ends, misuse, refuses

CUTS = {
    "noisy": ["layers.1", "head"],
    "seeded": ["head", "layers.1"],
    "wholesome": ["head"],
}


def owned(*names: str, workers: int = 2, depth: str = "staircase", **arguments: Any) -> Instance:
    """Two hosts, and a job of each training."""
    models = {}
    for name in names:
        cuts = CUTS.get(name, CUTS["noisy"])
        parts = [
            {"name": f"part{k}", "forward_us": {"box": 300}, "backward_us": {"box": 500}, "parameter_bytes": 4096}
            | {"activation_bytes": 4096}
            for k in range(len(cuts) + 1)
        ]
        entry = {"train": f"own_trainings:{name}", "arguments": arguments, "cuts": cuts}
        models[name] = {"segments": parts, "executor": entry}
    job = {"workers": workers, "iterations": 2, "depth": {"rule": depth}}
    jobs = [{"name": f"job{k}", "model": name, **job} for k, name in enumerate(names)]
    return instance(models=models, jobs=jobs)


def trust(problem: Instance) -> list[str]:
    return [part for model in problem.models.values() for part in ("--trust", model.executor["train"])]


def carried_out(folder: Path, problem: Instance, *options: object) -> Replay:
    source, plan = written(folder, problem)
    output = folder / "replay.json"
    assert run("run", source, plan, *trust(problem), "-o", output, *options) == 0
    return load_replay(output)


def digests(replay: Replay) -> list[Any]:
    return [job.parameters_sha256 for job in replay.timeline.jobs]


def test_a_run_that_goes_on_equals_one_that_never_ended(tmp_path: Path) -> None:
    problem = owned("noisy", "seeded", "wholesome")
    whole = carried_out(tmp_path, problem, "--iterations", 4)
    saved = tmp_path / "saved"
    options = ("--checkpoint", saved, "--checkpoint-every", 1)
    first = carried_out(tmp_path, problem, "--iterations", 1, *options)
    later = carried_out(tmp_path, problem, "--iterations", 4, *options, "--resume")
    assert digests(later) == digests(whole) != digests(first)
    assert all(len(set(own)) == 1 for own in digests(whole))  # but for what each has for itself, its statistics

    state = torch.load(saved / "job0-worker1-iteration8.pt", weights_only=True)
    plain = own_trainings.Noisy()
    plain.load_state_dict(state["model"])
    assert state["schedule"]["last_epoch"] == 8 and state["loader"]["passes"] == 2


def test_the_others_end_when_one_process_is_killed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    problem = owned("killed", folder=str(tmp_path), processes=2)
    source, plan = written(tmp_path, problem)
    assert run("run", source, plan, *trust(problem), "--iterations", 9, "--warm-up", 0) == 1
    printed = capfd.readouterr().err
    assert printed.count("error") == 1 and "SIGKILL" in printed and "Traceback" not in printed
    numbers = [int(path.name.removeprefix("process")) for path in tmp_path.glob("process*")]
    assert len(numbers) >= 6
    wait_for(lambda: not any(map(alive, numbers)))


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("nothing", "missing-field model; missing-field optimiser; missing-field loader; missing-field loss"),
        ("misspelt", "unknown-field optimzer; missing-field optimiser"),
        ("model", "wrong-type model"),
        ("optimiser", "mismatch optimizer"),
        ("loader", "unsupported loader"),
        ("loss", "wrong-type loss"),
        ("schedule", "wrong-type schedule"),
        ("clip_grad_norm", "wrong-type clip_grad_norm"),
        ("empty", "empty loader"),
    ],
)
def test_what_is_no_training_is_refused(field: str, told: str) -> None:
    with misuse(told):
        alone("wrong", CUTS["noisy"], field=field)


def test_cuts_and_arguments_that_are_none_and_errors_of_the_function_are_told() -> None:
    for cut in ("layer.1", "layers"):
        with misuse("unknown-name cuts"):
            alone("noisy", [cut])
    with refuses("failed $.arguments"):
        alone("seeded", CUTS["seeded"], depth=3)
    with pytest.raises(PluginError, match=r"ZeroDivisionError: .* \(.*own_trainings\.py:\d+\)$"):
        alone("raising", [])


def test_an_error_of_the_loader_is_told_with_job_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = owned("late")
    source, plan = written(tmp_path, problem)
    assert run("run", source, plan, *trust(problem), "--iterations", 3) == 1
    assert re.search(r"job job0, worker \d, iteration 1: .*in the middle \(.*own_trainings.py", capsys.readouterr().err)


def test_code_that_nobody_trusts_is_not_imported(tmp_path: Path) -> None:
    ends("3: not-allowed $.models.noisy.executor.train", "run", *written(tmp_path, owned("noisy")))


def test_a_document_has_a_cut_between_each_two_levels() -> None:
    document = json.loads(encode_instance(owned("noisy")))
    assert encode_instance(decode_instance(json.dumps(document))) == encode_instance(owned("noisy"))
    entry = document["models"]["noisy"]["executor"]
    place = "$.models.noisy.executor"
    for cuts, told in ((["head"], f"wrong-count {place}.cuts"), (["head", "head"], f"duplicate-name {place}.cuts[1]")):
        entry["cuts"] = cuts
        with refuses(told):
            decode_instance(json.dumps(document))
    del entry["cuts"]
    with refuses(f"missing-field {place}; wrong-count {place}.cuts"):
        decode_instance(json.dumps(document))


def alone(name: str, cuts: list[str], **arguments: Any) -> Any:
    entry = {"train": f"own_trainings:{name}", "arguments": arguments, "cuts": cuts}
    return OwnWorker(entry, "$", 0, 1, torch.device("cpu"), None, 0)


def test_settings_of_training_are_for_jobs_of_the_zoo(tmp_path: Path) -> None:
    problem = owned("noisy")
    source, plan = written(tmp_path, problem)
    given = ("--optimiser", "adam", "--learning-rate", 1)
    ends("2: unsupported optimiser; unsupported learning_rate", "run", source, plan, *trust(problem), *given)


def test_jobs_of_both_kinds_share_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zoo = instance()
    problem = replace(zoo, models=zoo.models | owned("seeded").models, jobs=(zoo.jobs[0], *owned("seeded").jobs))
    source, plan = written(tmp_path, problem)
    own = ("--trust", "own_trainings:seeded", "--learning-rate", 0.1, "--iterations", 2)
    assert run("run", source, plan, *own, "--baseline", "gang") == 0
    assert "--learning-rate: " in capsys.readouterr().err


def test_gradients_are_means_over_each_buckets_contributors(tmp_path: Path) -> None:
    problem, saved = owned("seeded"), tmp_path / "saved"
    replay = carried_out(tmp_path, problem, "--iterations", 4, "--checkpoint", saved)
    levels = [[block.level for block in iteration.blocks] for iteration in replay.timeline.jobs[0].iterations]
    assert all(sorted(both) == [2, 3] for both in levels)
    wanted = written_out([both.index(3) for both in levels])
    for rank in range(2):
        found = torch.load(saved / f"job0-worker{rank}-iteration{len(levels)}.pt", weights_only=True)["model"]
        for name, value in wanted[rank].items():
            assert torch.allclose(found[name], value, rtol=0, atol=1e-6), name


def written_out(deepest: list[int]) -> list[dict[str, Any]]:
    """Train both workers in one process: what precedes the first cut by the deepest worker's gradients alone."""
    cpu = torch.device("cpu")
    trainings, streams, batches = [], [], []
    for rank in range(2):
        trainings.append(own_trainings.seeded(rank, 2, cpu))
        streams.append(generator_states(cpu))
        batches.append(passes(trainings[rank].loader))
    for alone in deepest:
        for rank, training in enumerate(trainings):
            set_generators(streams[rank], cpu)
            rows, targets = next(batches[rank])
            training.optimizer.zero_grad()
            training.loss(training.model(rows), targets).backward()
            streams[rank] = generator_states(cpu)
        both = [dict(training.model.named_parameters()) for training in trainings]
        for name in both[0]:
            own = [parameters[name].grad for parameters in both]
            mean = own[alone] if name.startswith(("stem", "layers.0")) else (own[0] + own[1]) / 2
            for parameters in both:
                parameters[name].grad = mean.clone()
        for training in trainings:
            training.optimizer.step()
            training.scheduler.step()
    return [training.model.state_dict() for training in trainings]


def passes(loader: Any) -> Iterator[Any]:
    for number in count():
        loader.sampler.set_epoch(number)
        yield from loader


def test_a_level_may_reach_no_parameter() -> None:
    model = (worker := alone("headless", CUTS["noisy"])).model
    assert list(map(len, model.buckets)) == [0, 8, 6]
    for level, reached in ((1, 0), (2, 8), (3, 14)):
        model.zero_grad()
        assert model.backpropagate(worker.batch(), level) > 0
        assert sum(p.grad is not None for p in model.parameters()) == reached
