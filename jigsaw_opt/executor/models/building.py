"""From a model of an instance to the model that trains: its `executor` entry says what to build.

Nothing is imported because a document names it: a network of the user's own is built only if the caller trusts
exactly that ``module:function``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from jigsaw_opt.errors import UsageError, out_of_range, unsupported, wrong_input
from jigsaw_opt.executor.catalogue import check_trust, resolve
from jigsaw_opt.executor.models.importing import blame_own_code, own_function
from jigsaw_opt.executor.models.leveled_model import LeveledModel
from jigsaw_opt.executor.models.model_call import inputs_and_targets, require_scalar
from jigsaw_opt.executor.models.zoo import BUILDERS, Network
from jigsaw_opt.executor.models.zoo.network import Batch, moved
from jigsaw_opt.executor.randomness import begin_draws, draw_number, own_draws
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.report import Place, Report, quoted


class SegmentedModel(LeveledModel):
    """Segments in a row with a loss.

    A parameter that several segments share (an embedding's table that the output uses too, a module that stands in
    the row twice) is one parameter. It belongs to the segment nearest the input: only a backward pass that reaches it
    has its whole gradient, so shallower ones leave it out. The loss is part of the last segment.

    `names, segments`: name and module of each segment, from the input to the output. `loss`: mean loss over a batch,
    from the last segment's output and the targets. `levels`: level ``d`` (1-based) backpropagates the last
    ``levels[d-1]`` segments; rises strictly to their number.
    """

    def __init__(
        self,
        names: Sequence[str],
        segments: Sequence[nn.Module],
        loss: Callable[[Any, Any], Tensor],
        levels: Sequence[int],
    ) -> None:
        super().__init__()
        self.names, self.levels = tuple(names), tuple(levels)
        self.segments = nn.ModuleList(segments)
        self.loss = loss
        self._places = _told_apart(segments)
        self.starts = self._places[1:]
        owned = self.own_parameters()
        bounds = [self.cut(level) for level in range(len(levels) + 1)]
        self.buckets = tuple(tuple(p for own in owned[low:high] for p in own) for high, low in pairwise(bounds))

    def cut(self, level: int) -> int:
        """Return the number of segments that a backward pass to `level` leaves out; `level` 0 leaves out all."""
        return len(self.segments) - (self.levels[level - 1] if level else 0)

    def own_parameters(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Return trained parameters of each segment, a shared one only in the first."""
        *others, last = self.segments
        with_loss = nn.ModuleList([last, self.loss] if isinstance(self.loss, nn.Module) else [last])
        seen: set[nn.Parameter] = set()
        owned = []
        for segment in (*others, with_loss):
            own = tuple(p for p in segment.parameters() if p.requires_grad and p not in seen)
            seen.update(own)
            owned.append(own)
        return tuple(owned)

    def forward(self, inputs: Any) -> Any:
        """Return the output of the last segment."""
        for segment in self._places:
            inputs = segment(inputs)
        return inputs

    def loss_of(self, batch: Batch) -> Tensor:
        """Return the mean loss of a pair of inputs and targets."""
        inputs, targets = batch
        assert self.loss is not None
        return require_scalar(self.loss(self(inputs), targets))


def _told_apart(segments: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the segments, in a wrapper each that is called before already, so that its first call here is seen."""
    places: list[nn.Module] = []
    called: set[nn.Module] = set()
    for segment in segments:
        places.append(nn.Sequential(segment) if segment in called else segment)
        called.update(segment.modules())
    return places


@dataclass(frozen=True)
class Replica:
    """A model that trains, and its data."""

    model: SegmentedModel
    network: Network
    batch_size: int

    def batch(self, seed: int, worker: int, iteration: int) -> Batch:
        """Return the batch of a worker in an iteration: the same one whenever it is asked for.

        All generators of random numbers of this process begin anew (`begin_draws`), so that whatever the batch and
        what follows it draw depends on these numbers alone.
        """
        number = draw_number(seed, worker, iteration)
        begin_draws(number)
        return inputs_and_targets(self.network.batch(self.batch_size, torch.Generator().manual_seed(number)), False)


def build(name: str, model: Model, trusted: Collection[str] = (), seed: int = 0) -> Replica:
    """Return the replica that the `executor` entry of `model` describes, equal for equal seeds.

    Parameters
    ----------
    name, model
        A model of an instance and its name. Each segment is a run of units of the network and is called after
        the first and the last of them, as in ``stem-stage1.0``, or after the only one.
    trusted
        ``module:function`` that may be imported.
    seed
        Seed of the initial parameters.

    Raises
    ------
    InvalidInputError
        There is no such entry, or with every problem of it.
    """
    place: Place = (("$", "models"), name)
    if model.executor is None:
        raise wrong_input(f"$.models.{name}", 'has no "executor", so it cannot be built', code="missing-field")
    entry = model.executor
    network = build_network(entry["zoo"], entry["arguments"], trusted, seed, (place, "executor"))
    report = Report()
    runs = _runs([segment.name for segment in model.segments], list(network.units), (place, "segments"), report)
    report.raise_if_any()
    return replica(network, runs, entry["batch_size"], model.levels)


def replica(network: Network, bounds: Sequence[int], batch_size: int, levels: Sequence[int] = ()) -> Replica:
    """Return the replica of `network` in segments.

    `bounds`: indices of units where a segment begins, and their number at the end. `levels`: as in an instance; empty
    means 1, 2, ..., L.
    """
    names, units = list(network.units), list(network.units.values())
    if not any(parameter.requires_grad for unit in units for parameter in unit.parameters()):
        raise UsageError("the network has no parameter that is trained", code="empty", path="network")
    segments = [units[low] if high == low + 1 else nn.Sequential(*units[low:high]) for low, high in pairwise(bounds)]
    called = [run_name(names[low:high]) for low, high in pairwise(bounds)]
    model = SegmentedModel(called, segments, network.loss, levels or range(1, len(segments) + 1))
    return Replica(model, network, batch_size)


def run_name(units: Sequence[str]) -> str:
    """Return the name of a segment that holds `units`, as `build` reads it back."""
    return units[0] if len(units) == 1 else f"{units[0]}-{units[-1]}"


def _runs(segments: Sequence[str], units: Sequence[str], place: Place, report: Report) -> list[int]:
    """Return bounds of the runs of `units` that the names of `segments` tell; they must be all units in order."""
    ends = {
        run_name(units[low : high + 1]): (low, high) for low in range(len(units)) for high in range(low, len(units))
    }
    bounds = [0]
    for index, name in enumerate(segments):
        low, high = ends.get(name, (None, bounds[-1]))
        if low is None:
            report.add_misspelt(
                (place, index), f"{quoted(name)} is no run of units of the network", name, units, code="unknown-name"
            )
        elif low != bounds[-1]:
            message = f"{quoted(name)} must begin at the unit {quoted((*units, 'end')[bounds[-1]])}"
            report.add((place, index), message, code="wrong-order")
        bounds.append(high + 1)
    if bounds[-1] != len(units) and not report.problems:
        report.add(place, f"end before the unit {quoted(units[bounds[-1]])}", code="wrong-count")
    return bounds


def build_network(
    zoo: str, arguments: Mapping[str, Any], trusted: Collection[str] = (), seed: int = 0, place: Place = "$"
) -> Network:
    """Build a network of the zoo, or the user's own where `zoo` is a trusted ``module:function``.

    Such a function takes the arguments by name and returns a ``torch.nn.Sequential``, a loss of output and
    targets, and a function that draws a batch from its size and a ``torch.Generator``.
    """
    report = Report()
    is_own, family = ":" in zoo, zoo
    if is_own:
        check_trust(zoo, trusted, (place, "zoo"), report)
    else:
        family, arguments = resolve(zoo, arguments, place, report)
    report.raise_if_any()
    builder = own_function(zoo, arguments, place) if is_own else BUILDERS[family]
    with own_draws(seed), blame_own_code(zoo):
        made = builder(**arguments)
        return own_network(made) if is_own else made


def own_network(made: object) -> Network:
    """Return the network of a row of modules, a loss and a batch source; raise `UsageError` for anything else."""
    match made:
        case nn.Sequential() as model, loss, batch if len(model) and callable(loss) and callable(batch):
            _require_row(model)
            _require_run_names(list(model._modules))
            _require_parameters(loss, "loss", "output and targets")
            _require_parameters(batch, "batch source", "a number of samples and a torch.Generator")
            # By position: what `named_children` gives leaves out the repetitions of a module.
            return Network(dict(zip(model._modules, model, strict=True)), loss, batch)
        case _:
            message = "a function of your own returns (torch.nn.Sequential with modules, loss, batch source)"
            raise UsageError(message, code="wrong-type")


def _require_row(model: nn.Sequential) -> None:
    """Refuse what is more than its modules in a row, for these alone would be trained."""
    if type(model).forward is not nn.Sequential.forward or "forward" in vars(model):
        message = "the torch.nn.Sequential has a forward of its own, which units do not have: make it a module"
        raise unsupported("forward", message)
    if any(hooks for name, hooks in vars(model).items() if name.endswith("_hooks") and "state_dict" not in name):
        raise unsupported("hooks", "the torch.nn.Sequential has hooks, which units do not have: hook its modules")
    if any(map(is_lazy, chain(model.parameters(), model.buffers()))):
        message = "the torch.nn.Sequential has lazy modules: run it on a batch once before it is returned"
        raise unsupported("lazy", message)


def _require_parameters(function: Callable[..., Any], called: str, taken: str) -> None:
    """Refuse a function of the user's own that cannot be called with two arguments."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        code = getattr(function, "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        raise UsageError(
            f"the {called}{where} takes {taken}; it cannot be called so: {error}", code="wrong-type", path=called
        ) from error
    except ValueError:  # a function in C that does not tell its parameters
        return


def _require_run_names(units: Sequence[str]) -> None:
    """Refuse units of which two runs have one name, so that a document would not say which of them is meant."""
    if not any("-" in unit for unit in units):
        return  # names without a hyphen are told apart by the first
    runs: dict[str, tuple[int, int]] = {}
    for low, high in combinations_with_replacement(range(len(units)), 2):
        name = run_name(units[low : high + 1])
        other = runs.setdefault(name, (low, high))
        if other != (low, high):
            told = " and ".join(f"units {first} to {last}" for first, last in (other, (low, high)))
            message = f"{told} (from 0) would both be the segment {quoted(name)}: rename one, without hyphens"
            raise UsageError(message, code="duplicate-name")


def even_segments(network: Network, parts: int) -> tuple[int, ...]:
    """Return bounds that cut a network where its forward operations are shared most evenly.

    Operations are counted without doing them. With at least as many `parts` as units, each unit is a segment.

    Indices of units: segment k has the units from bound k up to bound k + 1.
    """
    from jigsaw_opt.instances.profiles import even_bounds

    if parts < 1:
        raise out_of_range("segments", f"a model needs at least 1 segment, not {parts}")
    if parts >= len(network.units):
        return tuple(range(len(network.units) + 1))
    return even_bounds(_operations(network), parts)


def _operations(network: Network) -> list[int]:
    """Return floating-point operations of each unit in a forward pass over two samples, counted on shapes."""
    from torch.func import functional_call
    from torch.utils.flop_counter import FlopCounterMode

    values, _ = network.batch(2, torch.Generator().manual_seed(0))
    values = moved(values, "meta")
    counts = []
    for name, unit in network.units.items():
        shapes = moved(dict(chain(unit.named_parameters(), unit.named_buffers())), "meta")
        try:
            with torch.no_grad(), FlopCounterMode(display=False) as counter:
                values = functional_call(unit, shapes, (values,))
        except (RuntimeError, NotImplementedError) as error:
            message = f"the operations of {name} cannot be counted: {error}; with more segments each unit is one"
            raise UsageError(message, code="failed") from error
        counts.append(counter.get_total_flops())
    return counts
