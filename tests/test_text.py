"""Foreign text is printed on one line, in visible characters."""

from __future__ import annotations

import json

import pytest

from jigsaw_opt.errors import Problem, Problems, UsageError
from jigsaw_opt.text import agreeing, called, counted, duration, json_text, named, printable, readable

SEEN = {
    "a job-1/π 作业 🙂": "a job-1/π 作业 🙂",
    "\x1b[31mred\x1b]0;title\x07": r"\x1b[31mred\x1b]0;title\x07",
    "a\rb\nc\td\x00\x7f": r"a\rb\nc\td\x00\x7f",
    "\x9b2J\x85": r"\x9b2J\x85",
    "\u202eabc\u2066\u2069\u200e\u200f\u061c": r"\u202eabc\u2066\u2069\u200e\u200f\u061c",
    "\u200b\u2060\ufeff\xad\u2028\u2029": r"\u200b\u2060\ufeff\xad\u2028\u2029",
    "\udcff": r"\udcff",
    "\U000e0041": r"\U000e0041",
}


@pytest.mark.parametrize(("text", "seen"), SEEN.items())
def test_what_is_not_visible_is_escaped(text: str, seen: str) -> None:
    assert printable(text) == seen
    assert printable(seen) == seen


@pytest.mark.parametrize("text", SEEN)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_stays_json_and_is_visible(text: str, indent: int | None) -> None:
    written = json_text({text: [text, 1]}, indent)
    assert json.loads(written) == {text: [text, 1]}
    assert written.replace("\n", "").isprintable()
    assert ("\n" in written) == (indent is not None)


def test_names_of_files_can_be_written() -> None:
    assert readable("a\udcff🙂") == "a?🙂"


def test_a_usage_error_keeps_its_own_lines_apart_from_those_of_names() -> None:
    problems = Problems()
    with problems.of("a\nb"):
        raise UsageError("first", "second\nline")
    with pytest.raises(UsageError) as caught:
        problems.tell()
    assert caught.value.args == ("a\nb: first", "a\nb: second\nline")
    assert str(caught.value) == "a\nb: first\n  a\nb: second\nline"
    assert Problem("a\nb", "first") in problems._of_calls


def test_durations_are_in_the_greatest_unit_of_which_there_is_one() -> None:
    told = [duration(us) for us in (0, 999, 12_349_789, 59_999_999, 3_600_000_000, 17_987_253_869, 9e17)]
    assert told == ["0 s", "999 µs", "12.35 s", "60 s", "1 h", "4.996 h", "10,416,667 days"]


def test_numbers_have_their_nouns_and_long_lists_end() -> None:
    assert [agreeing(number) for number in (0, 1, 2)] == ["are", "is", "are"]
    assert [counted(number, "job") for number in (0, 1, 2, 1200)] == ["0 jobs", "1 job", "2 jobs", "1,200 jobs"]
    assert named(["a", "b\n", "c"], 2) == "a, b\\n, c"
    assert named(list("abcd"), 2) == "a, b and 2 more"


def test_no_kind_stands_before_its_own_name() -> None:
    assert [called("job", name) for name in ("a", "job0", "Job-a")] == ["job a", "job0", "Job-a"]
