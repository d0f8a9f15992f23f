"""A module around another one that shows it under its own names, with hooks that keep nothing alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor, nn

from jigsaw_opt.errors import unsupported


class ModuleWrapper(nn.Module):
    """A wrapper in place of a module: its attributes, parameters and states are the module's."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.register_load_state_dict_pre_hook(_add_prefix)  # type: ignore[no-untyped-call]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)

    def _fqn_modifiers(self) -> dict[str, str]:
        """Have `torch.distributed.checkpoint` leave out the name under which the module is held."""
        return {"": "module"}

    def _replicate_for_data_parallel(self) -> Any:
        message = "DataParallel around PartialBackprop would train copies of it: start a process for each device"
        raise unsupported("module", message)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the module within."""
        self.module.compile(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's, under its own names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load one of the module."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the module's, under its own names."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """Yield the module's, under its own names."""
        return self.module.named_buffers(*args, **kwargs)


def _add_prefix(wrapper: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Give the module's own names those under which the wrapper holds it."""
    for key in [key for key in state if key.startswith(prefix)]:
        state[f"{prefix}module.{key[len(prefix) :]}"] = state.pop(key)


class WeakCall:
    """A call of a method, as long as its object lives; a copy or what is pickled of it calls nothing.

    `method`: the bound method; None for a call of nothing.
    """

    def __init__(self, method: Callable[..., None] | None = None) -> None:
        self._method = None if method is None else weakref.WeakMethod(method)

    def __call__(self, *args: Any) -> None:
        """Call the method."""
        method = None if self._method is None else self._method()
        if method is not None:
            method(*args)

    def __reduce__(self) -> tuple[type[WeakCall], tuple[()]]:
        """Leave the method behind."""
        return WeakCall, ()


_known: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()


def sharing(wrapper: nn.Module) -> WeakSet[Any]:
    """Return the other wrappers for which this has been asked that hold some parameter of `wrapper`."""
    if wrapper not in _known:
        own = set(wrapper.parameters())
        _known[wrapper] = WeakSet(other for other in _known if not own.isdisjoint(other.parameters()))
        for other in _known[wrapper]:
            _known[other].add(wrapper)
    return _known[wrapper]
