"""A whole module as a chain of modules within it, each of which takes what the one before it returns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.partial.forward_order import undisturbed_outputs
from jigsaw_opt.executor.partial.outputs import tensors

__all__ = ["ChainPart", "module_chain"]


class ChainPart(nn.Module):
    """Modules that run one after the other, under the names that they have in the whole model."""

    def __init__(self, chain: Sequence[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.names, self._order = tuple(name for name, _ in chain), tuple(module for _, module in chain)
        for name, module in chain:
            *above, own = name.split(".")
            holder: nn.Module = self
            for step in above:
                if step not in holder._modules:
                    holder.add_module(step, nn.Module())
                holder = holder.get_submodule(step)
            holder.add_module(own, module)

    def forward(self, inputs: Any) -> Any:
        """Return what the last module returns."""
        for module in self._order:
            inputs = module(inputs)
        return inputs


@dataclass
class _Call:
    """A call of a module: its tensors, and the calls within it."""

    name: str
    module: nn.Module
    inputs: list[Tensor]
    outputs: Any = None
    inner: list[_Call] = field(default_factory=list)


def module_chain(source: str, model: nn.Module, cuts: Collection[str], inputs: Any) -> list[tuple[str, nn.Module]]:
    """Return the modules that a model calls one after the other, divided as far as the cuts ask for.

    The model is run once on the inputs, and left as it was.
    """
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    with _observed(model) as calls:
        undisturbed_outputs(model, args, {})
    chain = [(call.name, call.module) for call in _divided(source, calls[0], cuts)]
    names = [name for name, _ in chain]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise _refused(f"{source} calls {', '.join(map(repr, twice))} twice, so no stage can have it alone")
    held = {p for _, module in chain for p in module.parameters()}
    if left := [name for name, p in model.named_parameters() if p not in held]:
        raise _refused(f"{', '.join(map(repr, left))} of {source} are in no module that is called")
    return chain


@contextmanager
def _observed(model: nn.Module) -> Iterator[list[_Call]]:
    """Note the calls in the block, those of the model itself first, each with the calls within it."""
    found: list[_Call] = []
    under_way: list[_Call] = []
    names = {module: name for name, module in model.named_modules()}

    def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
        call = _Call(names[module], module, list(tensors((args, kwargs))))
        (under_way[-1].inner if under_way else found).append(call)
        under_way.append(call)

    def end(module: nn.Module, args: Any, outputs: Any) -> None:
        under_way.pop().outputs = outputs

    with ExitStack() as stack:
        for module in names:
            stack.callback(module.register_forward_pre_hook(begin, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(end).remove)
        yield found


def _divided(source: str, call: _Call, cuts: Collection[str]) -> list[_Call]:
    """Return the calls of which a call consists, down to the cuts."""
    within = f"{call.name}." if call.name else ""
    if not any(cut.startswith(within) and cut != call.name for cut in cuts) or not call.inner:
        return [call]
    given, before = call.inputs, "the input"
    for inner in call.inner:
        if len(given) != 1 or len(inner.inputs) != 1 or inner.inputs[0] is not given[0]:
            raise _between(source, call.name, before, f"{inner.name!r}")
        given, before = list(tensors(inner.outputs)), f"{inner.name!r}"
    if len(given) != 1 or call.outputs is not given[0]:
        raise _between(source, call.name, before, "the output" + (f" of {call.name!r}" if call.name else ""))
    return [part for inner in call.inner for part in _divided(source, inner, cuts)]


def _between(source: str, name: str, before: str, after: str) -> UsageError:
    of = f"module {name!r} of " if name else ""
    return _refused(
        f"between {before} and {after}, {of}the model that {source} returns does more than hand one tensor on: "
        "put what it does there into a module, or return a module a stage"
    )


def _refused(message: str) -> UsageError:
    return UsageError(message, code="unsupported", path="cuts")
