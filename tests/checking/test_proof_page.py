"""The page of proofs: its document and its examples are right proofs of what it says, and its equations hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_instance, decode_proof, encode_proof, instance_sha256
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.bound_proof import BoundProof
from tests.pages import ROOT, SPECIFICATION, equations, holds, section

PAGE = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
JSON = re.compile(r"```json\n(.*?)```", re.DOTALL)
EXAMPLE = re.compile(
    r"Of (?:the worked example|`(tiny/\d+)`)(?: with the objective `(\w+)`)?, this proves `[^`]* = (\d+)`"
    r"[^\n]*\n\n```json\n(.*?)```",
    re.DOTALL,
)
EXAMPLES = EXAMPLE.findall(PAGE)
KINDS = {"critical path", "load", "workers", "completions", "cases", "bins"}


def worked() -> Instance:
    found = JSON.search(section(SPECIFICATION.read_text(encoding="utf-8"), "Instance"))
    assert found
    return decode_instance(found[1])


def test_the_document_is_the_proof_of_the_worked_example_as_it_is_written() -> None:
    found = JSON.search(section(PAGE, "The document"))
    assert found
    proof = decode_proof(found[1])
    assert check_proof(worked(), proof) is None
    assert (proof.bound, encode_proof(proof).decode()) == (2820, found[1])


def test_the_first_commands_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ortools")
    monkeypatch.chdir(tmp_path)
    found = re.search(r"```console\n(.*?)```", section(PAGE, "Make and check a proof"), re.DOTALL)
    assert found
    for command, printed in re.findall(r"^\$ jigsaw (.*)\n((?:[^$].*\n)*)", found[1], re.MULTILINE):
        assert main(command.split()) == 0
        shown, told = (
            re.sub(r"\d+\.\d+ s| +$", "", text, flags=re.MULTILINE) for text in (capsys.readouterr().out, printed)
        )
        assert shown == told


def test_the_commands_with_outside_programs_prove_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ortools")
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"```console\n(.*?)```", section(PAGE, "Outside provers and solvers"), re.DOTALL)
    commands = [command.split() for block in found for command in re.findall(r"^\$ (.*)", block, re.MULTILINE)]
    outside = [program for program, *_ in commands if program != "jigsaw"]
    assert outside == ["minisat+", "veripb", "highs"]
    for program, *arguments in commands:
        if program == "jigsaw":
            assert main(arguments) == 0
        elif shutil.which(program):
            done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=120)
            proved = {"minisat+": "s UNSATISFIABLE", "veripb": "succeeded", "highs": "Optimal"}
            assert proved[program] in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "objective", "bound", "text"), EXAMPLES)
def test_an_example_proves_what_the_page_says(name: str, objective: str, bound: str, text: str) -> None:
    instance = load(name) if name else worked()
    instance = replace(instance, objective=objective or instance.objective)
    proof = BoundProof(instance.name, instance_sha256(instance), instance.objective, int(bound), json.loads(text))
    assert check_proof(instance, proof) is None
    assert check_proof(instance, replace(proof, bound=proof.bound + 1)) is not None


def test_the_commonest_kinds_have_an_example() -> None:
    assert {json.loads(text)["kind"] for *_, text in EXAMPLES} == KINDS


def test_every_equation_holds() -> None:
    found = [each for each in equations(PAGE) if re.match(r"\d|ceil|max", each)]
    assert len(found) >= len(EXAMPLES)
    assert [each for each in found if not holds(each)] == []
