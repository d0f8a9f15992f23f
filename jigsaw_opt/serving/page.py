"""The page of a service: one document that loads nothing, and headers by which a browser runs nothing else in it."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from jigsaw_opt.serving.tokens import ROLES
from jigsaw_opt.views.lanes import job_colour
from jigsaw_opt.views.page import filled

_COLOURS = 64


class Page(NamedTuple):
    """A page, and the headers that go with it."""

    text: str
    headers: dict[str, str]


@cache
def cluster_page() -> Page:
    """Return the page that shows a cluster; all that is of the cluster, it asks the service for.

    What the page holds itself is known by its hash. A script that comes into it otherwise does not run, and no other
    host is reached, whatever the service tells.
    """
    colours = [job_colour(index) for index in range(_COLOURS)]
    text = filled("cluster.html", "cluster", {"colours": colours, "roles": ROLES})
    allowed = {
        "default-src": "'none'",
        "script-src": _hashes("script", text),
        "style-src": _hashes("style", text),
        "connect-src": "'self'",
        "img-src": "data:",
        **dict.fromkeys(("base-uri", "form-action", "frame-ancestors"), "'none'"),
    }
    policy = "; ".join(f"{name} {sources}" for name, sources in allowed.items())
    others = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    return Page(text, {"Content-Security-Policy": policy, **others})


def _hashes(tag: str, text: str) -> str:
    """Return the sources of a policy that allow each element of a kind in a page."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(part.encode()).digest()).decode()}'" for part in found)
