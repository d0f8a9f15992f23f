"""Validate documents; list every problem of every file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import print_json, print_problems
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.text import printable

EXAMPLE = "jigsaw validate instance.json plan.json"
ARGUMENTS: Arguments = {
    "files FILE ...": "a document of any kind, such as an instance, a plan or a proof of a bound",
    "--json": "print the problems as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Validate all files and print what is wrong with each."""
    from dataclasses import asdict

    found: dict[Path, tuple[Problem, ...]] = {}
    for path in arguments.files:
        try:
            _load(path)
            found[path] = ()
        except InvalidInputError as error:
            found[path] = error.problems
    if arguments.json:
        print_json(
            [
                {"file": str(path), "valid": not problems, "problems": [asdict(problem) for problem in problems]}
                for path, problems in found.items()
            ]
        )
    else:
        for path, problems in found.items():
            print(f"{printable(str(path))}: {'valid' if not problems else f'{len(problems)} problem(s)'}")
            sys.stdout.flush()
            print_problems(problems)
    return InvalidInputError.exit_code if any(found.values()) else 0


def _load(path: Path) -> None:
    """Read a document of any kind; raise InvalidInputError with all that is wrong with it."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.files import decode_document
    from jigsaw_opt.documents.recognising import stated_kind

    data = read_text(path)
    if stated_kind(data) == "partition":
        from jigsaw_opt.planning.partition.result import decode_partition

        decode_partition(data, str(path))
    else:
        decode_document(data, str(path))
