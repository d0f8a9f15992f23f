"""Advice as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jigsaw_opt.sweeps.advice import MEASURES
from jigsaw_opt.text import counted, printable
from jigsaw_opt.views.measures import MEASURES as MEANINGS
from jigsaw_opt.views.page import filled
from jigsaw_opt.views.policy_words import described

__all__ = ["advice_html"]


def advice_html(document: Mapping[str, Any]) -> str:
    """Return the page: the answer, policies with intervals, the settings that matter most, what was assumed.

    Names from the workload are data to the page and never markup.
    """
    assumed = document["assumed"]
    simulations = f"{document['finished']:,} of {counted(document['runs'], 'simulation')}"
    data = {
        **_printable(document),
        "about": printable(
            "; ".join([*(assumed[key] for key in ("workload", "cluster") if key in assumed), simulations])
        ),
        "measures": MEASURES,
        "meanings": {key: MEANINGS[key].meaning for key in MEASURES},
        "described": described(policy["policy"] for policy in document["policies"]),
    }
    return filled("advice.html", f"advice for {document['request']['workload']}", data)


def _printable(value: Any) -> Any:
    """Return the same with every text printable."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable(str(key)): _printable(one) for key, one in value.items()}
        case list() | tuple():
            return [_printable(one) for one in value]
    return value
