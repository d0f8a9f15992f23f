"""Parts of an instance, which check themselves when they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.rules.cluster import check_cluster
from jigsaw_opt.problem.rules.instance import check_instance
from jigsaw_opt.problem.rules.keyed import Keyed
from jigsaw_opt.problem.rules.model import check_model
from jigsaw_opt.problem.rules.report import Place, Report, quoted, report_oddities
from jigsaw_opt.problem.rules.structure import structure_of_part
from jigsaw_opt.problem.rules.task_graph import check_task_graph

_MEANING: Mapping[str, Callable[[Any, Place, Report], None]] = {
    "cluster": check_cluster,
    "model": check_model,
    "shape": check_task_graph,
    "#": check_instance,
}
"""Checks of what the schema cannot state of a part, by its definition there."""


class CheckedPart(Keyed):
    """A part of an instance; making one raises InvalidInputError with all that is wrong with it.

    Problems of an instance have the paths of its document, those of a part begin with its class and name.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        tree, report = self.keyed(), Report()
        report_oddities(tree, report, "$")
        structure_of_part(self.definition)(tree, "$", report)
        if self.definition in _MEANING:
            _MEANING[self.definition](tree, "$", report)
        if report.problems:
            root = "$" if self.definition == "#" else _called(type(self).__name__, getattr(self, "name", None))
            raise InvalidInputError(
                replace(problem, path=root + problem.path.removeprefix("$")) for problem in report.problems
            )


def _called(kind: str, name: object) -> str:
    return f"{kind}({quoted(name)})" if isinstance(name, str) else kind
