"""Stages of the user's own model: where it is cut, and what its parts are called in the whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from torch import Tensor, nn

from jigsaw_opt.errors import UsageError, mismatch, unsupported
from jigsaw_opt.executor.partial.forward_order import undisturbed_outputs
from jigsaw_opt.executor.partial.outputs import tensors
from jigsaw_opt.executor.user_code.batch_source import generators_kept, one_pass


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
        message = f"{source} calls {', '.join(map(repr, twice))} twice, so no stage can have it alone"
        raise unsupported("cuts", message)
    held = {p for _, module in chain for p in module.parameters()}
    if left := [name for name, p in model.named_parameters() if p not in held]:
        raise unsupported("cuts", f"{', '.join(map(repr, left))} of {source} are in no module that is called")
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
    return unsupported(
        "cuts",
        f"between {before} and {after}, {of}the model that {source} returns does more than hand one tensor on: "
        "put what it does there into a module, or return a module a stage",
    )


class StageModules(nn.Module):
    """The stages of one process, whose state has the names of the whole model.

    `own`: the stages by number. `names`: by stage of the whole model, what stands before its names there.
    """

    def __init__(self, own: Mapping[int, nn.Module], names: Sequence[str]) -> None:
        super().__init__()
        self.own, self.names = own, names
        self.held = nn.ModuleList(own.values())

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return parameters and buffers, under the whole model's names."""
        return {self.names[k] + key: value for k, own in self.own.items() for key, value in own.state_dict().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load what `state_dict` gives."""
        for stage, module in self.own.items():
            module.load_state_dict({key: state_dict[self.names[stage] + key] for key in module.state_dict()})


def stage_modules(
    name: str, model: Any, cuts: Sequence[str], stages: int, loader: Any = None
) -> tuple[list[nn.Module], list[str]]:
    """Return a module a stage, and what stands before the names of its parameters in the whole model.

    `model`: A `Sequential`, a list with a module a stage, or a module that calls others one after the other. `cuts`:
    qualified names of the first module of each stage but the first, or in a `Sequential` of a run of modules that
    begins with it, as in ``3-4``; none where the model has a module a stage. `loader`: gives a batch by which the order
    of calls is seen, where the model is no `Sequential` of the cuts.
    """
    named = list(model.named_children()) if isinstance(model, (nn.Sequential, nn.ModuleList)) else []
    if cuts:
        known = [child for child, _ in named]
        runs = {f"{first}-{last}": first for first, last in combinations(known, 2)}
        is_sequential = type(model) is nn.Sequential
        if isinstance(model, nn.Module) and loader is not None and not (is_sequential and {*cuts} <= {*known, *runs}):
            with generators_kept(loader):  # the loader begins anew for training
                inputs = next(iter(one_pass(loader)))[0]
            named = module_chain(name, model, cuts, inputs)
            known, runs, is_sequential = [child for child, _ in named], {}, True
        at = [known.index(runs.get(cut, cut)) for cut in cuts if cut in known or cut in runs]
        if not is_sequential or at != sorted({*at} - {0}) or not len(cuts) == len(at) == stages - 1:
            wanted = (
                f"{stages} stages need {stages - 1} cuts, modules that are called in their order without the first one"
            )
            shown = ", ".join(map(repr, known)) or f"a model of type {type(model).__name__}"
            message = f"{wanted}; {name} returns {shown}, and the cuts are {', '.join(map(repr, cuts))}"
            raise UsageError(message, code="wrong-type", path="cuts")
        modules: list[nn.Module] = [ChainPart(named[a:b]) for a, b in pairwise([0, *at, len(named)])]
        names = [""] * stages
    else:
        listed = [(f"{k}", module) for k, module in enumerate(model)] if isinstance(model, (list, tuple)) else named
        modules, names = [module for _, module in listed], [f"{child}." for child, _ in listed]
        if len(modules) != stages or not all(isinstance(module, nn.Module) for module in modules):
            shown = f"{len(modules)} modules" if modules else f"an object of type {type(model).__name__}"
            raise mismatch(
                "model",
                f"the plan has {stages} stages, and the model that {name} returns is {shown}: "
                'return a module a stage, or a Sequential and say its "cuts"',
            )
    owner: dict[nn.Parameter, int] = {}
    for stage, module in enumerate(modules):
        for parameter in module.parameters():
            if owner.setdefault(parameter, stage) != stage:
                message = f"stages {owner[parameter]} and {stage} of what {name} returns share a parameter"
                raise UsageError(message, code="duplicate-name", path="model")
    return modules, names
