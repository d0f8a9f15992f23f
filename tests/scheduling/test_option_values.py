"""Options of policies that take more than a short list of values."""

from __future__ import annotations

import pytest

from jigsaw_opt.documents.readers.times import slurm_time_s
from jigsaw_opt.scheduling.option_values import file_names, hours, hours_us, slurm_times, whole_numbers
from jigsaw_opt.scheduling.policy import choose
from tests.refusals import misuse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("2:30:15", 9015),
        ("7-0", 604_800),
        ("1-2:3", 93_780),
        ("1-02:03:04", 93_784),
        ("0", 0),
        ("1-", None),
        ("1:2:3:4", None),
        ("soon", None),
        ("-5", None),
    ],
)
def test_times_of_slurm(text: str, seconds: int | None) -> None:
    assert slurm_time_s(text) == seconds
    assert (text in slurm_times("none")) == (seconds is not None)


@pytest.mark.parametrize(("text", "minutes"), [("24", 1440), ("0.5", 30), ("30min", 30), ("2h", 120), ("0", 0)])
def test_hours(text: str, minutes: int) -> None:
    assert text in hours("none") and hours_us(text) == minutes * 60_000_000


def test_values_beside_those_that_are_listed() -> None:
    numbers = whole_numbers("none", "5", most=10)
    assert list(numbers) == ["none", "5"]
    assert [text in numbers for text in ("none", "7", "10", "11", "1.5", "", "-1", "٣")] == [True] * 3 + [False] * 5
    assert "any/file.txt" in file_names() and "" not in file_names()
    assert 5 not in numbers


def test_the_command_line_says_what_an_option_takes() -> None:
    with misuse("out-of-range policy.grace") as caught:
        choose("priority:grace=long")
    assert str(caught.value).startswith("'grace' of policy 'priority' is not 'long'; it is a whole number from 0 to")
    assert choose("priority:grace=45")[1]["grace"] == "45"
    with misuse("unknown-option policy.priority_weight", naming=["'priority_weight'"]):
        choose("multifactor:priority_weight=3")
