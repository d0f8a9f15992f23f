"""Who may ask a service what: tokens with roles, from a file."""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta, Struct

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.serving.answers import misfits

Role = Literal["read", "submit", "operate"]
# From the one that may do least; each may do what those before it may.
ROLES: tuple[Role, ...] = get_args(Role)
# Kinds of events that the role ``submit`` may send; those on jobs that there are, only of its own.
OWN_EVENTS = frozenset({"submit", "cancel", "held", "released"})


_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _Token(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=200, description="a text of 1 to 200 characters")]
    role: Annotated[Role, Meta(description="read, submit or operate")]
    # A shorter one could be guessed.
    token: Annotated[Annotated[str, Meta(min_length=16)] | None, Meta(description="at least 16 characters long")] = None
    sha256: Annotated[_Digest | None, Meta(description="the SHA-256 of the token, 64 digits of 0-9 and a-f")] = None


class Caller(NamedTuple):
    """Who asks: a name, and a number in `ROLES`."""

    name: str = ""
    role: int = len(ROLES) - 1


class Tokens:
    """Tokens that are known, by their digests alone.

    `known`: whom each digest stands for.
    """

    def __init__(self, known: dict[bytes, Caller]) -> None:
        self._known = known

    def caller(self, authorization: str) -> Caller | None:
        """Return whom the header ``Authorization`` names; None for nobody that is known.

        All tokens are compared, each in constant time, so that the time tells nothing of them.
        """
        scheme, _, token = authorization.partition(" ")
        digest, found = sha256(token.strip().encode()).digest(), None
        for known, caller in self._known.items():
            if hmac.compare_digest(digest, known):
                found = caller
        return found if scheme.lower() == "bearer" else None


def read_tokens(path: Path) -> Tokens:
    """Return the tokens of a file: an object of JSON a line.

    Every line that is wrong is refused, and no message repeats a token.
    """
    report, known = Report(), dict[bytes, Caller]()
    for number, line in enumerate(read_text(path).splitlines(), 1):
        place = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            tree = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            tree = None
        wrong = ["is no object of JSON with 'token', 'name' and 'role'"]
        if isinstance(tree, dict):
            wrong = [f"{name!r} {told}" for name, told, _ in misfits(tree, _Token)]
        if wrong:
            report.add(place, "; ".join(wrong), code="malformed")
            continue
        one = msgspec.convert(tree, _Token)
        if (one.token is None) == (one.sha256 is None):
            report.add(place, f"{one.name!r} has neither or both of 'token' and 'sha256'", code="contradiction")
            continue
        digest = sha256(one.token.encode()).digest() if one.token else bytes.fromhex(one.sha256 or "")
        if digest in known:
            report.add(place, f"{one.name!r} has a token that stands there twice", code="duplicate-name")
        known[digest] = Caller(one.name, ROLES.index(one.role))
    if not known and not report.problems:
        report.add(str(path), "has no token", code="empty")
    report.raise_if_any()
    return Tokens(known)
