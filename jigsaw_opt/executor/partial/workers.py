"""The workers that train one model: what they agree on before each exchange, and who still has batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import RunFailedError, UsageError, mismatch, not_together, unsupported, wrong_order
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.exchange.compression import CompressedExchange
from jigsaw_opt.executor.exchange.local_steps import LocalSteps
from jigsaw_opt.executor.partial.agreement import (
    gathered_number,
    is_sharded,
    model_facts,
    place_in,
    require_batches,
    require_equal_parameters,
    require_equal_passes,
    require_equal_shapes,
)
from jigsaw_opt.executor.partial.averaging import (
    CommunicationHook,
    GradientAverage,
    ParameterRun,
    broadcast,
    contributor_share,
    runs_of,
    sample_factor,
    without,
)
from jigsaw_opt.executor.partial.forward_order import ForwardOrder
from jigsaw_opt.executor.partial.level_rules import LevelRule
from jigsaw_opt.executor.partial.noise import GradientNoise
from jigsaw_opt.executor.partial.parts import ModelParts, split, split_alike
from jigsaw_opt.executor.partial.passes import BackwardPass
from jigsaw_opt.executor.partial.transfers import next_number, own_group, send
from jigsaw_opt.executor.partial.turns import Turns
from jigsaw_opt.problem.costs import contributors

_LOCAL = "with average_every above 1 workers exchange no gradients, have whole parameters and do all iterations"
_TOLD = {"hook": "a communication hook", "levels": "a plan that is followed", "module": "FSDP"}
"""Arguments that do not go with it and have other names in a sentence."""


class Workers:
    """All workers of a model, as one of them sees them.

    `group`: their processes; None for the default group, or for a worker alone. `broadcast_buffers`: whether all get
    the buffers of the first one after each backward pass. `noise`: what is told of gradients in each iteration.
    `samples`: how many this worker's next gradient is a mean of; None where workers count alike.
    `rank, count`: place of this worker among all, from 0, and how many there are. `hook`: what exchanges gradients in
    place of the exchange. `local`: what averages parameters in place of gradients, now and then.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        broadcast_buffers: bool,
        noise: GradientNoise,
        average_every: int,
    ) -> None:
        self.group, self._broadcast_buffers, self.noise = group, broadcast_buffers, noise
        self.rank, self.count = place_in(group)
        self.hook: CommunicationHook | None = None
        self.local = LocalSteps(average_every)
        if noise.every:
            self._require_exchange("efficiency_every")
        self._number = 1
        self._joins = self._join_raises = False
        self._ended: frozenset[int] = frozenset()
        self.samples: int | None = None
        self._levels, self._samples = [1] * self.count, [1] * self.count
        self._runs: list[ParameterRun] = []
        self._facts: dict[str, str] = {}
        self._buckets: dict[int, list[nn.Parameter]] = {}

    @property
    def exchanges(self) -> bool:
        """Whether gradients are exchanged at the end of a backward pass."""
        return self.count > 1 and self.local.every == 1

    def _require_exchange(self, what: str) -> None:
        if self.local.every > 1:
            raise not_together(what, f"{_LOCAL}: leave out {_TOLD.get(what, what)}")

    def begin_iteration(
        self, module: nn.Module, parts: ModelParts, iteration: int, rule: LevelRule, turns: Turns | None
    ) -> None:
        """Average parameters where that is due; raise `UsageError` under FSDP and where a plan is followed."""
        for what, is_there in ("levels", turns), ("samples", self.samples), ("module", is_sharded(module) or None):
            if is_there is not None:
                self._require_exchange(what)
        if self.count > 1 and self.local.is_due(iteration, parts.buckets):
            self.average_parameters(module, parts, iteration, rule)

    def average_parameters(self, module: nn.Module, parts: ModelParts, iteration: int, rule: LevelRule) -> None:
        """Average parameters after local steps; raise where the processes are not at the same iteration."""
        if self.count == 1 or self.local.first is None:
            return
        levels = [rule(number) for number in range(self.local.first, iteration)]
        facts = self._pass_facts(module, iteration, rule(iteration))

        def average() -> None:
            self._agree(facts, iteration)
            self.local.average(parts.buckets, levels, own_group(self.group))
            if self._broadcast_buffers:
                self._share(list(module.buffers()), 0)

        send(average, self._runs[0].stream).result()
        self.local.begin(iteration, parts.buckets)

    def begin_alike(self, module: nn.Module) -> None:
        """Give all workers the parameters and buffers of the first one; raise `UsageError` if shapes differ."""
        if self.count > 1:
            require_equal_shapes(module, self.group)
            self._number = next_number(self.group)
            broadcast([*module.parameters(), *module.buffers()], self.group)

    def exchange_by(self, state: Any, hook: Any) -> None:
        """Have a hook exchange gradients; raise `UsageError` if it is no function, or there is one already."""
        if not callable(hook):
            raise UsageError(f"a communication hook is a function, not {hook!r}", code="wrong-type", path="hook")
        self._require_exchange("hook")
        if self.hook is not None:
            raise UsageError("there is a communication hook already", code="duplicate-name", path="hook")
        self.hook = CommunicationHook(state, hook)

    def split(self, module: nn.Module, order: ForwardOrder, cuts: Sequence[str] | int) -> ModelParts:
        """Cut the module alike on all workers; raise as `parts.split`, or where some have no batch."""
        if self.count == 1:
            return split(module, order, cuts)
        require_batches(module, self.group, has_batch=True)
        own_group(self.group)  # all processes make it now, and none in a backward pass
        return split_alike(module, order, cuts, self.group)

    def require_common(self, iteration: int) -> None:
        """Raise `UsageError` where the workers have taken steps of their own before this iteration."""
        if self.local.first not in (None, iteration):
            message = (
                f"the workers' parameters differ at iteration {iteration}: before another one is set or the wrapper "
                "is pickled, call average_parameters() or load_state_dict()"
            )
            raise wrong_order("iteration", message)

    def forget(self) -> None:
        """Know of no earlier gradients and of no common parameters, for parameters are others now."""
        if self.hook is not None and isinstance(self.hook.hook, CompressedExchange):
            self.hook.hook.forget()
        self.local.forget()
        self.noise.forget_earlier()

    def train(self, module: nn.Module, parts: ModelParts) -> None:
        """Take account of which parameters of the module are trained now, and of their types and devices."""
        self.noise.forget_earlier()
        if self.count > 1:
            self._runs = runs_of(parts.buckets)
            self._facts = {
                "broadcast_buffers": str(self._broadcast_buffers),
                "efficiency_every": str(self.noise.every),
                "average_every": str(self.local.every),
                **model_facts(module),
            }
            return
        self._buckets.clear()
        for parameter, bucket in parts.buckets.items():
            if parameter.requires_grad:
                self._buckets.setdefault(bucket, []).append(parameter)

    def compare(self, module: nn.Module, iteration: int) -> None:
        """Raise `RunFailedError` if parameters differ; not within `join`, where some may take no part."""
        is_alike = self.local.every == 1 or self.local.first == iteration
        if self.count > 1 and is_alike and not self._joins:
            require_equal_parameters(module, iteration, self.group)

    def average(self, module: nn.Module, running: BackwardPass, turns: Turns | None) -> GradientAverage:
        """Return the exchange of a backward pass under way.

        `turns`: in which the runs are exchanged; None for at once.
        """
        forward, is_measured = running.forward, self.noise.is_due(running.forward.iteration)
        if self.samples is not None and (self._joins or is_measured):
            told = "workers count alike within join(), and where the noise of gradients is measured: leave out samples"
            raise not_together("samples", told)
        earlier = [name for name, p in module.named_parameters() if p in running.earlier] if running.earlier else []
        facts = self._pass_facts(module, forward.iteration, forward.levels, earlier)
        return GradientAverage(
            self._runs,
            self._exchange(),
            forward.levels,
            forward.levels[self.rank],
            partial(self._agree, facts, forward.iteration),
            None if turns is None else partial(turns.transfer, forward.iteration),
            self.hook,
            is_measured,
            None if self.samples is None else (lambda own, left: sample_factor(left, self._samples, own, self.rank)),
        )

    def finish(self, module: nn.Module, running: BackwardPass) -> None:
        """Wait for the averages of a backward pass, and send buffers after them."""
        forward = running.forward
        is_measured = self.noise.is_due(forward.iteration)
        if running.average is None:
            if is_measured and running.reached and forward.synchronise:
                self._observe_alone(forward.levels[0])
            return
        running.average.finish()
        self._ended = running.average.ended
        self._levels = left = without(forward.levels, self._ended)
        if is_measured:
            for bucket, group in groupby(self._runs, lambda run: run.bucket):
                runs = list(group)
                own_square = sum(run.own_square for run in runs)
                self.noise.observe(bucket, contributors(left, bucket), own_square, [run.buffer() for run in runs])
        if self._broadcast_buffers:
            source = left.index(max(left)) if self._ended else 0
            send(partial(self._share, list(module.buffers()), source), self._runs[0].stream).result()

    def _observe_alone(self, level: int) -> None:
        """Tell of the gradients of the only worker; one that is missing counts as 0."""
        for bucket, parameters in self._buckets.items():
            if bucket <= level:
                own = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
                self.noise.observe(bucket, 1, 0.0, own)

    def share(self, bucket: int) -> float:
        """Return the share of the samples that contributed to a bucket in the last backward pass with an exchange."""
        self._require_exchange("adapt")
        return contributor_share(self._levels, self._samples, bucket) if self.count > 1 else 1.0

    @contextmanager
    def joined(self, is_early_end_raised: bool) -> Iterator[None]:
        """Let workers have no batch left within the block; on request, that is an error in all of them."""
        self._require_exchange("join")
        self._joins, self._join_raises = True, is_early_end_raised
        try:
            yield
        finally:
            self._joins = self._join_raises = False

    def follow(self, module: nn.Module, iteration: int, levels: tuple[int, ...]) -> bool:
        """Take part in one pass of the others without a batch; once nobody has one, take over what they have learnt."""
        if not self._runs:
            require_batches(module, self.group, has_batch=False)
        ended = send(partial(self._follow, module, iteration, levels), self._runs[0].stream).result()
        if len(ended) < self.count:
            self._ended = ended
            return True
        last = min({*range(self.count)} - self._ended)
        held = [*module.parameters(), *module.buffers()]
        send(partial(self._share, held, last), self._runs[0].stream).result()
        self._ended = frozenset()
        return False

    def _follow(self, module: nn.Module, iteration: int, levels: tuple[int, ...]) -> frozenset[int]:
        """Take part in one pass, in the thread of transfers; return who has no batch left."""
        ended = self._agree(self._pass_facts(module, iteration, levels), iteration, has_ended=True)
        if len(ended) < self.count:
            left, exchange = without(levels, ended), self._exchange()
            for run in self._runs:
                run.exchange(exchange, left, self.hook)
            if self._broadcast_buffers:
                self._share(list(module.buffers()), left.index(max(left)))
        return ended

    def _pass_facts(
        self, module: nn.Module, iteration: int, levels: tuple[int, ...], earlier: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return what the processes must have alike in a backward pass."""
        own = {"wrapper": f"number {self._number}", "iteration": str(iteration), "levels": str(levels)}
        facts = own | self._facts
        facts["gradients of earlier passes"] = ", ".join(earlier) or "none"
        if self._broadcast_buffers:
            facts["broadcast_buffers"] += "".join(f", {name} {tuple(b.shape)}" for name, b in module.named_buffers())
        facts["samples"] = "alike" if self.samples is None else "given"
        facts["parameters in common"] = f"at iteration {self.local.first}"
        facts["communication hook"] = "none" if self.hook is None else self.hook.name
        return facts

    def _agree(self, facts: dict[str, str], iteration: int, has_ended: bool = False) -> frozenset[int]:
        """Return who has no batch left; raise where the processes differ, or where that is to end the training."""
        device = self._runs[0].parameters()[0].device
        try:
            ended = require_equal_passes(facts, device, own_group(self.group), has_ended)
            if facts["samples"] == "given":
                self._samples = gathered_number(self.samples or 0, device, own_group(self.group))
            else:
                self._samples = [1] * self.count
        except RuntimeError as error:  # of torch, which has no other type for them
            raise RunFailedError(
                f"iteration {iteration}: another process has ended, or has not come to this backward pass within the "
                f"timeout of the process group ({str(error).splitlines()[0]})"
            ) from error
        if self._join_raises and 0 < len(ended) < self.count:
            ranks = ", ".join(map(str, sorted(ended)))
            where = f"rank{'s' * (len(ended) > 1)} {ranks}"
            raise mismatch("batches", f"iteration {iteration}: no batch is left on {where}, and the others train on")
        return ended

    def _share(self, held: list[Tensor], source: int) -> None:
        broadcast(held, own_group(self.group), source)

    def _exchange(self) -> GradientExchange:
        group = own_group(self.group)
        return GradientExchange(dist.get_process_group_ranks(group), group=group)

    def require_picklable(self) -> None:
        """Raise `UsageError` where the processes are a group that no other program has."""
        if self.group is not None:
            message = "a wrapper with a process group of its own cannot be pickled: save its state_dict()"
            raise unsupported("group", message)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy gets: its parameters are others, so it knows of no runs."""
        return self.__dict__ | {"_runs": [], "_facts": {}, "_buckets": {}, "local": LocalSteps(self.local.every)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Be what was copied, among the processes that are here."""
        self.__dict__.update(state)
        self.rank, self.count = place_in(self.group)
        self._levels, self._samples = [1] * self.count, [1] * self.count
