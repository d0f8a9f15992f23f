"""Print the JSON Schema of a document."""

from __future__ import annotations

import argparse

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import print_json

ARGUMENTS: Arguments = {
    "document instance|plan|phased-plan|replay|phased-replay|partition|layers|proof|result": "which document"
}


def run(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    from jigsaw_opt.documents import schema

    print_json(schema(arguments.document))
    return 0
