"""Documents of proofs: read, written, recognised, and every problem with its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_proof, encode_proof, load_document, load_proof, save_proof, schema
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.bound_proof import BoundProof
from tests.documents.test_wrong_documents import GONE, changed

ARGUMENT = {
    "kind": "sum",
    "rows": [{"job": f"job {number}", "amount": 10**40 + number, "servers": ["a", "b"]} for number in range(3)],
    "parts": [{"kind": "none"}, {"kind": "none"}],
    "numbers": list(range(100)),
    "e\u202e": [],
}
PROOF = BoundProof("a\x1b", "00", "weighted_completion", 3 * 10**40 + 3, ARGUMENT)


def test_what_is_saved_is_loaded_with_all_digits(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    save_proof(PROOF, path)
    assert load_proof(path) == load_document(path) == decode_proof(encode_proof(PROOF)) == PROOF
    Draft202012Validator(schema("proof")).validate(json.loads(path.read_bytes()))
    assert path.read_text().count("\n") < 25 and "\x1b" not in path.read_text()
    assert main(["validate", str(path)]) == 0


@pytest.mark.parametrize(
    ("steps", "value", "told"),
    [
        (("format",), "jigsaw-proof/2", "$.format"),
        (("argument",), GONE, '$: missing key "argument"'),
        (("argument",), [], "$.argument"),
        (("argument", "kind"), GONE, '$.argument: missing key "kind"'),
        (("argument", "kind"), 3, "$.argument.kind"),
        (("argument", "rows", 1, "amount"), 1.5, "$.argument.rows[1].amount: must be an integer; is 1.5"),
        (("argument", "rows", 1, "amount"), float("inf"), "$.argument.rows[1].amount"),
        (("objective",), "cost", "$.objective"),
        (("bound",), -1, "$.bound"),
        (("bound",), 1.0, "$.bound"),
        (("more",), 1, "$.more"),
    ],
)
def test_each_problem_has_its_path(steps: tuple[Any, ...], value: object, told: str) -> None:
    tree = json.loads(encode_proof(PROOF))
    with pytest.raises(InvalidInputError) as caught:
        decode_proof(json.dumps(changed(steps, value, tree)))
    (problem,) = caught.value.problems
    assert str(problem).startswith(told)


def test_another_document_is_named(pair_plan_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="looks like a plan, not a proof of a bound"):
        load_proof(pair_plan_path)
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        decode_proof('{"argument": ' + "[" * 100_000)
