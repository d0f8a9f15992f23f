"""The former name of `jigsaw_opt.problem.task_graph`; kept for one release."""

from __future__ import annotations

from jigsaw_opt.system.former_names import former_names

_NOW = {
    "Hold": "MemoryInterval",
    "Shape": "TaskGraph",
    "ShapedBlock": "TaskGraphBlock",
    "ShapedJob": "TaskGraphJob",
    "ShapedTransfer": "TaskGraphTransfer",
    **{name: name for name in ("Barrier", "Edge", "MemoryInterval", "Slot")},
}
__getattr__ = former_names(__name__, {old: f"jigsaw_opt.problem.task_graph.{new}" for old, new in _NOW.items()})
