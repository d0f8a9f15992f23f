"""Where a name leads decides how it is written; and what cannot be written is found out before."""

from __future__ import annotations

import errno
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jigsaw_opt.documents import make_folder, require_writable, write_atomically
from jigsaw_opt.documents.file_bytes import remove_abandoned
from jigsaw_opt.errors import JigsawError
from tests.refusals import fails, misuse


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["link", "far"])
def test_links_stay_and_what_they_lead_to_is_replaced(name: str, here: Path) -> None:
    (here / "folder").mkdir()
    (here / "folder" / "target").write_bytes(b"old")
    (here / "link").symlink_to("folder/target")
    (here / "far").symlink_to("link")
    before = (here / "folder" / "target").stat().st_ino
    require_writable(name)
    write_atomically(name, b"new")
    assert (here / "link").is_symlink() and (here / "far").is_symlink()
    assert (here / "folder" / "target").read_bytes() == b"new"
    assert (here / "folder" / "target").stat().st_ino != before
    assert [path.name for path in (here / "folder").iterdir()] == ["target"]


@pytest.mark.parametrize("name", ["a/b/c", "link"])
def test_folders_are_made_once_something_is_written(name: str, here: Path) -> None:
    (here / "link").symlink_to("a/b/c")
    require_writable(name)
    assert [path.name for path in here.iterdir()] == ["link"]
    write_atomically(name, b"new")
    assert Path(os.path.realpath(name)).read_bytes() == b"new"


def test_a_pipe_is_written_through(here: Path) -> None:
    os.mkfifo("pipe")
    require_writable("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()))
    reader.start()
    write_atomically("pipe", b"data" * 100_000)
    reader.join()
    assert read == [b"data" * 100_000]
    assert (here / "pipe").is_fifo()


def test_a_device_is_written_through(here: Path) -> None:
    above, below = pty.openpty()
    device = Path(os.ttyname(below))
    require_writable(device, [device])  # a terminal may be read and written
    write_atomically(device, b"seen")
    assert os.read(above, 10) == b"seen"
    assert device.is_char_device()
    os.close(above)
    os.close(below)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "link"])
def test_an_open_descriptor_is_written_to(name: str, here: Path) -> None:
    """Its file is not replaced, as what is written to it afterwards would be lost."""
    descriptor = os.open("file", os.O_WRONLY | os.O_CREAT)
    (here / "link").symlink_to(f"/dev/fd/{descriptor}")
    os.write(descriptor, b"before ")
    require_writable(name.format(descriptor))
    write_atomically(name.format(descriptor), b"data")
    os.write(descriptor, b" after")
    os.close(descriptor)
    assert (here / "file").read_bytes() == b"before data after"


def test_a_descriptor_that_cannot_be_written(here: Path) -> None:
    (here / "file").touch()
    descriptor = os.open("file", os.O_RDONLY)
    with misuse(f"unwritable /dev/fd/{descriptor}", naming=["reading"]):
        require_writable(f"/dev/fd/{descriptor}")
    os.close(descriptor)
    with misuse(f"unwritable /dev/fd/{descriptor}", naming=["Bad file descriptor"]):
        require_writable(f"/dev/fd/{descriptor}")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x" * 300, "File name too long"),
        ("file/x", "file is no folder"),
        ("file/none/x", "file is no folder"),
        ("to-file", "file is no folder"),
        ("folder", "it is a folder"),
        ("", "it is a folder"),
        ("to-folder", "it is a folder"),
        ("circle", "symbolic links"),
        ("a\0b", "null"),
        ("/proc/x", "No such file"),
    ],
)
def test_what_cannot_be_written_is_told_before_and_leaves_no_trace(name: str, why: str, here: Path) -> None:
    (here / "file").touch()
    (here / "folder").mkdir()
    for link, target in {"circle": "circle", "to-file": "file/x", "to-folder": "folder"}.items():
        (here / link).symlink_to(target)
    before = sorted(here.rglob("*"))
    with misuse(f"unwritable {Path(name)}", naming=[why]):
        require_writable(name)
    with fails(JigsawError, str(Path(name))):
        write_atomically(name, b"")
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("step", ["access", "mkstemp"])
def test_no_permission_is_told_before(step: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Feigned, as the tests may run as root."""
    (here / "file").write_bytes(b"old")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    if step == "access":
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    else:
        monkeypatch.setattr("tempfile.mkstemp", refused)
    with misuse("unwritable file", naming=["Permission denied"]):
        require_writable("file")


def test_an_input_is_not_overwritten_by_whatever_name(here: Path) -> None:
    (here / "input").write_bytes(b"data")
    (here / "link").symlink_to("input")
    (here / "twin").hardlink_to("input")
    for name in ("input", "./input", "link", "twin"):
        with misuse(f"unwritable {Path(name)}", naming=["input", str(here / "input")]):
            require_writable(name, ["rack/plain", None, here / "input"])
    require_writable("other", ["input", "x" * 300, "a\0b"])


def test_two_outputs_are_not_one_file_by_whatever_name(here: Path) -> None:
    (here / "link").symlink_to("file")
    for _ in range(2):
        for name in ("file", "./file", "link", here / "file"):
            with misuse(f"unwritable {Path(name)}", naming=["output", "link"]):
                require_writable(name, outputs=["other", None, "link"])
        require_writable("link", outputs=["other"])
        (here / "file").touch()
    require_writable("/dev/null", outputs=["/dev/null"])


def test_a_file_that_is_mounted_is_written_in_its_place(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").write_bytes(b"a longer old text")

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    before = (here / "file").stat().st_ino
    write_atomically("file", b"new")
    assert ((here / "file").read_bytes(), (here / "file").stat().st_ino) == (b"new", before)
    assert [path.name for path in here.iterdir()] == ["file"]


def test_a_folder_for_several_files(here: Path) -> None:
    make_folder(Path("a/b"), ["x", "y"])
    assert list((here / "a" / "b").iterdir()) == []
    (here / "a" / "b" / "x").touch()
    with misuse("unwritable a/b/x", naming=["input"]):
        make_folder(Path("a/b"), ["x", "y"], ["a/b/x"])
    for name in ("a/b/x", "a/b/x/c", "x" * 300):
        with misuse(f"unwritable {name}", naming=["folder"]):
            make_folder(Path(name), ["y"])


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(here: Path) -> None:
    program = (
        "import pathlib, time; from jigsaw_opt.documents import write_atomically\n"
        "pathlib.Path.replace = lambda *_: (print('half', flush=True), time.sleep(600))\n"
        "write_atomically('file', b'data')"
    )
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        (here / ".other.tmp").touch()
        make_folder(here, ["file"])
        assert len(list(here.glob(".jigsaw-*.tmp"))) == 1
        writer.send_signal(signal.SIGKILL)
    make_folder(here, ["file"])
    assert [path.name for path in here.iterdir()] == [".other.tmp"]
    remove_abandoned(here / "missing")
