"""What readers of logs and tables say of a file that another program has written in its own way."""

from __future__ import annotations

import json

import pytest

from jigsaw_opt.documents.readers.traces.registry import read_trace
from jigsaw_opt.documents.readers.traces.workload_csv import decode_workload
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.workload import Workload
from tests.refusals import carries

SACCT = "JobID|Submit|Start|End|Elapsed|AllocTRES\n"
MOMENTS = "2026-01-31T08:00:00|2026-01-31T08:00:00|2026-01-31T09:00:00"


def read(name: str, data: bytes | str) -> Workload:
    return decode_workload(data, "t") if name == "csv" else read_trace(name, data, "t")


def problems(name: str, data: bytes | str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(name, data)
    return [str(problem) for problem in caught.value.problems]


def test_an_elapsed_time_that_is_none_is_told() -> None:
    found = read("slurm", f"{SACCT}1|{MOMENTS}|bad|gres/gpu=1\n2|{MOMENTS}||gres/gpu=1\n")
    assert len({one.iterations for one in found.jobs}) == 1
    assert found.remarks == {"jobs whose Elapsed is no time, which last from Start to End": 1}


def test_lines_of_empty_cells_are_no_jobs() -> None:
    found = read("csv", "name;submit_h;gpus;duration_h\na;0;1;2\n;;;\n;;\n")
    assert len(found.jobs) == 1 and not found.left_out
    assert found.remarks == {"lines of empty cells passed over": 2}


def test_sacct_without_our_columns_is_told_how_to_print_them() -> None:
    (problem,) = problems("slurm", "JobID|JobName|Start|End\n1|a|b|c\n")
    assert problem.startswith(
        "t:1: no column 'Submit', 'AllocTRES' (print it with TZ=UTC sacct -X -P -o JobID,State,Submit"
    )
    (problem,) = problems("slurm", "JobID     Submit\n1   b\n")
    assert problem.startswith("t:1: no bars between columns (print it with TZ=UTC sacct -X -P -o ")


def test_dates_under_a_column_of_numbers_lead_to_the_column_of_dates() -> None:
    (problem,) = problems("csv", "name,submit_s,gpus,duration_s\na,2026-01-31 08:30,1,5\n")
    assert carries(problem, "t:2: submit_s", "'2026-01-31 08:30'", "--columns submit=X")
    found = problems("csv", "name,submit,gpus,duration_s\na,31.01.2026 08:30,1,5\n")
    assert carries(found[0], "t:2: submit ", "2026-01-31 08:30", "'31.01.2026 08:30'")
    found = problems("csv", "name,submit_s,gpus,model,iterations,duration\na,0,1,a,1,5\n")
    assert any(carries(one, "'duration'", "duration") for one in found)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_other_encodings_are_told_what_to_save(encoding: str) -> None:
    (problem,) = problems("csv", "name,submit_s,gpus,duration_s\n\u00fcber,0,1,5\n".encode(encoding))
    assert "not UTF-8" in problem and problem.endswith("(save it as UTF-8; spreadsheets call that CSV UTF-8)")


def test_yaml_is_told_to_be_printed_as_json() -> None:
    for text in ("apiVersion: v1\nitems: []\n", "---\nkind: List\n"):
        (problem,) = problems("kubernetes", text)
        assert carries(problem, "print", "kubectl")
    assert "YAML" not in problems("kubernetes", "hello")[0]


def test_a_share_beside_a_number_of_gpus_is_told_apart_from_one_alone() -> None:
    def pod(name: str, **limits: str) -> dict[str, object]:
        named = {"nvidia.com/" + key: amount for key, amount in limits.items()}
        ended = {"startedAt": "2026-01-31T08:00:00Z", "finishedAt": "2026-01-31T09:00:00Z", "exitCode": 0}
        return {
            "kind": "Pod",
            "metadata": {"name": name, "creationTimestamp": "2026-01-31T08:00:00Z"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": named}}]},
            "status": {
                "phase": "Succeeded",
                "startTime": "2026-01-31T08:00:00Z",
                "containerStatuses": [{"name": "c", "state": {"terminated": ended}}],
            },
        }

    items = [pod("whole", gpu="2", gpumem="3000"), pod("alone", gpumem="3000")]
    found = read("kubernetes", json.dumps({"items": items}))
    assert sorted(one.gpus for one in found.jobs) == [1, 2]
    share = "jobs with nvidia.com/gpumem, a share of a GPU"
    assert found.remarks == {
        f"{share}: a container with shares alone counts as one GPU": 1,
        f"{share}, beside a number of GPUs, which counts": 1,
    }
