"""Every wrong document is refused with all its problems, each at its path, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from jigsaw_opt.documents import decode_instance, decode_plan, parsing, schema
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.rules.schemas import Kind, shipped
from tests.refusals import carries, misuse, refuses

HERE = Path(__file__).parents[1] / "data"
FULL: dict[str, Any] = {
    "format": "jigsaw-instance/1",
    "name": "all",
    "cluster": {
        "servers": [
            {"name": "s0", "gpu_type": "v", "gpus": 1, "gpu_memory": 0, "fabric_bandwidth": 1, "fabric_latency_us": 0},
            {"name": "s1", "gpu_type": "v", "gpus": 1, "gpu_memory": 0, "fabric_bandwidth": 1},
        ],
        "switches": ["t0"],
        "links": [
            {"name": "l0", "ends": ["s0", "t0"], "bandwidth": 1, "latency_us": 0},
            {"name": "l1", "ends": ["t0", "s1"], "bandwidth": 1},
        ],
    },
    "models": {
        "net": {
            "segments": [
                {
                    "name": name,
                    "forward_us": {"v": 1},
                    "backward_us": {"v": 0},
                    "parameter_bytes": 0,
                    "activation_bytes": 0,
                }
                for name in ("body", "head")
            ],
            "levels": [1, 2],
            "state_factor": 4,
            "executor": {"zoo": "mlp", "arguments": {"sizes": [1, {"deep": "er"}]}, "batch_size": 1},
        }
    },
    "jobs": [
        {"name": "a", "model": "net", "workers": 1, "iterations": 1, "release_us": 0, "weight": 1},
        {
            "name": "b",
            "model": "net",
            "workers": 1,
            "iterations": 1,
            "depth": {"rule": "free", "min_contributors": 1, "mean_depth": "1/2", "balance": 0},
        },
    ],
    "horizon": "finite",
    "objective": "makespan",
}
GONE = object()
SEGMENT = ("models", "net", "segments", 0)
EXECUTOR = ("models", "net", "executor")
DEPTH = ("jobs", 1, "depth")
POLICY, POLICY_PATH = ("cluster", "route_policies", "p"), "$.cluster.route_policies.p"
MODEL_PATH, DEPTH_PATH = "$.models.net", "$.jobs[1].depth"

# What to change, the path of the one problem, and a part of its message.
STRUCTURAL = [
    (POLICY, {"via": [["s0"], []]}, f"{POLICY_PATH}.via[1]", "wrong-count"),
    (POLICY, {"via": [["s0"]] * 9}, f"{POLICY_PATH}.via", "wrong-count"),
    (POLICY, {"via": ["s0"]}, f"{POLICY_PATH}.via[0]", "wrong-type"),
    (POLICY, {"max_links": 0}, f"{POLICY_PATH}.max_links", "out-of-range"),
    (POLICY, {"max_links": None}, f"{POLICY_PATH}.max_links", "wrong-type"),
    (POLICY, {"voia": []}, f"{POLICY_PATH}.voia", "unknown-field"),
    (POLICY, 7, POLICY_PATH, "wrong-type"),
    (("format",), "jigsaw-instance/2", "$.format", "unknown-value"),
    (("format",), 1, "$.format", "wrong-type"),
    (("name",), "", "$.name", "malformed"),
    (("name",), "a/b", "$.name", "malformed"),
    (("objective",), GONE, "$", "missing-field"),
    (("objective",), "makspan", "$.objective", "unknown-value"),
    (("horizon",), None, "$.horizon", "wrong-type"),
    (("nmae",), "x", "$.nmae", "unknown-field"),
    (("sp ace",), "x", '$["sp ace"]', "unknown-field"),
    (("jobs",), [], "$.jobs", "wrong-count"),
    (("jobs", 0), 3, "$.jobs[0]", "wrong-type"),
    (("jobs", 0, "workers"), 0, "$.jobs[0].workers", "out-of-range"),
    (("jobs", 0, "workers"), True, "$.jobs[0].workers", "wrong-type"),
    (("jobs", 0, "iterations"), 1.5, "$.jobs[0].iterations", "wrong-type"),
    (("jobs", 0, "release_us"), -1, "$.jobs[0].release_us", "out-of-range"),
    (("jobs", 0, "deadline_us"), 0, "$.jobs[0].deadline_us", "out-of-range"),
    (("jobs", 0, "restart_us"), -1, "$.jobs[0].restart_us", "out-of-range"),
    (("jobs", 0, "release_us"), 2**53, "$.jobs[0].release_us", "out-of-range"),
    (("jobs", 0, "weight"), None, "$.jobs[0].weight", "wrong-type"),
    ((*DEPTH, "rule"), "fre", f"{DEPTH_PATH}.rule", "unknown-value"),
    ((*DEPTH, "rule"), 1, f"{DEPTH_PATH}.rule", "wrong-type"),
    ((*DEPTH, "rule"), GONE, DEPTH_PATH, "missing-field"),
    (DEPTH, "full", DEPTH_PATH, "wrong-type"),
    (DEPTH, {"rule": "full", "balance": 1}, f"{DEPTH_PATH}.balance", "unknown-field"),
    ((*DEPTH, "min_contributors"), 0, f"{DEPTH_PATH}.min_contributors", "out-of-range"),
    ((*DEPTH, "balance"), -1, f"{DEPTH_PATH}.balance", "out-of-range"),
    ((*DEPTH, "mean_depth"), -1, f"{DEPTH_PATH}.mean_depth", "out-of-range"),
    *[
        (
            (*DEPTH, "mean_depth"),
            value,
            f"{DEPTH_PATH}.mean_depth",
            "malformed" if isinstance(value, str) else "wrong-type",
        )
        for value in ("1", "1/0", "1/00", "-1/2", " 1/2", "1/2 ", "1/", "/2", "\u0661/2", "1/" + "9" * 4301, 0.5, None)
    ],
    (("cluster", "servers"), [], "$.cluster.servers", "wrong-count"),
    (("cluster", "servers", 0, "gpus"), 0, "$.cluster.servers[0].gpus", "out-of-range"),
    (("cluster", "servers", 0, "fabric_bandwidth"), 0, "$.cluster.servers[0].fabric_bandwidth", "out-of-range"),
    (("cluster", "switches", 0), 1, "$.cluster.switches[0]", "wrong-type"),
    (("cluster", "links", 0, "bandwidth"), 0, "$.cluster.links[0].bandwidth", "out-of-range"),
    (("cluster", "links", 0, "ends"), ["s0"], "$.cluster.links[0].ends", "wrong-count"),
    ((*SEGMENT, "forward_us", "v"), 0.5, f"{MODEL_PATH}.segments[0].forward_us.v", "wrong-type"),
    ((*SEGMENT, "parameter_bytes"), GONE, f"{MODEL_PATH}.segments[0]", "missing-field"),
    (("models", "net", "segments"), [], f"{MODEL_PATH}.segments", "wrong-count"),
    (("models", "net", "levels"), [], f"{MODEL_PATH}.levels", "wrong-count"),
    (("models", "net", "levels", 0), 0, f"{MODEL_PATH}.levels[0]", "out-of-range"),
    (("models", "net", "state_factor"), 0, f"{MODEL_PATH}.state_factor", "out-of-range"),
    (("models", "a/b"), FULL["models"]["net"], '$.models["a/b"]', "malformed"),
    ((*EXECUTOR, "zoo"), GONE, f"{MODEL_PATH}.executor", "missing-field"),
    ((*EXECUTOR, "batch_size"), 0, f"{MODEL_PATH}.executor.batch_size", "out-of-range"),
    ((*EXECUTOR, "arguments"), [], f"{MODEL_PATH}.executor.arguments", "wrong-type"),
    *[
        ((*EXECUTOR, "arguments", "sizes", 1, "deep"), value, f"{MODEL_PATH}.executor.arguments.sizes[1].deep", code)
        for code, values in {"wrong-type": (0.5, True, None), "out-of-range": (-1, 2**53)}.items()
        for value in values
    ],
]
MEANT = [
    (("jobs", 0, "route_policy"), "p", "$.jobs[0].route_policy", "unknown-name"),
    (POLICY, {"avoid": ["s0", "t1"]}, f"{POLICY_PATH}.avoid[1]", "unknown-name"),
    (POLICY, {"avoid": ["l0"]}, f"{POLICY_PATH}.avoid[0]", "unknown-name"),
    (POLICY, {"avoid_links": ["s0"]}, f"{POLICY_PATH}.avoid_links[0]", "unknown-name"),
    (POLICY, {"via": [["s0"], ["s9", "t0"]]}, f"{POLICY_PATH}.via[1][0]", "unknown-name"),
    (("horizon",), "cyclic", "$.objective", "contradiction"),
    (("objective",), "period", "$.objective", "contradiction"),
    (("jobs", 0, "model"), "nett", "$.jobs[0].model", "unknown-name"),
    (("jobs", 1, "name"), "a", "$.jobs[1].name", "duplicate-name"),
    (
        ("cluster", "servers"),
        [*FULL["cluster"]["servers"], FULL["cluster"]["servers"][0]],
        "$.cluster.servers[2].name",
        "duplicate-name",
    ),
    (("cluster", "switches"), ["t0", "s0"], "$.cluster.switches[1]", "duplicate-name"),
    (("cluster", "links", 1, "name"), "l0", "$.cluster.links[1].name", "duplicate-name"),
    (("cluster", "links", 1, "ends"), ["t0", "s0"], "$.cluster.links[1].ends", "duplicate-name"),
    (("cluster", "links", 1, "ends"), ["s1", "s1"], "$.cluster.links[1].ends", "duplicate-name"),
    (("cluster", "links", 1, "ends", 1), "s", "$.cluster.links[1].ends[1]", "unknown-name"),
    ((*SEGMENT, "name"), "head", f"{MODEL_PATH}.segments[1].name", "duplicate-name"),
    (("models", "net", "levels"), [2, 1, 2], f"{MODEL_PATH}.levels[1]", "wrong-order"),
    (("models", "net", "levels"), [1], f"{MODEL_PATH}.levels", "mismatch"),
]


def changed(path: tuple[str | int, ...], value: object, tree: dict[str, Any] = FULL) -> dict[str, Any]:
    """A copy of `tree` with another value, or none, at `path`."""
    tree = copy.deepcopy(tree)
    if path[:2] == POLICY[:2]:
        tree["cluster"].setdefault("route_policies", {})
    holder: Any = tree
    for key in path[:-1]:
        holder = holder[key]
    if value is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return tree


def problems(data: str | bytes) -> list[Problem]:
    with pytest.raises(InvalidInputError) as caught:
        decode_instance(data)
    return list(caught.value.problems)


def test_the_unchanged_document_is_right() -> None:
    assert decode_instance(json.dumps(FULL)).name == "all"
    Draft202012Validator(schema("instance")).validate(FULL)


@pytest.mark.parametrize(("path", "value", "place", "code"), STRUCTURAL + MEANT)
def test_one_mistake_gives_one_problem(path: tuple[str | int, ...], value: object, place: str, code: str) -> None:
    tree = changed(path, value)
    with refuses(f"{code} {place}"):
        decode_instance(json.dumps(tree))
    if (path, value, place, code) in STRUCTURAL:
        assert not Draft202012Validator(schema("instance")).is_valid(tree)


def test_schemas_are_valid_schemas() -> None:
    for kind in ("instance", "plan", "phased-plan", "replay"):
        Draft202012Validator.check_schema(schema(kind))
    with misuse("unknown-value kind"):
        schema("job")  # type: ignore[arg-type]


def test_all_mistakes_are_reported_at_once() -> None:
    tree = changed(("jobs", 0, "model"), "other")
    tree["jobs"][0]["workers"] = "many"
    tree["jobs"][1]["name"] = "a"
    tree["cluster"]["links"][1]["ends"] = ["s1", "s1"]
    tree["extra"] = 1
    del tree["cluster"]["servers"][0]["gpus"]
    assert sorted(problem.path for problem in problems(json.dumps(tree))) == [
        "$.cluster.links[1].ends",
        "$.cluster.servers[0]",
        "$.extra",
        "$.jobs[0].model",
        "$.jobs[0].workers",
        "$.jobs[1].name",
    ]


@pytest.mark.parametrize("key", ["cluster", "models", "jobs"])
@pytest.mark.parametrize("value", [GONE, None, 1])
def test_a_wrong_part_does_not_make_others_wrong(key: str, value: object) -> None:
    assert len(problems(json.dumps(changed((key,), value)))) == 1


def test_times_of_zero() -> None:
    tree = changed((*SEGMENT, "forward_us"), {"v": 0, "w": 0})
    tree["models"]["net"]["segments"][1]["forward_us"] = {"v": 0, "w": 0}
    # No backward time on "w", so no worker may be placed there, and the sum does not matter.
    found = problems(json.dumps(tree))
    assert [(problem.path, '"v"' in problem.message) for problem in found] == [(f"{MODEL_PATH}.segments", True)]


def test_a_cyclic_instance_has_no_release() -> None:
    tree = changed(("horizon",), "cyclic")
    tree["objective"] = "period"
    assert decode_instance(json.dumps(tree)).horizon == "cyclic"
    tree["jobs"][0]["release_us"] = 7
    assert [problem.path for problem in problems(json.dumps(tree))] == ["$.jobs[0].release_us"]


@pytest.mark.parametrize(
    ("horizon", "wrong", "other"),
    [("finite", "pace_us", "cyclic"), ("cyclic", "deadline_us", "finite"), ("cyclic", "restart_us", "finite")],
)
def test_each_horizon_has_its_own_keys(horizon: str, wrong: str, other: str) -> None:
    tree = changed(("horizon",), horizon)
    tree["objective"] = "period" if horizon == "cyclic" else "makespan"
    tree["jobs"][0].update({"release_us": 0, wrong: 7})
    told = [(problem.path, problem.message) for problem in problems(json.dumps(tree))]
    assert told == [(f"$.jobs[0].{wrong}", f'is for the horizon "{other}"')]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"name": "all"', '"name": "all", "name": "all"', "$.name"),
        ('"forward_us": {"v": 1}', '"forward_us": {"v": 1, "v": 2}', f"{MODEL_PATH}.segments[0].forward_us.v"),
        ('"deep": "er"', '"deep": 1, "d\\u0065ep": 2', f"{MODEL_PATH}.executor.arguments.sizes[1].deep"),
        ('{"net": {', '{"net": 1, "net": {', "$.models.net"),
    ],
)
def test_duplicate_keys(old: str, new: str, place: str) -> None:
    found = problems(json.dumps(FULL).replace(old, new, 1))
    assert [(problem.path, problem.message) for problem in found] == [(place, "duplicate key")]


@pytest.mark.parametrize("number", ["1.0", "1e0", "1E2", "NaN", "Infinity", "-Infinity", "1e999", "0.0"])
def test_numbers_that_json_takes_for_more_than_integers(number: str) -> None:
    found = problems(json.dumps(FULL).replace('"gpus": 1', f'"gpus": {number}', 1))
    assert [problem.path for problem in found] == ["$.cluster.servers[0].gpus"]


@pytest.mark.parametrize("escape", ["\\ud800", "\\uDFFF", "\\ud800x", "\\udc00\\ud800"])
def test_lone_surrogates(escape: str) -> None:
    text = json.dumps(FULL)
    found = problems(text.replace('"zoo": "mlp"', f'"zoo": "{escape}"'))
    assert [problem.path for problem in found] == [f"{MODEL_PATH}.executor.zoo"]
    found = problems(text.replace('"deep"', f'"{escape}"'))
    assert len(found) == 1 and "lone surrogate" in found[0].message
    assert str(found[0]).encode()
    assert decode_instance(text.replace('"zoo": "mlp"', '"zoo": "\\ud834\\udd1e"')).models["net"].executor == {
        **FULL["models"]["net"]["executor"],
        "zoo": "\U0001d11e",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\xff\xfe{\x00", "not UTF-8"),
        ('{"a": "\ud800"}', "lone surrogate"),
        (b"[1]", "JSON object"),
        (b"null", "JSON object"),
        (b'{"a": }', "line 1, column 7"),
        (b'{"a": 1,}', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b"{} {}", "not JSON"),
        (b'{"a": "\x00"}', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "4300 digits"),
        (b'{"a": ' + b"[" * 100_000, "deeply"),
        (b'{"a": ' * 100_000, "deeply"),
        (b"\x00" * 1_000_000, "JSON object"),
        (b"x" * 2_000_000, "JSON object"),
        (b" " * 2_000_000, "empty"),
    ],
    ids=lambda value: None if isinstance(value, str) and len(value) < 40 else "data",
)
def test_what_is_no_document_gives_one_problem(data: bytes | str, message: str) -> None:
    for decode in (decode_instance, decode_plan):
        with pytest.raises(InvalidInputError) as caught:
            decode(data, "file.json")
        assert [problem.path for problem in caught.value.problems] == ["file.json"]
        assert message in str(caught.value)


def test_deep_arguments() -> None:
    deep = json.dumps(FULL).replace('"er"', "[" * 3000 + "]" * 3000)
    assert [problem.message for problem in problems(deep)] == ["nested too deeply"]


def test_looking_stops_after_a_thousand_problems() -> None:
    for count, listed in ((500, 1000), (501, 1001), (10_000, 1001)):
        jobs = [{"name": f"j{k}", "model": "mynet", "workers": 0, "iterations": 1} for k in range(count)]
        found = problems(json.dumps(changed(("jobs",), jobs)))
        assert len({problem.path for problem in found}) == len(found) == listed
    assert (found[-1].code, found[-1].path) == ("too-many-problems", "$.jobs[1000].workers")
    assert {problem.code for problem in found[:-1]} == {"out-of-range"}


def test_long_keys_are_cut_in_paths() -> None:
    (found,) = problems(json.dumps(changed(("models", "a" * 10**6), {"segments": 1})))
    assert len(str(found)) < 300


@pytest.mark.parametrize("unit", ["[],", "{},", "1,", '"ab",', '{"a":1},', '"x":1}, {'])
def test_a_tree_of_far_more_memory_than_its_text_is_not_built(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MEMORY_FOR_ANY", 2**20)
    text = '{"format": "jigsaw-instance/1", "jobs": [' + ("{" if "}, {" in unit else "") + unit * 200_000
    found = problems(text.rstrip(", {") + "]}")
    assert len(found) == 1 and carries(found[0].message, "more", "document")


def test_documents_as_they_are_written_are_never_too_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MEMORY_FOR_ANY", 0)
    jobs = [{"name": f"job-{k}", "model": "net", "workers": 1, "iterations": 9, "release_us": k} for k in range(2000)]
    for separators in ((",", ":"), (", ", ": ")):
        tree = changed(("jobs",), jobs)
        assert len(decode_instance(json.dumps(tree, separators=separators)).jobs) == 2000
        plan = copy.deepcopy(PLAN)
        iteration = plan["jobs"][0]["iterations"][0]
        iteration["blocks"] = [{"level": 1, "start_us": 90000 + k, "end_us": 91000 + k} for k in range(2000)]
        assert decode_plan(json.dumps(plan, separators=separators)).jobs[0].iterations[0].blocks[-1].end_us == 92999


PLAN = json.loads((HERE / "pair.plan.json").read_bytes())
BLOCK = ("jobs", 0, "iterations", 0, "blocks", 0)
BLOCK_PATH = "$.jobs[0].iterations[0].blocks[0]"


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("format",), "jigsaw-plan/2", "$.format"),
        (("status",), "infeasible", "$.status"),
        (("objective",), None, "$.objective"),
        (("period_us",), GONE, "$"),
        (("period_us",), -1, "$.period_us"),
        (("solver",), [], "$.solver"),
        (("extra",), 1, "$.extra"),
        (("jobs", 0, "gpus", 0), "s0", "$.jobs[0].gpus[0]"),
        (("jobs", 0, "gpus", 0), "s0/01", "$.jobs[0].gpus[0]"),
        (("jobs", 0, "gpus", 0), 0, "$.jobs[0].gpus[0]"),
        ((*BLOCK, "start_us"), -1, f"{BLOCK_PATH}.start_us"),
        ((*BLOCK, "level"), GONE, BLOCK_PATH),
        ((*BLOCK, "worker"), 0, f"{BLOCK_PATH}.worker"),
    ],
)
def test_wrong_plans(path: tuple[str | int, ...], value: object, place: str) -> None:
    tree = changed(path, value, PLAN)
    with pytest.raises(InvalidInputError) as caught:
        decode_plan(json.dumps(tree))
    assert [problem.path for problem in caught.value.problems] == [place]
    assert not Draft202012Validator(schema("plan")).is_valid(tree)


def test_the_solver_may_say_anything_that_json_can() -> None:
    solver = {"name": "x", "seconds": 0.25, "log": [None, True, {"deep": -1.5}]}
    assert decode_plan(json.dumps(changed(("solver",), solver, PLAN))).solver == solver
    for number in ("NaN", "Infinity", "1e999"):
        text = json.dumps(changed(("solver",), {"log": [0, "N"]}, PLAN)).replace('"N"', number)
        with pytest.raises(InvalidInputError) as caught:
            decode_plan(text)
        assert [problem.path for problem in caught.value.problems] == ["$.solver.log[1]"]


def test_sums_of_a_plan_may_exceed_every_single_number_of_an_instance(pair_plan_path: Path) -> None:
    document = json.loads(pair_plan_path.read_text())
    document["objective"] = 2**70
    assert decode_plan(json.dumps(document)).objective == 2**70


def test_words_are_compared_ten_thousand_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def noted(_word: str, options: list[str], n: int) -> list[str]:
        compared.append(len(options))
        return options[:n]

    monkeypatch.setattr("difflib.get_close_matches", noted)
    tree = copy.deepcopy(FULL)
    tree["models"] = {f"m{k}": FULL["models"]["net"] for k in range(600)}
    tree["jobs"] = [{"name": f"j{k}", "model": "x", "workers": 1, "iterations": 1} for k in range(900)]
    found = problems(json.dumps(tree))
    assert len(found) == 900 and sum(bool(problem.hint) for problem in found) == 10_000 // 600
    assert sum(compared) <= 10_000


def test_a_column_is_that_of_the_document_whatever_stands_before() -> None:
    for data in ('{\n"\U0001f600\u4e2d\u00e9": x}', '{\n"\U0001f600\u4e2d\u00e9": x}'.encode()):
        (found,) = problems(data)
        assert found.message == "not JSON: Expecting value at line 2, column 8"


def test_text_is_escaped_before_it_is_parsed_and_says_the_same() -> None:
    parsed = parsing.parse('{"\U0001f600": ["caf\u00e9", "\u4e2d", "plain \U0001f600"]}', "$", Report())
    assert parsed == {"\U0001f600": ["caf\u00e9", "\u4e2d", "plain \U0001f600"]}
    assert parsing._escaped('"\U0001f600\u00e9"') == r'"\ud83d\ude00\u00e9"'


_UNITS = {"us": "microsecond", "bytes": "byte", "memory": "byte", "bandwidth": "bytes per second"}


def _properties(tree: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property that a schema describes, at any depth."""
    if isinstance(tree, dict):
        found = tree.get("properties")
        yield from found.items() if isinstance(found, dict) else ()
        for below in tree.values():
            yield from _properties(below)
    elif isinstance(tree, list):
        for below in tree:
            yield from _properties(below)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_field_of_a_schema_has_a_description_with_its_unit(kind: Kind) -> None:
    fields = list(_properties(shipped(kind)))
    assert len(fields) > 6
    assert [name for name, field in fields if not field.get("description")] == []
    units = [(name, _UNITS.get(name.rpartition("_")[2], "")) for name, _ in fields]
    missing = [each for each, (_, field) in zip(units, fields, strict=True) if each[1] not in field["description"]]
    assert missing == []
