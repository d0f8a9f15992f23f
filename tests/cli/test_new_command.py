"""`jigsaw new`: words, tables and profiles become an instance; problems are told at once."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_model, load_instance
from jigsaw_opt.instances import profile
from tests.refusals import ends


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_words_and_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured, output = tmp_path / "net.json", tmp_path / "mine.json"
    measured.write_bytes(encode_model(profile("vgg16", 4, ["v100"], 3)))
    words = ["--job", "a:resnet50:4:10", "--job", "b:net:2:5", "--profile", f"net={measured}", "-o", str(output)]
    assert main(["new", *words, "--json"]) == 0
    assumed = {one["what"] for one in json.loads(capsys.readouterr().out)["assumed"]}
    assert {"topology", "model resnet50", "objective"} <= assumed
    instance = load_instance(output)
    assert (instance.name, sorted(instance.models)) == ("mine", ["net", "resnet50-b64-estimate"])


def test_a_table_of_durations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, output = tmp_path / "jobs.csv", tmp_path / "mine.json"
    table.write_text("id,user,num_gpu,time,run\nx,me,4,0,60\n")
    columns = "name=id,gpus=num_gpu,submit_s=time,duration_s=run"
    words = ["--jobs", str(table), "--columns", columns, "--model", "bert_large", "-o", str(output)]
    assert main(["new", *words]) == 0
    assert "assumed: job x: " in capsys.readouterr().err
    (job,) = load_instance(output).data_parallel
    assert (job.name, job.model, job.workers) == ("x", "bert_large-b16-estimate", 4)
    ends(f"3: unknown-format {output}", "new", "--jobs", output, "-o", tmp_path / "other.json")
    assert main(["new", "--jobs", "day", "-o", str(output)]) == 0
    assert len(load_instance(output).data_parallel) == 60


def test_jobs_wider_than_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, output = tmp_path / "jobs.csv", tmp_path / "mine.json"
    table.write_text("name,submit_s,gpus,min_gpus,duration_s\na,0,8,8,60\nb,0,16,4,60\n")
    words = ["new", "--jobs", str(table), "--cluster", "1x8:v100", "-o", str(output)]
    ends(f"3: unsupported {table}:3", *words)
    told = capsys.readouterr().err
    assert all(each in told for each in ("'b'", "16 GPUs", " 8", "--too-wide skip"))
    assert not output.exists()
    assert main([*words, "--too-wide", "skip"]) == 0
    assert f"{table}: 1 of 2 jobs" in capsys.readouterr().err
    assert [job.name for job in load_instance(output).data_parallel] == ["a"]
    table.write_text("name,submit_s,gpus,duration_s\nb,0,16,60\n")
    ends("3: empty --jobs", *words, "--too-wide", "skip")
    assert "1 of 1 jobs" in capsys.readouterr().err
    ends("3: malformed cluster", "new", "--jobs", table, "--cluster", "8", "-o", output)


def test_deadlines(tmp_path: Path) -> None:
    words = ["new", "--job", "a:vgg16:2:3", "--job", "b:vgg16:1:3", "-o", str(tmp_path / "mine.json")]
    assert main([*words, "--deadline", "b=2h"]) == 0
    deadlines = {job.name: job.deadline_us for job in load_instance(tmp_path / "mine.json").data_parallel}
    assert deadlines == {"a": None, "b": 7_200_000_000}
    assert main([*words, "--job", "c:vgg16:1:1.5ms", "--deadline", "b=600ms", "--deadline", "50us"]) == 0
    jobs = load_instance(tmp_path / "mine.json").data_parallel
    assert [job.deadline_us for job in jobs] == [50, 600_000, 50] and jobs[2].iterations == 1
    ends("3: malformed --deadline", *words, "--deadline", "b=soon")


def test_questions_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("1x2:a100\na:vgg16:2:3\n\n"))
    assert main(["new"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["cluster"]["servers"][0]["gpu_type"] == "a100"
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["new"]) == 2
    assert "resnet50, vgg16, bert_large, gpt2_small, gpt2_medium" in streams.err


def test_everything_that_is_wrong_with_words_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, output = tmp_path / "net.json", tmp_path / "mine.json"
    broken.write_text("[]")
    words = ["--job", "a", "--jobs", str(tmp_path / "none.csv"), "--profile", "x", "--profile", f"n={broken}"]
    refusals = f"malformed --job; unreadable {tmp_path / 'none.csv'}; malformed --profile; not-json {broken}"
    ends(f"3: {refusals}", "new", *words, "-o", output)
    ends("3: unknown-name model resnet5", "new", "--job", "a:resnet5:1:1", "-o", output)
    assert "'resnet50'" in capsys.readouterr().err
    assert not output.exists()


def test_a_second_deadline_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = [each for word in ("a=1h", "2h", "a=3h", "4h") for each in ("--deadline", word)]
    ends("3: duplicate-name --deadline; duplicate-name --deadline", "new", "--job", "a:resnet50:4:1", *words)
    lines = capsys.readouterr().err.splitlines()[-2:]
    assert "'a=3h'" in lines[0] and "'4h'" in lines[1]
    # One of a job that is misread is not blamed.
    misread = "--job a:resnet50:4 --deadline a=1h --deadline b=soon"
    ends("3: malformed --job; malformed --deadline", "new", *misread.split())
