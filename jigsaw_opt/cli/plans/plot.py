"""Draw a plan: an interactive HTML timeline that needs no network, a PNG or SVG picture, or text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import A_PROOF, PLAN, Arguments
from jigsaw_opt.cli.common.options import checked_plan, given_proof
from jigsaw_opt.cli.common.output import emit, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout
from jigsaw_opt.errors import UsageError, missing_option, not_together
from jigsaw_opt.text import nearest

if TYPE_CHECKING:
    from jigsaw_opt.problem.bound_proof import BoundProof
    from jigsaw_opt.views.image import ImageForm
    from jigsaw_opt.views.lanes import Picture

EXAMPLE = "jigsaw plot server/demo plan.json -o timeline.html"
_IMAGES: dict[str, ImageForm] = {"png": "png", "svg": "svg"}
_FORMS = {".html": "html", ".htm": "html", ".png": "png", ".svg": "svg", ".txt": "text", "": "text"}
"""Formats by the endings of files."""
ARGUMENTS: Arguments = {
    **PLAN,
    "--replay FILE": "a replay of the plan, shown beside it",
    "--proof PROOF": f"check {A_PROOF}, and tell it on the page instead of another one",
    "--foreground NAME[,NAME]": "draw these jobs in grey, and say what share of the rest is filled",
    "-o, --output FILE": {"help": "where to write (default: text to the terminal)", "type": file_or_stdout},
    "--to html|png|svg|text": "format (default: by the file's ending, else text)",
}


def run(arguments: argparse.Namespace) -> int:
    """Check the plan, draw it, write it."""
    from jigsaw_opt.checking.require import require_right
    from jigsaw_opt.views.replay import picture_of

    require_output(arguments.output, arguments.instance, arguments.plan, arguments.replay, arguments.proof)
    form = arguments.to or _form(arguments.output)
    if form in _IMAGES and arguments.output is None:
        raise missing_option("-o", f"a picture in {form.upper()} needs a file: -o FILE.{form}")
    if arguments.foreground is not None and arguments.replay is not None:
        raise not_together("--foreground", "--foreground is about a plan; leave out --replay")
    if arguments.proof is not None and (form != "html" or arguments.replay is not None):
        how = "give -o FILE.html" if form != "html" else "leave out --replay"
        raise not_together("--proof", f"--proof is told on the page of a plan: {how}")
    instance, plan = checked_plan(arguments.instance, arguments.plan)
    proof = given_proof(arguments)
    if proof is not None:
        require_right(instance, proof, plan)
    picture = picture_of(instance, plan, arguments.replay)
    if arguments.foreground is not None:
        picture = _with_foreground(picture, arguments.foreground)
    emit(_draw(picture, form, arguments.replay is None, proof), arguments.output)
    return 0


def _with_foreground(picture: Picture, names: str) -> Picture:
    from dataclasses import replace

    chosen = frozenset(name.strip() for name in names.split(","))
    known = [job.name for job in picture.instance.jobs]
    unknown = sorted(chosen.difference(known))
    if unknown:
        raise UsageError(
            *(f"the plan has no job {name!r}; {nearest(name, known)}" for name in unknown),
            code="unknown-name",
            path="--foreground",
        )
    return replace(picture, foreground=chosen)


def _form(output: Path | None) -> str:
    ending = output.suffix.lower() if output else ""
    if ending not in _FORMS:
        known = ", ".join(filter(None, _FORMS))
        told = f"{output}: no format has the ending {ending!r}; known are {known}, others take --to"
        raise UsageError(told, code="unknown-format", path="-o")
    return _FORMS[ending]


def _draw(picture: Picture, form: str, explained: bool = True, proof: BoundProof | None = None) -> bytes:
    if form == "html":
        from jigsaw_opt.views.explained import explained_picture
        from jigsaw_opt.views.html import timeline_html

        return timeline_html(explained_picture(picture, proof=proof) if explained else picture).encode()
    if form in _IMAGES:
        from jigsaw_opt.views.image import timeline_image

        return timeline_image(picture, _IMAGES[form])
    from jigsaw_opt.views.text import timeline_text

    return (timeline_text(picture) + "\n").encode()
