"""Documents: there and back, the hash of the specification, and files, whatever they are, up to a limit."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from document_strategies import instances, plans
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from jigsaw_opt.documents import (
    canonical_json,
    decode_instance,
    decode_plan,
    encode_instance,
    encode_plan,
    file_bytes,
    instance_sha256,
    load_document,
    load_instance,
    load_plan,
    save_instance,
    save_plan,
    schema,
    write_atomically,
)
from jigsaw_opt.documents.file_bytes import read_file, unpacked
from jigsaw_opt.documents.readers import lines
from jigsaw_opt.documents.readers.chakra.trace import decode_trace
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.problem import Block, Instance, Iteration, JobPlan, Plan
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from tests.refusals import carries, misuse, refuses
from tests.work import lines_executed

INSTANCE_SCHEMA = Draft202012Validator(schema("instance"))
PLAN_SCHEMA = Draft202012Validator(schema("plan"))


@settings(max_examples=60)
@given(instances())
def test_an_instance_survives_encoding(instance: Instance) -> None:
    data = encode_instance(instance)
    again = decode_instance(data)
    assert again == instance
    assert encode_instance(again) == data
    assert instance_sha256(again) == instance_sha256(instance)
    assert decode_instance(canonical_json(instance)) == instance
    INSTANCE_SCHEMA.validate(json.loads(data))


@settings(max_examples=60)
@given(plans)
def test_a_plan_survives_encoding(plan: Plan) -> None:
    data = encode_plan(plan)
    again = decode_plan(data)
    assert again == plan
    assert encode_plan(again) == data
    PLAN_SCHEMA.validate(json.loads(data))


def test_hash_of_the_example(pair: Instance, pair_plan: Plan) -> None:
    assert instance_sha256(pair) == "16e274bf27a19941942e1d780805286f0fb8fad60231af9c0d49eb7350757be4"
    assert pair_plan.instance_sha256 == instance_sha256(pair)


def test_defaults_do_not_change_the_hash(pair: Instance) -> None:
    tree = json.loads(encode_instance(pair))
    spare = json.loads(encode_instance(pair))
    del spare["cluster"]["switches"], spare["cluster"]["links"], spare["horizon"], spare["jobs"][1]["depth"]
    del spare["models"]["net"]["levels"], spare["models"]["net"]["state_factor"], spare["jobs"][0]["weight"]
    del spare["jobs"][0]["release_us"], spare["cluster"]["servers"][0]["fabric_latency_us"]
    assert spare != tree
    assert instance_sha256(decode_instance(json.dumps(spare))) == instance_sha256(pair)


@pytest.mark.parametrize(
    ("changes", "before", "stated"),
    [
        ({"deadline_us": 9}, b'{"depth":', b'{"deadline_us":9,"depth":'),
        ({"restart_us": 0}, b'"weight":', b'"restart_us":0,"weight":'),
        ({"route_policy": "p"}, b'"weight":', b'"route_policy":"p","weight":'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_job_need_not_state_is_in_the_canonical_form_only_if_given(
    changes: dict[str, Any], before: bytes, stated: bytes, pair: Instance
) -> None:
    via = ((pair.cluster.servers[0].name,),)
    policies = {"p": RoutePolicy(avoid=(), via=via), "o": RoutePolicy()} if "route_policy" in changes else None
    plain = replace(pair, cluster=replace(pair.cluster, route_policies=policies))
    assert next(iter(changes)).encode() + b'"' not in canonical_json(plain)
    changed = replace(plain, jobs=(replace(plain.jobs[0], **changes), *plain.jobs[1:]))
    assert canonical_json(changed) == canonical_json(plain).replace(before, stated, 1)
    assert decode_instance(encode_instance(changed)) == changed == replace(changed)
    as_given = b'"route_policies":{"o":{},"p":{"avoid":[],"via":[["s0"]]}}'
    assert (as_given in canonical_json(changed)) == (policies is not None)


def test_canonical_form_letter_by_letter(pair: Instance) -> None:
    tree = json.loads(encode_instance(pair))
    tree["name"] = 'é"\\\n\x01\x7f\u2028𝄞'
    tree["jobs"][0]["depth"] = {"rule": "free", "mean_depth": "03/5"}
    tree["jobs"][1]["depth"] = {"rule": "free", "mean_depth": 1, "balance": 0, "min_contributors": 2}
    canonical = canonical_json(decode_instance(json.dumps(tree)))
    depths = [
        '{"min_contributors":1,"mean_depth":"03/5","rule":"free"}',
        '{"balance":0,"mean_depth":1,"min_contributors":2,"rule":"free"}',
    ]
    expected = (
        '{"cluster":{"links":[],"servers":[{"fabric_bandwidth":10000000000,"fabric_latency_us":0,'
        '"gpu_memory":16000000000,"gpu_type":"v100","gpus":2,"name":"s0"}],"switches":[]},'
        '"format":"jigsaw-instance/1","horizon":"finite","jobs":['
        '{"depth":{"mean_depth":"03/5","min_contributors":1,"rule":"free"},"iterations":1,"model":"net","name":"a",'
        f'"release_us":0,"weight":1,"workers":2}},{{"depth":{depths[1]},"iterations":1,"model":"net","name":"b",'
        '"release_us":0,"weight":1,"workers":1}],"models":{"net":{"levels":[1,2],"segments":['
        '{"activation_bytes":40000000,"backward_us":{"v100":600},"forward_us":{"v100":300},"name":"body",'
        '"parameter_bytes":1000000},{"activation_bytes":1000000,"backward_us":{"v100":200},'
        '"forward_us":{"v100":100},"name":"head","parameter_bytes":4000000}],"state_factor":4}},'
        '"name":"é\\"\\\\\\n\\u0001\x7f\u2028𝄞","objective":"makespan"}'
    ).encode()
    assert canonical == expected
    assert instance_sha256(decode_instance(json.dumps(tree))) == hashlib.sha256(expected).hexdigest()


def test_work_is_linear_in_the_size_of_documents(pair: Instance) -> None:
    iteration = Iteration(tuple(Block(1, k, k + 1) for k in range(100)), ())

    def there_and_back(count: int) -> None:
        instance = replace(pair, jobs=tuple(replace(pair.jobs[0], name=f"job-{k}") for k in range(10 * count)))
        assert decode_instance(encode_instance(instance)) == instance
        jobs = tuple(JobPlan(str(k), (), (iteration,)) for k in range(count))
        plan = Plan.of_jobs("pair", "", "feasible", 1, 1, None, jobs)
        assert decode_plan(encode_plan(plan)) == plan

    assert lines_executed(lambda: there_and_back(60)) < 2.2 * lines_executed(lambda: there_and_back(30))


def test_what_is_saved_is_loaded(tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    save_instance(pair, tmp_path / "i.json")
    save_plan(pair_plan, tmp_path / "p.json")
    assert load_instance(tmp_path / "i.json") == load_document(tmp_path / "i.json") == pair
    assert load_plan(str(tmp_path / "p.json")) == load_document(tmp_path / "p.json") == pair_plan


def test_what_gzip_has_compressed_is_loaded(tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    path = tmp_path / "it.json.gz"
    path.write_bytes(gzip.compress(encode_plan(pair_plan)))
    assert load_plan(path) == load_document(path) == pair_plan
    save_plan(pair_plan, path)
    assert gzip.decompress(path.read_bytes()) == encode_plan(pair_plan)
    path.write_bytes(gzip.compress(encode_instance(pair)))
    assert load_instance(path) == pair
    path.write_bytes(path.read_bytes()[:-20])
    for load in (load_instance, load_plan, load_document):
        with refuses(f"unreadable {path}"):
            load(path)


def test_a_broken_plan_is_judged_as_a_plan(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"format" : "jigsaw-plan/1"}')
    with refuses(*["missing-field $"] * 8, naming=['"bound"']):
        load_document(tmp_path / "p.json")


@pytest.mark.parametrize("name", ["missing.json", ".", "null\0character"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    for load in (load_instance, load_plan, load_document):
        with refuses(f"unreadable {path}"):
            load(path)
    with refuses("unreadable ."):
        load_plan("")


def test_writing_replaces_and_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    fresh = tmp_path / "fresh"
    fresh.touch()
    assert path.stat().st_mode == fresh.stat().st_mode
    path.chmod(0o640)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "fresh"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail) if step == "fsync" else monkeypatch.setattr(Path, "replace", fail)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else JigsawError
    with pytest.raises(expected) as caught:
        write_atomically(path, b"new")
    assert isinstance(error, KeyboardInterrupt) or carries(str(caught.value), "space", "left")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_places_that_cannot_be_written(tmp_path: Path, pair: Instance) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    for path in (tmp_path / "folder", tmp_path / "file" / "x", tmp_path / "a\0b"):
        with misuse(f"unwritable {path}"):
            save_instance(pair, path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def refusal(path: Path | str, most: int = 1000) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read_file(path, most)
    (problem,) = caught.value.problems
    assert problem.path == str(path)
    return problem.message


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert read_file(path, 1000) == b"x" * 1000
    assert carries(refusal(path, 999), "1000 bytes", "999")


def test_a_large_file_is_not_read_to_be_refused(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**32)
    for load in (load_instance, load_plan):
        with refuses(f"too-large {path}", naming=[str(2**32), str(2**31)]):
            load(path)


def test_what_has_no_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert carries(refusal("/dev/zero"), "more than 1000", "1000")
    monkeypatch.setattr(file_bytes, "_MOST_STREAMED", 10**6)
    with refuses("too-large /dev/zero"):
        load_instance("/dev/zero")


def test_a_pipe_that_ends_is_read(tmp_path: Path, pair_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(pair_path.read_bytes(),))
    writer.start()
    assert load_instance(pipe) == load_instance(pair_path)
    writer.join()


HEAD = "name,submit_s,model,gpus\n"


@pytest.mark.parametrize(
    ("text", "listed", "last"),
    [
        ("\n" * 1_000_001, 1, "248738 lines"),
        ("," * 100_001, 1, "100001 characters"),
        (HEAD + "1,2\n" * 100_000, 1001, "1000 problems"),
        (HEAD + "x,,,\n" * 100_000, 1001, "1000 problems"),
        (HEAD + ",,,\n" * 100_000, 1, "over: 100,000"),
        (",".join(f"c{k}" for k in range(15_000)), 1001, "1000 problems"),
    ],
    ids=["lines", "characters", "short lines", "wrong lines", "empty lines", "columns"],
)
def test_traces_without_an_end(text: str, listed: int, last: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_trace("csv", text, "f")
    assert len(caught.value.problems) == listed
    assert last in str(caught.value.problems[-1])


def test_a_trace_may_end_its_last_line_and_no_line_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MOST_LINES", 3)
    assert [text for _, text in lines.Lines("a\nb\nc\n", "f", 3)] == ["a", "b", "c"]
    with refuses("too-large f:4"):
        list(lines.Lines("a\nb\nc\nd", "f", 3))


def test_lines_are_as_many_as_memory_for_their_text_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MEMORY_FOR_ANY", 0)
    assert len(list(lines.Lines(b"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r\n" * 1000, "f"))) == 1000
    with refuses("too-large f:323"):
        list(lines.Lines(b"a,b,c,d,e\n" * 1000, "f"))


def test_a_mark_at_the_head_of_lines_is_no_part_of_them() -> None:
    for data in ("\ufeffa\nb", "\ufeffa\nb".encode()):
        assert list(lines.Lines(data, "file")) == [(1, "a"), (2, "b")]
    marked = "\ufeffa".encode()
    assert (unpacked(marked, "file"), unpacked(marked, "file", is_text=False)) == (b"a", marked)


@pytest.mark.parametrize("form", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_text_of_utf_16_is_read_by_its_mark(form: str) -> None:
    marked = "é\n" if form == "utf-16" else "\ufeffé\n"
    for data in (marked.encode(form), gzip.compress(marked.encode(form))):
        assert unpacked(data, "file") == "é\n".encode()
        assert unpacked(data, "file", is_text=False) == marked.encode(form)
    with pytest.raises(InvalidInputError, match="not UTF-16"):
        unpacked(marked.encode(form)[:-1], "file")
    with pytest.raises(InvalidInputError, match="save it as UTF-8"):
        decode_instance(marked.encode(form))


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (bz2.compress(b"a text"), "bzip2"),
        (lzma.compress(b"a text"), "xz"),
        (b"PK\x03\x04\x14\x00", "ZIP"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "Zstandard"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    ],
)
def test_a_text_that_is_packed_by_another_program_is_refused_by_its_name(data: bytes, form: str) -> None:
    for packed in (data, gzip.compress(data)):
        with pytest.raises(InvalidInputError, match=f"is packed by {form}"):
            unpacked(packed, "file")
        with pytest.raises(InvalidInputError, match=f"is packed by {form}"):
            decode_trace(packed, "file")
