"""Files are read up to a limit, whatever they are."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
from pathlib import Path

import pytest

from jigsaw_opt.documents import decode_instance, file_bytes, load_instance, load_plan
from jigsaw_opt.documents.file_bytes import read_file, unpacked
from jigsaw_opt.documents.readers import lines
from jigsaw_opt.documents.readers.chakra.trace import decode_trace
from jigsaw_opt.documents.readers.traces.registry import read_trace
from jigsaw_opt.errors import InvalidInputError
from tests.refusals import carries, refuses


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


def test_a_file_that_says_it_is_empty_is_read() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc")
    assert Path("/proc/self/status").stat().st_size == 0
    assert b"Name:" in read_file("/proc/self/status", 10**6)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert carries(refusal(tmp_path), "read", "Is a directory")
    assert carries(refusal(tmp_path / "none"), "read", "No such file")
    assert refusal("a\0b").startswith("cannot be read: ")


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


def test_an_empty_name_is_the_folder_at_hand() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_file("")
    assert [(problem.path, problem.code) for problem in caught.value.problems] == [(".", "unreadable")]
