"""Traces: our own format back and forth, those of others, and every problem with its line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jigsaw_opt.documents.csv_text import csv_text
from jigsaw_opt.documents.readers.profiles.pollux import read_applications
from jigsaw_opt.documents.readers.traces import READERS, read_trace
from jigsaw_opt.documents.readers.workload_csv import BETWEEN_NAMES, columns_of, decode_workload
from jigsaw_opt.documents.readers.workload_csv import HEADER as CSV_HEADER
from jigsaw_opt.documents.recognising import likely_form
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.workload import STATED, TraceJob, Workload
from tests.refusals import misuse, refused, refuses

PHILLY = "timestamp,duration,num_gpus\n"
HEADER = "name,submit_s,model,gpus,iterations\n"


def encode_workload(workload: Workload) -> str:
    """Return a workload as a table in our own format."""

    def cell(job: TraceJob, name: str) -> object:
        value: object = getattr(job, name)
        if isinstance(value, tuple):
            return BETWEEN_NAMES.join(value)
        if value is None or (value == 0 and name not in ("submit_us", *STATED)):
            return ""
        return int(value) if isinstance(value, bool) else value

    stated = (name for name in STATED if any(getattr(job, name) is not None for job in workload.jobs))
    header = (*CSV_HEADER, *stated)
    return csv_text(header, ([cell(job, name) for name in header] for job in workload.jobs))


def refusal(name: str, text: str | bytes) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        read_trace(name, text, "t")
    return caught.value


def refusals(name: str, text: str | bytes) -> list[str]:
    return refused(refusal(name, text))


def problems(name: str, text: str | bytes) -> list[str]:
    return [str(problem) for problem in refusal(name, text).problems]


def test_back_and_forth() -> None:
    jobs = (
        TraceJob("plain", 0, "m", 1, 5),
        TraceJob('a "name", quoted', 1_500_001, "n", 4, None, 2, 8, 3, 256),
        TraceJob("told", 1_500_002, "m", 1, 5, time_limit_us=7, start_us=-3, end_us=4, priority=0),
        TraceJob("of", 1_500_003, "m", 1, 5, user="=u", account="a, b", queue="gpu", qos="high"),
        TraceJob("on", 1_500_004, "m", 1, 5, gpu_types=("=a100", "'=h100"), ran_on="h100", preemptible=False),
        TraceJob("then", 1_500_005, "m", 1, 5, preemptible=True, after=("of", "9"), array="9", array_limit=2),
    )
    assert decode_workload(encode_workload(Workload("w", jobs))).jobs == jobs


@pytest.mark.parametrize(
    ("unit", "unit_us", "model", "iterations"),
    [
        ("us", 1, "microseconds", 1500),
        ("ms", 1_000, "milliseconds", 1500),
        ("s", 10**6, "seconds", 1500),
        ("min", 60 * 10**6, "seconds", 90_000),
        ("h", 3600 * 10**6, "seconds", 5_400_000),
    ],
)
def test_units_are_in_the_header(unit: str, unit_us: int, model: str, iterations: int) -> None:
    workload = decode_workload(f"gpus,name,submit_{unit},model\n1,a,4,m\n2,b,2.0,m\n")
    assert [(job.name, job.submit_us) for job in workload.jobs] == [("b", 2 * unit_us), ("a", 4 * unit_us)]
    by_duration = decode_workload(f"submit_s,gpus,duration_{unit}\n0,4,1500\n")
    assert by_duration.jobs == (TraceJob("line-2", 0, model, 4, iterations),)
    assert decode_workload(encode_workload(by_duration)).jobs == by_duration.jobs


def test_what_a_table_states_beyond_the_work() -> None:
    dated = "submit,start,end,gpus,duration_s,time_limit_h,user\n"
    line = "2026-01-31 08:00,2026-01-31 08:01,2026-01-31 08:03,1,120,1-00:00:00,ann\n"
    (job,) = decode_workload(dated + line).jobs
    assert (job.start_us, job.end_us, job.time_limit_us) == (60_000_000, 180_000_000, 86_400_000_000)
    assert (job.user, job.queue, job.priority) == ("ann", None, None)
    assert problems("csv", "submit_s,start,gpus,duration_s,time_limit_s,time_limit_h\n0,0,1,1,1,1\n") == [
        "t:1: column 'time_limit_h' beside 'time_limit_s' (one of time_limit_us, time_limit_ms, time_limit_s, "
        "time_limit_min, time_limit_h)",
        "t:1: column 'start' beside 'submit_s' (one of start_us, start_ms, start_s, start_min, start_h)",
    ]
    table = "submit_s,gpus,duration_s,time_limit_s,priority,preemptible,array_limit\n0,1,1,0,-1,2,0\n"
    assert problems("csv", table) == [
        "t:2: priority is negative: -1",
        "t:2: preemptible is 0 or 1, not 2",
        "t:2: array_limit is too small: 0",
        "t:2: time_limit_s is too small: 0",
        "t:2: array_limit is of an array, and array is empty",
    ]
    table = "submit_s,gpus,duration_s,gpu_types,after\n0,1,1, a100 | |h100,\n"
    (job,) = decode_workload(table).jobs
    assert (job.gpu_types, job.after, job.preemptible) == (("a100", "h100"), None, None)


def test_an_array_has_one_limit() -> None:
    table = (
        "submit_s,gpus,duration_s,array,array_limit\n0,1,1,A,2\n0,1,1,,2\n0,1,1,A,\n0,1,1,A,3\n0,1,1,B,3\n0,1,1,C,\n"
    )
    assert problems("csv", table) == [
        "t:3: array_limit is of an array, and array is empty",
        "t:4: array_limit is none, and in line 2 it is 2 for the same array",
        "t:5: array_limit is 3, and in line 2 it is 2 for the same array",
    ]


def test_cells_that_only_look_right() -> None:
    table = "name,submit_s,gpus,duration_s,time_limit_s,user\na,1_0,1,1,1,u\nb,0,١,1,NaN,u\nc,0,1,1,,ü\n"
    assert problems("csv", table) == [
        "t:2: submit_s is a number, not '1_0'",
        "t:3: gpus is a number, not '١'",
        "t:3: time_limit_s is a number, not 'NaN'",
    ]


def test_every_problem_of_every_line() -> None:
    text = HEADER + "a,-5,x,1,10\nb,0,,99,10\nb,1,y,1.5,abc\n\nc,1,y,1\nd,nan,y,0,-1\ne,1e99,y,1,1\n"
    assert problems("csv", text) == [
        "t:2: submit_s is negative: -5",
        "t:3: model is empty",
        "t:4: gpus is a whole number, not 1.5",
        "t:4: iterations is a number, not 'abc'",
        "t:6: 4 cells under 5 columns",
        "t:7: gpus is too small: 0",
        "t:7: submit_s is a number, not 'nan'",
        "t:7: iterations is negative: -1",
        "t:8: submit_s is out of range: '1e99'",
        "t:4: job 'b' stands in line 3 already",
    ]


def test_every_problem_of_the_header() -> None:
    assert problems("csv", "name,submit_s,submit_ms,gpus,gpus,colour\n") == [
        "t:1: two columns are called 'gpus'",
        "t:1: 2 columns with the time of submission "
        "(one of submit_us, submit_ms, submit_s, submit_min, submit_h, submit)",
        "t:1: no column 'model', nor one with the duration (duration_us, duration_ms, duration_s, duration_min, "
        "duration_h; or --columns duration_s=X, where X is one of name, submit_s, submit_ms, gpus, gpus, colour)",
        "t:1: unknown column 'colour' (there are name, submit_us, model, gpus, iterations, min_gpus, max_gpus, "
        "weight, batch_size, foreground)",
    ]


@pytest.mark.parametrize(
    ("cell", "duration_us"),
    [
        ("02:03:04", 7_384_000_000),
        ("1-02:03:04", 93_784_000_000),
        ('"1 day, 2:03:04"', 93_784_000_000),
        ("0 days 00:00:01.499000", 1_499_000),
        ("100:00:00", 360_000_000_000),
    ],
)
def test_durations_as_a_clock_shows_them(cell: str, duration_us: int) -> None:
    assert decode_workload(f"submit_s,gpus,duration_s\n0,4,{cell}\n").jobs[0].duration_us == duration_us


@pytest.mark.parametrize("cell", ["02:03", "1-25:00:00", "00:61:00", "-01:00:00", "1-2-03:00:00"])
def test_durations_that_no_clock_shows(cell: str) -> None:
    assert problems("csv", f"submit_s,gpus,duration_s\n0,4,{cell}\n") == [f"t:2: duration_s is a number, not '{cell}'"]


def test_semicolons_and_decimal_commas() -> None:
    text = "name;submit_h;gpus;duration_h\na;0,5;4;2,25\nb;1.0;2;1\n"
    assert decode_workload(text).jobs == (
        TraceJob("a", 1_800_000_000, "seconds", 4, 8100),
        TraceJob("b", 3_600_000_000, "seconds", 2, 3600),
    )
    for sign in "\t|":
        assert decode_workload(text.replace(",", ".").replace(";", sign)).jobs == decode_workload(text).jobs
    assert decode_workload("sep=;\n" + text).jobs == decode_workload(text).jobs
    assert problems("csv", "submit_h;gpus;duration_h\n1;1,000;1\n2;1;1.000,5\n") == [
        "t:2: gpus is a whole number, not '1,000'",
        "t:3: duration_h is a number, not '1.000,5'",
    ]


@pytest.mark.parametrize("cell", ["NaN", "NaT", "", "None", "null"])
def test_jobs_without_a_duration_never_started(cell: str) -> None:
    workload = decode_workload(f"submit_s,gpus,duration_s\n0,4,{cell}\n1,2,9\n")
    assert workload.jobs == (TraceJob("line-3", 1_000_000, "seconds", 2, 9),)
    assert workload.left_out == {"never started": 1}
    assert workload.reading_told() == ["1 of 2 jobs left out: 1 never started"]


def test_moments_have_a_zone_or_have_none() -> None:
    head = "submit,gpus,duration_s\n"
    zoned = decode_workload(head + "2024-03-01T08:00:00Z,1,1\n2024-03-01T10:30:00.5+02:00,1,1\n1709283600,1,1\n")
    assert [job.submit_us for job in zoned.jobs] == [0, 1_800_500_000, 3_600_000_000]
    apart = decode_workload(head + "2024-03-01 08:00:00 UTC,1,1\n2024-03-01 16:00:01 +0800,1,1\n")
    assert [job.submit_us for job in apart.jobs] == [0, 1_000_000]
    assert problems("csv", head + "2024-03-01T08:00:00Z,1,1\n2024-03-01T09:00:00,1,1\n") == [
        "t:3: submit has no zone, and the time in line 2 has one"
    ]


def test_jobs_by_duration_state_it_once_and_nothing_else() -> None:
    both = problems("csv", "name,submit_s,model,gpus,iterations,duration_s,duration_h\n")
    assert [line.split(" (")[0] for line in both] == [
        "t:1: 2 columns with the time of duration",
        "t:1: unknown column 'model'",
        "t:1: unknown column 'iterations'",
    ]
    assert problems("csv", "submit_s,gpus,duration_s\n0,1,-4\n") == ["t:2: duration_s is negative: -4"]


@pytest.mark.parametrize(
    ("words", "taken"),
    [("duration_h=runtime_min", "duration_min=runtime_min"), ("submit_us=Arrival_Seconds", "submit_s=Arrival_Seconds")],
)
def test_a_column_that_is_named_for_another_unit_is_refused(words: str, taken: str) -> None:
    with misuse("contradiction columns", naming=[taken]):
        columns_of(words)
    assert columns_of(taken)


def test_columns_of_tables_as_they_are() -> None:
    columns = columns_of("name=job, gpus=num_gpu,submit_s=time,duration_s=gpus")
    text = "job,user,num_gpu,time,iterations,gpus\na,me,8,30,9,147\n"
    assert read_trace("csv", text, "t", columns=columns).jobs == (TraceJob("a", 30_000_000, "seconds", 8, 147),)
    with refuses("unknown-name t:1", "unknown-name t:1", "missing-field t:1"):
        read_trace("csv", "gpus,time\n", "t", columns=columns)
    with refuses("ambiguous t:1"):
        read_trace("csv", "name,gpus,submit_s,submit_us,duration_s\n", "t")
    with misuse("unsupported columns"):
        read_trace("philly", "", "x.csv", columns=columns)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        *((words, "malformed") for words in ("gpus", "gpus=", "gpus=a,gpus=b", "gpus=a,name=a", ",")),
        ("size=a", "unknown-name"),
        ("=a", "unknown-name"),
    ],
)
def test_names_of_columns_that_are_none(words: str, code: str) -> None:
    with misuse(f"{code} columns"):
        columns_of(words)


def test_what_is_well_written_may_still_not_be_accepted() -> None:
    with pytest.raises(InvalidInputError) as caught:
        decode_workload(HEADER + "a,-1,x,9,1\n", "t", lambda job: [f"{job.gpus} GPUs", f"model {job.model}"])
    assert [str(p) for p in caught.value.problems] == ["t:2: submit_s is negative: -1", "t:2: 9 GPUs", "t:2: model x"]


def test_gpus_lie_between_the_fewest_and_the_most() -> None:
    text = "name,submit_s,model,gpus,min_gpus,max_gpus\na,0,m,4,5,8\nb,0,m,4,1,2\nc,0,m,4,1,\n"
    assert [line.split(":")[1] for line in problems("csv", text)] == ["2", "3"]


@pytest.mark.parametrize("text", ["", "\n", HEADER])
def test_nothing_is_no_workload(text: str) -> None:
    assert problems("csv", text)


def test_texts_of_spreadsheets() -> None:
    text = "\ufeffname,submit_s,model,gpus\r\n a ,0,m,1.0\r\n\r\n"
    assert decode_workload(text.encode()).jobs == (TraceJob("a", 0, "m", 1),)


@pytest.mark.parametrize(
    "number", ["1e999999999", "-1e999999999", "inf", "-inf", "nan", "snan", "0x1", "", "1e300", "9" * 400]
)
def test_numbers_that_are_none(number: str) -> None:
    for name, text in (("csv", f"{HEADER}a,{number},m,{number},1\n"), ("philly", f"{PHILLY}2017-11-02,{number},1\n")):
        missing = name == "philly" and number in ("", "nan")
        told = ["t: has no job (1 of 1 jobs left out: 1 never started)"] if missing else None
        assert told == problems(name, text) or all(line.startswith("t:2: ") for line in problems(name, text))


@settings(max_examples=300)
@given(st.text(st.sampled_from('0123456789.e-+,"\n\r\0 abm'), max_size=60))
def test_whatever_stands_under_the_header(rest: str) -> None:
    with suppress(InvalidInputError):
        workload = decode_workload(HEADER + rest)
        assert decode_workload(encode_workload(workload)).jobs == workload.jobs


def test_no_such_format() -> None:
    with misuse("unknown-value workload", naming=["'excel'"]):
        read_trace("excel", "", "t")


@pytest.mark.parametrize("name", sorted(READERS.keys() - {"kubernetes"}))
def test_every_reader_of_tables_names_the_line(name: str) -> None:
    assert all(line.startswith("t:1: ") or line == "t: has no job" for line in problems(name, "nonsense\n"))


def test_tiresias() -> None:
    text = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n7,8,30,133,vgg11,147,23\n"
    workload = read_trace("tiresias", text + "8,0,40,9,vgg11,100,9\n9,1,50,9,vgg11,NaN,9\n", "t")
    assert workload.jobs == (TraceJob("7", 30_000_000, "vgg11", 8, 147),)
    assert workload.left_out == {"without a GPU": 1, "never started": 1}


def test_elasticflow_with_and_without_models() -> None:
    with_models = "job_id,submit_time,model_name,num_gpu,duration\nx,1.5,bert,4,9\n"
    raw = "job_id,submission_time,duration,num_gpu\ny,2,9,4\n"
    assert read_trace("elasticflow", with_models, "t").jobs == (TraceJob("x", 1_500_000, "bert", 4, 9),)
    workload = read_trace("elasticflow", raw + "z,2,9,0\nw,2,,4\n", "t")
    assert workload.jobs == (TraceJob("y", 2_000_000, "seconds", 4, 9),)
    assert workload.left_out == {"without a GPU": 1, "never started": 1}
    assert problems("elasticflow", "job_id,duration,num_gpu\n") == ["t:1: no column 'submit_time' or 'submission_time'"]
    both = "job_id,duration,num_gpu,submit_time,submission_time\n"
    assert problems("elasticflow", both) == ["t:1: two columns 'submit_time' or 'submission_time'"]


def test_virtual_machines_of_azure_last_from_creation_to_deletion() -> None:
    """A table without a header, in the form of ``vmtable.csv`` of 2017 (AzurePublicDatasetV1)."""
    first = "x/XsOfHO,VDU4C8cq,Pc2VLB8a,0,2591700,99.369869,3.424094,10.194309,Delay-insensitive,1,1.75\n"
    text = first + "H5Cxm+Mo,BSXOcywx,3J17LcV4,300,300,100.0,6.181784,33.981360,Interactive,16,112\n"
    found = read_trace("azure", text + "8u+M3WcF,VDU4C8cq,DHbeI+pY,600,300,1,1,1,Unknown,2,3.5\n", "t")
    assert found.jobs == (
        TraceJob("x/XsOfHO", 0, "seconds", 1, 2_591_700, start_us=0, end_us=2_591_700_000_000, user="VDU4C8cq"),
        TraceJob("H5Cxm+Mo", 300_000_000, "seconds", 16, 1, start_us=300_000_000, end_us=300_000_000, user="BSXOcywx"),
    )
    assert found.left_out == {"with a record that is wrong: vmdeleted is before vmcreated": 1}
    assert likely_form(text) == "azure"


def test_pods_of_alibaba_last_from_scheduling_to_deletion() -> None:
    header = "name,cpu_milli,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
    text = header + "a,1,2,1000,5,90,10\npart,1,1,460,6,6,6\ncpu,1,0,0,7,9,8\npending,1,1,1000,8,9,\n"
    assert read_trace("alibaba", text, "t").jobs == (
        TraceJob("a", 5_000_000, "seconds", 2, 80, start_us=10_000_000, end_us=90_000_000),
        TraceJob("part", 6_000_000, "seconds", 1, 1, start_us=6_000_000, end_us=6_000_000),
    )
    assert problems("alibaba", header + "a,1,1,1000,5,8,9\nb,1,-1,0,0,0,0\n") == [
        "t:2: deletion_time is before scheduled_time: 9",
        "t:3: num_gpu is negative: -1",
    ]


def test_of_a_wrong_line_the_first_column_is_counted() -> None:
    header = "duration,timestamp,num_gpus\n1,2017-11-01 00:00:00,1\n"
    left_out = read_trace("philly", header + "1,soon,many\nx,2017-11-01 00:00:00,many\n", "t").left_out
    assert left_out == {
        "with a record that is wrong: timestamp is not a date and time as 2026-01-31 08:30": 1,
        "with a record that is wrong: duration is not a number": 1,
    }


def test_philly_begins_with_its_first_job() -> None:
    text = "timestamp,duration,num_gpus\n2017-11-02 00:00:01,60.4,2\n2017-11-01 23:59:59,0.0,1\n"
    assert read_trace("philly", text, "t").jobs == (
        TraceJob("line-3", 0, "seconds", 1, 1),
        TraceJob("line-2", 2_000_000, "milliseconds", 2, 60_400),
    )
    wrong = "yesterday,-1,1\n2017-11-01T00:00:00+01:00,1,1\n2017-11-01 00:00:01,5,0\n"
    workload = read_trace("philly", f"timestamp,duration,num_gpus\n2017-11-01 00:00:00,1,1\n{wrong}", "t")
    assert [job.name for job in workload.jobs] == ["line-2"]
    assert workload.left_out == {
        "without a GPU": 1,
        "with a record that is wrong: timestamp is not a date and time as 2026-01-31 08:30": 1,
        "with a record that is wrong: timestamp has a zone, and the time in line 2 has none": 1,
    }


PHILLY_LOG = (Path(__file__).parents[1] / "data" / "jobs.philly.json").read_text()


def test_the_log_of_philly() -> None:
    workload = read_trace("philly", PHILLY_LOG, "t")
    assert workload.jobs == (
        TraceJob(
            "application_1_0001",
            0,
            "seconds",
            2,
            352,
            queue="ee9e8c",
            user="u1",
            start_us=44_000_000,
            end_us=396_000_000,
        ),
        TraceJob(
            *("application_1_0002", 60_000_000, "seconds", 16, 900),
            queue="ee9e8c",
            user="u2",
            start_us=80_000_000,
            end_us=4_280_000_000,
        ),
    )
    assert workload.left_out == {"never started": 1, "not ended": 1, "without a GPU": 1}
    assert workload.remarks == {
        "jobs of several attempts, which last as long as all of them together": 1,
        "jobs whose attempts differ in their GPUs, with the most of any": 1,
    }


def test_every_problem_of_the_log_of_philly() -> None:
    log = PHILLY_LOG.replace("2017-10-07 11:05:16", "2017-10-07 10:05:16").replace("2017-10-07 10:59:40", "then")
    assert refusals("philly", log) == ["wrong-order $[0].attempts[0]", "malformed $[1].submitted_time"]
    workload = read_trace("philly", log.replace("2017-10-07 10:05:16", "2017-10-07 11:05:16"), "t")
    assert [job.name for job in workload.jobs] == ["application_1_0001"]
    assert workload.left_out["with a record that is wrong: a date and time is expected"] == 1
    twice = PHILLY_LOG.replace("application_1_0002", "application_1_0001")
    assert read_trace("philly", twice, "t").left_out["with the name of a job before"] == 1
    assert refusals("philly", "[]") == ["empty $"]
    assert refusals("philly", '[3, {"attempts": 4}]')[0] == "wrong-type $[0]"


SHARED = {
    "shockwave/120jobs_32gpu_dynamic.trace": ("gavel", 120),
    "microsoft_itp/raw/cluster02.csv": ("itp", 5_778),
    "elasticflow/philly_103959.csv": ("elasticflow", 876),
    "microsoft_itp/with_models/195job.csv": ("elasticflow", 195),
    "philly/philly_jobs_2017w44.csv": ("philly", 3805),
    "pollux/workloads/workload-1.csv": ("pollux", 160),
    "sia/workloads/saturn/workload-1.csv": ("pollux", 160),
    "muri/trace1.csv": ("muri", 1494),
    "gavel/traces/max_min_fairness.trace": ("gavel", 96),
    "tiresias/60_job.csv": ("tiresias", 60),
}


@pytest.mark.parametrize("path", SHARED)
def test_shared_traces(shared_data: Path, path: str) -> None:
    name, count = SHARED[path]
    data = (shared_data / "cluster" / path).read_bytes()
    workload = read_trace(name, data, path)
    assert len(workload.jobs) == count
    assert decode_workload(encode_workload(workload)).jobs == workload.jobs


def test_profiles_of_pollux(shared_data: Path) -> None:
    applications = read_applications(shared_data / "cluster" / "sia" / "profiles", "aws")
    assert sorted(applications) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    cifar = applications["cifar10"]
    assert cifar.placements[1,][0].step_s == 0.0427886962890625
    assert len(cifar.epochs[128]) == 100
    assert cifar.epochs[128][0].progress == 391.0


def test_everything_that_is_wrong_with_profiles_is_told_at_once(tmp_path: Path) -> None:
    with refuses(f"empty {tmp_path}", naming=["placements-gpu.csv"]):
        read_applications(tmp_path, "gpu")
    net, other = tmp_path / "net", tmp_path / "other"
    for folder in (net, other):
        folder.mkdir()
        (folder / "validation-8.csv").write_text("progress,grad_sqr,grad_var\n5,1,1\n5,1,1\n6,0,0\n1e290,1,1\n")
    (net / "placements-gpu.csv").write_text("placement,local_bsz,step_time,sync_time\n20,8,1,0\n1,8,0,0\n")
    (net / "scalability-gpu.csv").mkdir()
    (net / "validation-16.csv").write_text("progress,grad_sqr,grad_var\n")
    (other / "placements-gpu.csv").write_text("placement,local_bsz,step_time,sync_time\n")
    (other / "validation-0.csv").write_text("")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "placements-gpu.csv").write_text("placement,local_bsz,step_time,sync_time\n1,8,-1,x\n")
    with pytest.raises(InvalidInputError) as caught:
        read_applications(tmp_path, "gpu")
    assert [str(problem).removeprefix(str(tmp_path)) for problem in caught.value.problems] == [
        "/bare/placements-gpu.csv:2: step_time is negative: -1",
        "/bare/placements-gpu.csv:2: sync_time is a number, not 'x'",
        "/bare: has no file validation-*.csv",
        "/net/placements-gpu.csv:2: placement has a server without GPUs",
        "/net/placements-gpu.csv:3: step_time is too small: 0",
        "/net/scalability-gpu.csv: cannot be read: Is a directory",
        "/net/validation-8.csv:3: progress does not grow, or beyond 1e+15: 5",
        "/net/validation-8.csv:4: the gradient has neither norm nor variance",
        "/net/validation-8.csv:5: progress does not grow, or beyond 1e+15: 1e+290",
        "/net/validation-16.csv: has no epoch",
        "/other/placements-gpu.csv: has no measurement",
        "/other/validation-0.csv: is called after no batch size, as in validation-128.csv",
    ]
