"""JSON of other programs: faults in strings and numbers are mended and told, all else is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from jigsaw_opt.documents.readers.kineto.foreign_json import parsed_foreign
from jigsaw_opt.errors import InvalidInputError
from tests.refusals import refuses


def read(text: bytes) -> tuple[Any, list[str]]:
    told: list[str] = []
    return parsed_foreign(text, "t", lambda tree, report: None, told.append), told


@pytest.mark.parametrize(
    ("text", "value", "told"),
    [
        (b'{"a": "x\xffy", "b": [1]}', "x\ufffdy", "no UTF-8 (1 times)"),
        (b'{"a": "x\x01\n\ty", "b": [1]}', "x\ufffd\ufffd\ufffdy", "a control character (3 times)"),
        (b'{"a": "C:\\Users\\new", "b": [1]}', "C:\ufffdUsers\new", "a lone backslash (1 times)"),
        (b'{"a": "x\\u12", "b": [1]}', "x\ufffdu12", "a lone backslash (1 times)"),
        (b'{"a": "dir\\", "b": [1]}', "dir\ufffd", "a lone backslash (1 times)"),
        (b'{"b": [1], "a": "dir\\"}', "dir\ufffd", "a lone backslash (1 times)"),
        (b'{"a": "x\\ud800y", "b": [1]}', "x\ufffdy", "half a surrogate pair (1 times)"),
        (b'\xef\xbb\xbf{"a": "x", "b": [1]}', "x", "a byte order mark (1 times)"),
        (b'{"a": "\xff\\ud83d\\ude00\\"q\\"", "b": [1]}', '\ufffd\U0001f600"q"', "no UTF-8 (1 times)"),
    ],
)
def test_faults_in_strings_are_replaced_and_told(text: bytes, value: str, told: str) -> None:
    assert read(text) == ({"a": value, "b": [1]}, [f"t: replaced: {told}"])


@pytest.mark.parametrize(
    ("number", "value"),
    [("inf", math.inf), ("-inf", -math.inf), ("-infinity", -math.inf), ("7,757576", 7.757576), ("-0,5e-05", -0.5e-05)],
)
def test_a_number_as_c_prints_it_is_mended_and_told(number: str, value: float) -> None:
    for text in (f'{{"a": {number}, "b": [1,5]}}', f'{{"b": [1,5], "a": {number} }}'):
        assert read(text.encode()) == (
            {"a": value, "b": [1, 5]},
            ["t: replaced: a number that is none of JSON (1 times)"],
        )


@pytest.mark.parametrize("number", ["nan", "-nan"])
def test_what_is_no_number_to_c_is_none_here(number: str) -> None:
    tree, told = read(f'{{"a": {number}}}'.encode())
    assert math.isnan(tree["a"]) and told == ["t: replaced: a number that is none of JSON (1 times)"]


def test_what_is_right_stays_as_it_is() -> None:
    tree = {"a": 'say "x", y: \\', "\ufffd": "\U0001f600\n", "b": {"c": [1.5, None]}}
    assert read(json.dumps(tree, ensure_ascii=False).encode()) == (tree, [])


def test_keys_that_stand_twice_are_told() -> None:
    assert read(b'{"a": 1, "a": 2}') == (
        {"a": 2},
        ["t: 1 keys stand more than once in an object: the last of each counts"],
    )


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": ',
        b'{"a": "x',
        b'{"a": "\xff", ]',
        b"[]",
        b"",
        b'{"a" "b"}',
        b'{"a": \x01}',
        b'{"a": 1,2,3}',
        b'{"a": in}',
    ],
)
def test_all_else_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(text)
    assert len(caught.value.problems) == 1


def test_where_a_string_begins_that_never_ends() -> None:
    with refuses("not-json t", naming=["line 1", "column 7"]):
        read(b'{"a": "x')
