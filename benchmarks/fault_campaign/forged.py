"""Snapshots and checkpoints made by an enemy: none runs code, each is refused in a few lines."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .documents import Json
from .launch import Ended, failure, jigsaw, lasting, run_jigsaw

__all__ = ["PART", "payloads"]

_PATIENCE, _LONG = 60.0, 120.0
"""Seconds; processes that load PyTorch take longer, also to notice their end."""
_FUZZED, _CHECKPOINTS = 20, 4
_FAULT = {Count.FAULTS: 1}


def trials(campaign: Campaign) -> Iterator[Trial]:
    """A genuine snapshot goes on; forged and damaged ones are refused; so are checkpoints."""
    folder = campaign.fresh("forged")
    words = _simulation(folder, campaign)
    genuine = _interrupted(folder, words)
    if genuine is None:
        yield Trial("a genuine snapshot", "none was left by Ctrl-C", " ".join(map(str, words)))
        return
    yield from _resumed(folder, words, genuine)
    marker = folder / "marker"
    for name, data in payloads(genuine, marker):
        yield _refused(f"forged: {name}", folder, words, data, marker)
    for number in range(campaign.times(_FUZZED)):
        data = fuzzed(genuine, campaign.random("forged", number))
        yield _refused(
            "a damaged snapshot", folder, words, data, marker, f"seed {campaign.seed}, {number}", may_pass=True
        )
    if find_spec("torch") is not None:
        yield from _checkpoints(campaign)


def _simulation(folder: Path, campaign: Campaign) -> tuple[object, ...]:
    work = documents.trace(folder / "trace.csv", 6_000, campaign.random("forged"))
    return ("simulate", "--workload", work, "--cluster", "8x4", "--policy", "las", "-q", "-o", folder / "out")


def _interrupted(folder: Path, words: tuple[object, ...]) -> bytes | None:
    """The snapshot that Ctrl-C leaves."""
    running = jigsaw(*words, folder=folder)
    running.wait((folder / "out").exists, _PATIENCE)
    moment = running.seconds + 0.3
    running.wait(lambda: running.seconds > moment, _PATIENCE)
    running.signal(signal.SIGINT)
    running.end(_PATIENCE)
    left = list((folder / "out").glob("snapshot*"))
    return left[0].read_bytes() if left else None


def _place(folder: Path, data: bytes) -> None:
    left = list((folder / "out").glob("snapshot*"))
    path = left[0] if left else folder / "out" / "snapshot"
    path.write_bytes(data)


def _resumed(folder: Path, words: tuple[object, ...], genuine: bytes) -> Iterator[Trial]:
    """Going on ends where going through ends."""
    whole = run_jigsaw(*words[:-1], folder / "whole", folder=folder, timeout=_PATIENCE)
    _place(folder, genuine)
    resumed = run_jigsaw(*words, "--resume", folder=folder, timeout=_PATIENCE)
    same = first(failure(whole, {0}), failure(resumed, {0}))
    if not same:
        one, other = (folder / name / "jobs.csv" for name in ("whole", "out"))
        same = "" if one.read_bytes() == other.read_bytes() else "another end than without the interrupt"
    yield Trial("a genuine snapshot", same, resumed.command, resumed.seconds, resumed.mebibytes)


def _refused(
    fault: str,
    folder: Path,
    words: tuple[object, ...],
    data: bytes,
    marker: Path,
    how: str = "",
    may_pass: bool = False,
) -> Trial:
    marker.unlink(missing_ok=True)
    _place(folder, data)
    ended = run_jigsaw(*words, "--resume", folder=folder, timeout=_PATIENCE)
    wrong = first(
        "the file has run code" if marker.exists() else "",
        failure(ended, {0, 3} if may_pass else {3}),
        lasting(ended, 20),
        _long(ended),
    )
    file = folder / "kept"
    file.write_bytes(data)
    return Trial(fault, wrong, how or ended.command, ended.seconds, ended.mebibytes, _FAULT, (file,))


def _long(ended: Ended) -> str:
    return f"{len(ended.err)} characters of complaint" if len(ended.err) > 5000 else ""


def payloads(genuine: bytes, marker: Path) -> Iterator[tuple[str, bytes]]:
    """Files that touch the marker where reading them runs code; each under the header of the genuine one, and bare."""
    made = str(marker)
    states = {
        "a call of eval": pickle.dumps(_Call(eval, f"open({made!r}, 'w')")),
        "a class that opens a file": _called("_io", "FileIO", made, "w"),
        "a name within a module": _called("jigsaw_opt.simulation.snapshot", "io.FileIO", made, "w"),
        "attributes set on classes": _filter_replaced(made),
    }
    for name, state in states.items():
        yield f"{name}, bare", state
        yield name, _under_header(genuine, state)


class _Call:
    def __init__(self, function: object, *arguments: object) -> None:
        self._made = function, arguments

    def __reduce__(self) -> Any:
        return self._made


def _under_header(genuine: bytes, state: bytes) -> bytes:
    """A state below a first line that states its hash, as snapshots once were."""
    try:
        head = json.loads(genuine.partition(b"\n")[0])
    except ValueError:
        head = {}
    if not isinstance(head, dict) or "inputs" not in head:
        head = {"format": "jigsaw-snapshot/1", "inputs": "", "time_us": 0, "ended": 0}
    return json.dumps({**head, "state": hashlib.sha256(state).hexdigest()}).encode() + b"\n" + state


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _name(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + b"\x93"


def _called(module: str, name: str, *texts: str) -> bytes:
    """A name of a module called with texts."""
    return b"\x80\x04" + _name(module, name) + b"(" + b"".join(map(_text, texts)) + b"tR."


def _set(target: bytes, **attributes: bytes) -> bytes:
    """BUILD with the state of slots: ``setattr`` on whatever it is given, also on a class."""
    items = b"".join(_text(name) + value for name, value in attributes.items())
    return target + b"N}(" + items + b"u\x86b0"


def _filter_replaced(marker: str) -> bytes:
    """What a filter of class names trusts, replaced by a descriptor that contains every name.

    A class of the package becomes a data descriptor, whose value is a named tuple that says yes to ``in``; an
    instance of it takes the place of the reader's own set of trusted packages.
    """
    descriptor = _name("jigsaw_opt.simulation.engine", "Simulation")
    event = _name("jigsaw_opt.solvers.result", "Event")
    reader = _name("jigsaw_opt.simulation.snapshot", "_Unpickler")
    return (
        b"\x80\x04"
        + _set(event, __contains__=_name("builtins", "frozenset"))
        + _set(descriptor, __get__=event, __set__=event)
        + _set(reader, _trusted=descriptor + b")\x81")
        + _called("_io", "FileIO", marker, "w")[2:]
    )


_ODD: tuple[Any, ...] = (None, True, -1, 10**30, 2**63, 1.5, "x", "\x1b[2J", [], {}, [[]] * 3, [None], {"x": {"x": []}})


def fuzzed(genuine: bytes, random: Random) -> bytes:
    """A snapshot with bytes changed or cut, or with other values in its state, whose digest is stated anew."""
    try:
        tree = json.loads(genuine)
    except ValueError:
        return _bytes_changed(genuine, random)
    if random.random() < 0.3:
        return _bytes_changed(genuine, random)
    for _ in range(random.randint(1, 3)):
        _value_changed(tree if random.random() < 0.1 else tree["state"], random)
    text = json.dumps(tree["state"], ensure_ascii=False, separators=(",", ":"))
    return json.dumps({**tree, "state_sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


def _bytes_changed(data: bytes, random: Random) -> bytes:
    head, _, state = data.partition(b"\n")
    changed = bytearray(state or head)
    for _ in range(random.choice((1, 1, 10))):
        changed[random.randrange(len(changed))] = random.randrange(256)
    if random.random() < 0.3:
        del changed[random.randrange(len(changed)) :]
    return _under_header(data, bytes(changed)) if b'"state":' in head else bytes(changed)


def _value_changed(tree: Any, random: Random) -> None:
    """Another value at a random depth."""
    while isinstance(tree, dict | list) and tree:
        key: Any = random.choice(list(tree)) if isinstance(tree, dict) else random.randrange(len(tree))
        if not isinstance(tree[key], dict | list) or not tree[key] or random.random() < 0.2:
            tree[key] = random.choice(_ODD)
            return
        tree = tree[key]


_FORGE = """
import pickle, sys, torch
path, marker, key, kind = sys.argv[1:]
class Call:
    def __reduce__(self):
        return (eval, (f"open({marker!r}, 'w')",))
state = torch.load(path, weights_only=True)
keys = sorted(state)
if kind == "call":
    torch.save({**state, "more": Call()}, path)
elif kind == "pickle":
    open(path, "wb").write(pickle.dumps(Call()))
else:
    state[keys[int(key) % len(keys)]] = {"none": None, "huge": 10**30, "text": "x", "list": [1], "negative": -1}[kind]
    torch.save(state, path)
"""
_KINDS = ("call", "pickle", "none", "huge", "text", "negative", "list")


def _checkpoints(campaign: Campaign) -> Iterator[Trial]:
    """A run whose last checkpoint is forged does not go on from it."""
    folder = campaign.fresh("forged")
    source, plan, marker = _trained(folder), folder / "plan.json", folder / "marker"
    common = (
        "run",
        plan,
        "--instance",
        source,
        "--warm-up",
        0,
        "--checkpoint",
        folder / "saved",
        "-o",
        folder / "r.json",
    )
    made = run_jigsaw(*common, "--iterations", 1, folder=folder, timeout=_LONG, memory=None, grace=_LONG)
    yield Trial("a genuine checkpoint", failure(made, {0}), made.command, made.seconds)
    files = sorted((folder / "saved").glob("*.pt"))
    if not files:
        return
    shutil.copytree(folder / "saved", folder / "genuine")
    forgeries = [(kind, key) for key in range(4) for kind in (_KINDS if key == 0 else _KINDS[2:])]
    for kind, key in forgeries[: campaign.times(_CHECKPOINTS)]:
        shutil.rmtree(folder / "saved")
        shutil.copytree(folder / "genuine", folder / "saved")
        forging = [sys.executable, "-c", _FORGE, str(files[0]), str(marker), str(key), kind]
        subprocess.run(forging, check=True, capture_output=True)
        marker.unlink(missing_ok=True)
        words = (*common, "--iterations", 2, "--resume")
        ended = run_jigsaw(*words, folder=folder, timeout=_LONG, memory=None, grace=_LONG)
        wrong = first("the file has run code" if marker.exists() else "", failure(ended, {3}), _long(ended))
        yield Trial("a forged checkpoint", wrong, f"{ended.command}; {kind}, key {key}", ended.seconds, counts=_FAULT)


def _trained(folder: Path) -> Path:
    """A small instance that trains, and its plan."""
    net: Json = {
        "segments": [
            {"name": name, "forward_us": {"v": 300}, "backward_us": {"v": 500}, "parameter_bytes": size}
            | {"activation_bytes": 4096}
            for name, size in (("dense0", 4 * 65 * 64), ("dense1", 4 * 65 * 10))
        ],
        "executor": {"zoo": "mlp", "arguments": {"hidden": [64]}, "batch_size": 4},
    }
    made = documents.instance([documents.job("a", 2, 2, depth={"rule": "staircase"})], nets={"net": net})
    path = documents.written(made, folder / "instance.json")
    run_jigsaw("solve", path, "--solver", "greedy", "-q", "-o", folder / "plan.json", folder=folder)
    return path


PART = Part("forged", "no snapshot or checkpoint runs code; damaged ones are refused", trials)
