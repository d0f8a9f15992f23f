"""Advice as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jigsaw_opt.sweeps.advice import MEASURES
from jigsaw_opt.text import printable
from jigsaw_opt.views.page import filled

__all__ = ["advice_html"]


def advice_html(document: Mapping[str, Any]) -> str:
    """The page: the answer, policies side by side with intervals, the settings that matter most, what was assumed.

    Names from the workload are data to the page and never markup.

    Parameters
    ----------
    document
        As of `advice_document`.
    """
    data = {**_printable(document), "measures": MEASURES}
    return filled("advice.html", f"advice for {document['request']['workload']}", data)


def _printable(value: Any) -> Any:
    """The same with every text printable."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable(str(key)): _printable(one) for key, one in value.items()}
        case list() | tuple():
            return [_printable(one) for one in value]
    return value
