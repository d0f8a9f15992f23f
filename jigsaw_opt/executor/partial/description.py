"""What each level of a model reaches, as numbers and as a table."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.executor.partial.parts import ModelParts


@dataclass(frozen=True, slots=True)
class LevelReach:
    """The reach of a backward pass to a level.

    `cut`: module at whose first call the level begins; None for full depth. `share`: share of the time of the whole
    backward pass; None where none could be timed, for no output has a graph.
    """

    level: int
    cut: str | None
    parameters: int
    gradient_bytes: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Description:
    """The levels of a model, from the output on; as text it is a table.

    `levels`: what each level reaches, from level 1. `unused`: trained numbers that no first pass used, so that they
    belong to the deepest level alone.
    """

    levels: tuple[LevelReach, ...]
    unused: int = 0

    def __str__(self) -> str:
        rows = [("level", "from", "parameters", "bytes", "share")]
        rows += [
            (
                str(level.level),
                level.cut or "the input",
                f"{level.parameters:,}",
                f"{level.gradient_bytes:,}",
                _percent(level.share),
            )
            for level in self.levels
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) if at == 1 else cell.rjust(width) for at, (cell, width) in enumerate(pairs))
            for pairs in (zip(row, widths, strict=True) for row in rows)
        ]
        if self.unused:
            lines.append(f"the first pass did not use {self.unused:,} of these parameters: they are in the last level")
        return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"


def describe(parts: ModelParts) -> Description:
    """Return what the levels reach."""
    trained = [(bucket, p) for p, bucket in parts.buckets.items() if p.requires_grad]
    total_us = sum(parts.backward_us)
    rows = []
    for level in range(1, parts.depth + 1):
        own = [p for bucket, p in trained if bucket <= level]
        rows.append(
            LevelReach(
                level,
                parts.cuts[-level] if level < parts.depth else None,
                sum(p.numel() for p in own),
                sum(p.nbytes for p in own),
                sum(parts.backward_us[-level:]) / total_us if total_us else None,
            )
        )
    return Description(tuple(rows), sum(p.numel() for p in parts.unused if p.requires_grad))
