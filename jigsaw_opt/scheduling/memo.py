"""Results of methods, kept by their arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def memoised(method: Method) -> Method:
    """Keep what a method returns for the arguments, as long as its object lives; the object can still be pickled."""
    kept = f"_kept_{method.__name__}"

    @wraps(method)
    def known(own: object, *key: object) -> Any:
        found = own.__dict__.get(kept)
        if found is None:
            found = own.__dict__[kept] = {}
        if key not in found:
            found[key] = method(own, *key)
        return found[key]

    return known  # type: ignore[return-value]
