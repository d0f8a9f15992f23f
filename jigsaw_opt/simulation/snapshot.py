"""Putting a simulation aside and going on with it later.

A snapshot is a JSON document, ``jigsaw-snapshot/5``: what it is of, and the state of the simulation as plain values.
The setting is not in it but given again, so that the state fits the inputs it came from. Nothing in it names code,
and nothing of it is trusted: its digests tell damage and other inputs, not who wrote it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from jigsaw_opt.documents.parsing import collection_paused, parse
from jigsaw_opt.errors import InvalidInputError, JigsawError, Problem
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.scheduling.plain import ANYTHING, Plain, conforms, fields, require_newest, whole
from jigsaw_opt.simulation.engine import Simulation

__all__ = ["restore", "snapshot"]

_FORMAT = "jigsaw-snapshot/5"
_TEXT = {"type": "string"}
_SHAPE = fields(
    format={"const": _FORMAT}, inputs=_TEXT, state_sha256=_TEXT, time_us=whole(), ended=whole(), state=ANYTHING
)


def snapshot(simulation: Simulation, inputs: str) -> bytes:
    """Return the state of a simulation as a document."""
    try:
        state = _text(simulation.state(), allow_nan=False)
        digest = _digest(state)
    except (TypeError, ValueError, RecursionError) as error:
        raise JigsawError(f"the policy cannot be put aside: its state is not of plain values: {error}") from error
    header = {
        "format": _FORMAT,
        "inputs": _digest(inputs),
        "state_sha256": digest,
        "time_us": simulation.now_us,
        "ended": simulation.ended,
    }
    return f'{_text(header)[:-1]},\n"state":{state}}}\n'.encode()


def restore(data: bytes, fresh: Simulation, inputs: str, source: str) -> Simulation:
    """Return the simulation of a snapshot.

    `fresh`: the simulation of the same inputs at its beginning. It becomes that of the snapshot; after an error it must
    not be used.
    """
    with collection_paused():
        try:
            tree = _document(data, source)
            _compare(tree, inputs, source)
            fresh.restore(tree["state"], f"{source} $.state")
        except RecursionError:
            raise InvalidInputError([Problem(source, "nested too deeply", code="too-deep")]) from None
    return fresh


def _document(data: bytes, source: str) -> dict[str, Any]:
    report = Report()
    tree: Any = parse(data, source, report)
    report.raise_if_any()
    require_newest(tree, _FORMAT, source)
    if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
        raise InvalidInputError([Problem(source, "is not a snapshot of a simulation", code="unknown-format")])
    conforms(tree, _SHAPE, f"{source} $", report)
    report.raise_if_any()
    return tree


def _compare(tree: dict[str, Any], inputs: str, source: str) -> None:
    if tree["inputs"] != _digest(inputs):
        hint = "it goes on only with the inputs, policy and options that it was started with"
        raise InvalidInputError([Problem(source, "is a snapshot of other inputs", hint, code="mismatch")])
    if tree["state_sha256"] != _digest(_text(tree["state"])):
        raise InvalidInputError([Problem(source, "is damaged: what it holds is not what was written", code="damaged")])


def _text(value: Plain, allow_nan: bool = True) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
