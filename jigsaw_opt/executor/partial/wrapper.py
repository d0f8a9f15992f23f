"""`PartialBackprop`: partial backpropagation around any module, used as `DistributedDataParallel` is.

The forward pass to a level freezes the parameters before its cut. What depends on them and on inputs alone then gets no
graph: no activation of it is saved, and the backward pass ends there. Skips across the cut, tied weights, blocks that
turn gradients off and the cache of autocast need no care of their own, as none of it rests on who calls whom.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.autograd import Variable

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.exchange import GradientExchange
from jigsaw_opt.executor.leveled_model import frozen
from jigsaw_opt.executor.partial.agreement import (
    model_facts,
    require_equal_parameters,
    require_equal_passes,
    require_equal_shapes,
)
from jigsaw_opt.executor.partial.averaging import GradientAverage, ParameterRun, broadcast, runs_of, without
from jigsaw_opt.executor.partial.communication_hook import CommunicationHook
from jigsaw_opt.executor.partial.description import Description, describe
from jigsaw_opt.executor.partial.forward_order import is_raised, observe
from jigsaw_opt.executor.partial.gradient_needs import GradientNeeds
from jigsaw_opt.executor.partial.level_rules import LevelRule, Levels, level_rule
from jigsaw_opt.executor.partial.module_wrapper import ModuleWrapper
from jigsaw_opt.executor.partial.outputs import tensors
from jigsaw_opt.executor.partial.parts import ModelParts, are_cuts, require_modules, split, split_alike
from jigsaw_opt.executor.partial.passes import BackwardPass, ForwardPass, UpdateWatch
from jigsaw_opt.executor.partial.requirements import place_in, require_outermost, require_trainable
from jigsaw_opt.executor.partial.sharing import sharing
from jigsaw_opt.executor.partial.transfers import next_number, own_group, send
from jigsaw_opt.executor.partial.turns import turns_of
from jigsaw_opt.problem.costs import contributors

__all__ = ["PartialBackprop"]


class PartialBackprop(ModuleWrapper):
    """A module that is trained by partial backpropagation, in one process or in all of a process group.

    Use it in place of the module, as `DistributedDataParallel`: averaged gradients are in ``.grad`` on all ranks when
    ``backward()`` returns. The first forward pass that may be trained finds the order of modules and parameters, by
    a few passes more, which change neither buffers nor random generators.

    Parameters
    ----------
    module
        What is trained. Its parameters and buffers become those of the first process.
    cuts
        Names of modules, or how many cuts to find so that the parts take about equal time in a backward pass. Level
        ``d`` reaches back to the first call of the ``d``-th cut from the output; the deepest level, ``len(cuts) + 1``,
        is the whole backward pass. A parameter belongs to the part in which it is used first.
    levels
        ``full``; ``staircase``: worker ``k`` of ``w`` goes to level ``ceil(D*k/w)``; ``rotation``: the workers take
        turns at these; ``permutation``: they draw them; ``free`` or a `FreeDepth`: so many workers go to full depth,
        the others are drawn with at least that mean depth; a function of iteration and worker, both from 0, which
        gives a level from 1 and must give the same in all processes; or a job of a plan, whose iterations are repeated.
        What no worker reaches has no gradient.
    warm_up
        Iterations at full depth first.
    granularity
        Iterations for which the levels stay.
    seed
        Seed of the levels that are drawn.
    broadcast_buffers
        Whether all processes get the buffers of the first one in each iteration.
    debug
        0, or after how many iterations, again and again, the parameters of all processes are compared.
    process_group
        The group of those who train; None for the default group.

    Attributes
    ----------
    iteration : int
        Backward passes ended, those under `no_sync` not counted. Set it where training goes on from a checkpoint.

    Raises
    ------
    UsageError
        A cut is no module, a number is out of range, nothing is trained, or the processes hold different models.
    """

    def __init__(
        self,
        module: nn.Module,
        cuts: Sequence[str] | int,
        levels: Levels = "rotation",
        *,
        warm_up: int = 0,
        granularity: int = 1,
        seed: int = 0,
        broadcast_buffers: bool = True,
        debug: int = 0,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(module)
        if not are_cuts(cuts) or debug < 0:
            raise UsageError(
                "cuts are a list of names or a number, and numbers are at least 0", code="wrong-type", path="cuts"
            )
        if not isinstance(cuts, int):
            require_modules(module, cuts)
        self.iteration = 0
        self._cuts, self._group, self._debug = cuts, process_group, debug
        self._broadcast_buffers, self._synchronise = broadcast_buffers, True
        self.rank, self.workers = place_in(process_group)
        depth = (cuts if isinstance(cuts, int) else len(cuts)) + 1
        require_trainable(module, PartialBackprop, is_partial=depth > 1 and levels != "full")
        self._hook: CommunicationHook | None = None
        self._joins = self._join_raises = False
        self._ended: frozenset[int] = frozenset()
        self._levels, self._schedule = levels, (depth, warm_up, granularity, seed)
        self._rule: LevelRule = self._of_levels()
        self._forget()
        self._number = 1
        if self.workers > 1:
            require_equal_shapes(module, process_group)
            self._number = next_number(process_group)
            broadcast([*module.parameters(), *module.buffers()], process_group)

    def _of_levels(self) -> LevelRule:
        depth, warm_up, granularity, seed = self._schedule
        return level_rule(self._levels, depth, self.workers, warm_up, granularity, seed)

    def _forget(self) -> None:
        """Know nothing of the parts and of any pass."""
        self._parts: ModelParts | None = None
        self._trained: list[nn.Parameter] = []
        self._runs: list[ParameterRun] = []
        self._runs_hold: list[tuple[int, torch.dtype, torch.device]] | None = None
        self._hooked: set[nn.Parameter] = set()
        self._facts: dict[str, str] = {}
        self._needs = GradientNeeds()
        self._last: ForwardPass | None = None
        self._pending: list[ForwardPass] = []
        self._entered: tuple[ForwardPass, list[Tensor]] | None = None
        self._running: BackwardPass | None = None
        self._is_latest = True

    @_disable_dynamo
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns, with a graph that reaches down to this iteration's level of this worker."""
        if not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        if self._running is not None:
            if torch._C._current_graph_task_id() != -1:  # all of it is checkpointed, and runs again
                return self.module(*args, **kwargs)
            self._running.end()  # a backward pass that failed, and is still known to a debugger
        require_outermost()
        parts = self.prepare(*args, **kwargs)
        if parts.buckets.keys() != set(self.module.parameters()):
            raise UsageError(
                "parameters have been replaced or added since the first pass: wrap the module anew",
                code="mismatch",
                path="module",
            )
        self._follow_frozen(parts)
        if self._is_time_to_compare():
            require_equal_parameters(self.module, self.iteration, self._group)
        turns = turns_of(self._levels)
        if turns is not None and (self._last is None or self._last.iteration != self.iteration):
            turns.begin_block(self.iteration)
        for other in sharing(self):
            other._is_latest = False
        self._is_latest = True
        levels = self._rule(self.iteration)
        beyond = parts.beyond(levels[self.rank])
        self._last = ForwardPass(self.iteration, levels, beyond, parts.beyond(max(levels)), self._synchronise)
        self._pending.append(self._last)
        with frozen(beyond):
            self._entered = self._last, list(tensors((args, kwargs)))
            try:
                outputs = self.module(*args, **kwargs)
            finally:
                self._entered = None
        if beyond:
            hook = partial(_accumulated, weakref.ref(self))
            outputs = self._needs.anchored(self.module, args, kwargs, outputs, hook)
        else:
            self._needs.learn(self.module, (args, kwargs), outputs)
        for value in tensors(outputs):
            if value.grad_fn is not None:
                value.register_hook(partial(self._begin, self._last))  # type: ignore[no-untyped-call]
        return outputs

    def prepare(self, *args: Any, **kwargs: Any) -> ModelParts:
        """Find the parts of the module, if they are not known; the first forward pass does this by itself.

        Parameters
        ----------
        *args, **kwargs
            Inputs of a forward pass.
        """
        if self._parts is None:
            order = observe(self.module, args, kwargs)
            if self.workers > 1:
                self._parts = split_alike(self.module, order, self._cuts, self._group)
            else:
                self._parts = split(self.module, order, self._cuts)
            if self.workers > 1:
                own_group(self._group)  # all processes make it now, and none in a backward pass
            for module in order.raising:
                module.register_forward_hook(partial(_lower, weakref.ref(self)))
        return self._parts

    def describe(self) -> Description:
        """Return a table of the levels: where each begins, its parameters, their bytes, and its share of the time.

        Raises
        ------
        UsageError
            There has been no forward pass yet, nor a call of `prepare`.
        """
        if self._parts is None:
            raise UsageError(
                "the parts are known after the first forward pass, or after prepare(inputs)", code="wrong-order"
            )
        return describe(self._parts)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up on each worker; forward passes in the block keep the iteration and its levels."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """Have a hook exchange gradients, as that of `DistributedDataParallel` does, such as one that compresses them.

        A worker whose level does not reach a gradient gives zeros, and the hook's mean over all workers is scaled to
        the mean over those that reach it. Processes that have other hooks raise an error.

        Parameters
        ----------
        state
            The first argument of the hook, such as a process group or None.
        hook
            Takes the state and a bucket with the methods of `torch.distributed.GradBucket`, and returns a future of
            the mean over all workers.

        Raises
        ------
        UsageError
            It is no function, or there is a hook already.
        """
        if not callable(hook):
            raise UsageError(f"a communication hook is a function, not {hook!r}", code="wrong-type", path="hook")
        if self._hook is not None:
            raise UsageError("there is a communication hook already", code="duplicate-name", path="hook")
        self._hook = CommunicationHook(state, hook)

    def _follow_frozen(self, parts: ModelParts) -> None:
        """Take account of parameters that the user has frozen, set free or moved to another type or device."""
        trained = [p for p in parts.buckets if p.requires_grad]
        hold = [(id(p), p.dtype, p.device) for p in trained]
        if hold == self._runs_hold:
            return
        hook = partial(_accumulated, weakref.ref(self))  # autograd's hooks keep what they know, unseen by Python
        for parameter in trained:
            if parameter not in self._hooked:
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
                self._hooked.add(parameter)
        self._trained, self._runs_hold = trained, hold
        self._needs = GradientNeeds()
        if self.workers > 1:
            self._runs = runs_of(parts.buckets)
            self._facts = {"broadcast_buffers": str(self._broadcast_buffers)} | model_facts(self.module)

    def _is_time_to_compare(self) -> bool:
        is_first = self._last is None or self._last.iteration != self.iteration
        return (
            self._debug > 0 and not self._joins and self.workers > 1 and is_first and self.iteration % self._debug == 0
        )

    def _lower(self, module: nn.Module, outputs: Any) -> None:
        """Let what `module` made require a gradient require none, where the level does not reach the module."""
        if self._entered is not None:
            forward, inputs = self._entered
        elif self._running is not None:  # what is checkpointed runs again
            forward, inputs = self._running.forward, []
        else:
            return
        assert self._parts is not None
        own = [self._parts.buckets[p] for p in module.parameters()]
        if own and min(own) > forward.levels[self.rank]:
            for value in tensors(outputs):
                if is_raised(value, inputs):
                    value.requires_grad_(False)

    def _begin(self, forward: ForwardPass, _: Tensor | None = None) -> None:
        """Freeze during the backward pass what the forward pass froze: checkpointing runs parts of it again."""
        if self._running is not None:
            return
        if not self._is_latest:
            raise UsageError(
                "another PartialBackprop of the same parameters has had a forward pass since this one: do the "
                "backward pass of each before, or wrap one module that holds both",
                code="wrong-order",
                path="module",
            )
        if forward in self._pending:
            self._pending.remove(forward)
        running = self._running = BackwardPass(forward)
        if forward.synchronise and self.workers > 1:
            running.watch = UpdateWatch(self._trained)
        running.set_earlier_aside()
        running.frozen = [p for p in forward.beyond if p.requires_grad]
        for parameter in running.frozen:
            parameter.requires_grad_(False)
        finish = partial(self._finish, running)
        # The engine drops what it was to call at the end of a backward pass that fails.
        running.end = weakref.finalize(finish, _end, weakref.ref(self), running)
        Variable._execution_engine.queue_callback(finish)

    def _accumulated(self, parameter: Tensor) -> None:
        """Take note of a gradient that is complete, of a parameter or an anchor."""
        if self._running is None:
            if self._last is None or not self._is_latest:
                return
            # The outputs are in objects in which none was seen, so which forward pass they are of is not known.
            if len({forward.synchronise for forward in self._pending}) > 1:
                raise UsageError(
                    "a backward pass begins from an output that is in no tuple, list, dictionary or dataclass, after "
                    "forward passes with and without no_sync(): do the backward pass of each before the next one",
                    code="wrong-order",
                    path="outputs",
                )
            self._begin(self._pending[-1] if self._pending else self._last)
        running = self._running
        assert running is not None
        forward = running.forward
        if not running.reached and forward.synchronise and self.workers > 1:
            running.average = self._average(running)
        running.reached = True
        if running.average is not None:
            running.average.arrived(parameter)

    def _average(self, running: BackwardPass) -> GradientAverage:
        forward = running.forward
        exchange, turns = self._exchange(), turns_of(self._levels)
        turn = {} if turns is None else {"turn": partial(turns.transfer, forward.iteration)}
        earlier = [name for name, p in self.named_parameters() if p in running.earlier] if running.earlier else []
        facts = self._pass_facts(forward.iteration, forward.levels, earlier)
        agree = partial(self._agree, facts, forward.iteration, False)
        return GradientAverage(
            self._runs, exchange, forward.levels, forward.levels[self.rank], agree, hook=self._hook, **turn
        )

    def _pass_facts(self, iteration: int, levels: tuple[int, ...], earlier: Sequence[str]) -> dict[str, str]:
        """Return what the processes must have alike in a backward pass."""
        own = {"wrapper": f"number {self._number}", "iteration": str(iteration), "levels": str(levels)}
        facts = own | self._facts
        facts["gradients of earlier passes"] = ", ".join(earlier) or "none"
        if self._broadcast_buffers:
            facts["broadcast_buffers"] += "".join(f", {name} {tuple(b.shape)}" for name, b in self.named_buffers())
        facts["communication hook"] = "none" if self._hook is None else self._hook.name
        return facts

    def _agree(self, facts: dict[str, str], iteration: int, has_ended: bool) -> frozenset[int]:
        """Return who has no batch left; raise where the processes differ, or where that is to end the training."""
        ended = require_equal_passes(facts, self._trained[0].device, own_group(self._group), has_ended)
        if self._join_raises and 0 < len(ended) < self.workers:
            ranks = ", ".join(map(str, sorted(ended)))
            where = f"rank{'s' * (len(ended) > 1)} {ranks}"
            raise UsageError(
                f"iteration {iteration}: no batch is left on {where}, and the others train on",
                code="mismatch",
                path="batches",
            )
        return ended

    @contextmanager
    def join(self, throw_on_early_termination: bool = False) -> Iterator[None]:
        """Let processes have different numbers of batches, as `DistributedDataParallel.join` does.

        A process whose loop ends within the block takes part in the exchanges of the others, to which it gives nothing:
        gradients are means over the workers that reach them and have a batch. At the end all have the parameters and
        buffers of those that trained longest.

        Parameters
        ----------
        throw_on_early_termination
            Raise in all processes, once one has no batch left and others have; the error has iteration and ranks.

        Raises
        ------
        UsageError
            This process has had no batch at all, or the processes follow a plan.
        """
        if turns_of(self._levels) is not None:
            raise UsageError("processes that follow a plan have equally many batches", code="not-together", path="join")
        self._joins, self._join_raises = True, throw_on_early_termination
        try:
            yield
            if self.workers > 1:
                self._follow_others()
        finally:
            self._joins = self._join_raises = False

    def _follow_others(self) -> None:
        """Take part in the passes of the others until nobody has a batch left, and take over what they have learnt."""
        if not self._runs:
            raise UsageError("this process has had no batch at all within join()", code="empty", path="batches")
        stream, held = self._runs[0].stream, [*self.module.parameters(), *self.module.buffers()]
        while len(ended := send(self._follow_one, stream).result()) < self.workers:
            self._ended = ended
            self.iteration += 1
        last = min({*range(self.workers)} - self._ended)
        send(partial(broadcast, held, own_group(self._group), last), stream).result()
        self._ended = frozenset()

    def _follow_one(self) -> frozenset[int]:
        """Take part in one pass of the others, in the thread of transfers; return who has no batch left."""
        levels, exchange = self._rule(self.iteration), self._exchange()
        ended = self._agree(self._pass_facts(self.iteration, levels, ()), self.iteration, True)
        if len(ended) < self.workers:
            left = without(levels, ended)
            for at, run in enumerate(self._runs):
                if contributors(left, run.bucket):
                    run.exchange(exchange, left, self._hook, at, at + 1 == len(self._runs))
            if self._broadcast_buffers:
                broadcast(list(self.module.buffers()), exchange.group, left.index(max(left)))
        return ended

    def _exchange(self) -> GradientExchange:
        group = own_group(self._group)
        return GradientExchange(dist.get_process_group_ranks(group), group=group)

    def _finish(self, running: BackwardPass) -> None:
        turns = turns_of(self._levels) if running.reached and running.forward.synchronise else None
        try:
            forward = running.forward
            if turns is not None:
                turns.end_block(self._trained[0].device)
            if running.watch is not None:
                running.watch.require_unchanged()
            if running.average is not None:
                running.average.finish()
                self._ended = running.average.ended
                if self._broadcast_buffers:
                    left = without(forward.levels, self._ended)
                    source = left.index(max(left)) if self._ended else 0
                    told = partial(broadcast, list(self.module.buffers()), own_group(self._group), source)
                    send(told, self._runs[0].stream).result()
            if turns is not None:
                turns.end_iteration()
            if running.reached and forward.synchronise and forward.iteration == self.iteration:
                self.iteration += 1
                self._pending.clear()
        finally:
            running.end()

    def _unhooked(self) -> dict[str, Any]:
        """Return what a copy gets: it finds the parts anew, for its parameters have no hooks."""
        copy = PartialBackprop.__new__(PartialBackprop)
        copy.__dict__.update(self.__dict__)
        copy._forget()
        return copy.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> PartialBackprop:
        """Copy the module; the copy has the same levels and processes."""
        memo |= {id(shared): shared for shared in (self._group, self._levels, self._rule, self._hook)}
        copied = memo[id(self)] = PartialBackprop.__new__(PartialBackprop)
        copied.__dict__.update(deepcopy(self._unhooked(), memo))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled; raise `UsageError` where the processes or the levels cannot be."""
        if self._group is not None:
            raise UsageError(
                "a wrapper with a process group of its own cannot be pickled: save its state_dict()",
                code="unsupported",
                path="group",
            )
        if "<" in getattr(self._levels, "__qualname__", ""):
            raise UsageError(
                "levels of a function within another one cannot be pickled: save state_dict()",
                code="unsupported",
                path="levels",
            )
        return {name: value for name, value in self._unhooked().items() if name != "_rule"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Be what was pickled, among the processes that are here."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.rank, self.workers = place_in(None)
        self._rule = self._of_levels()


def _end(wrapper: weakref.ref[PartialBackprop], running: BackwardPass) -> None:
    """Set free what was frozen, whether the backward pass has ended well or not."""
    for parameter in running.frozen:
        parameter.requires_grad_(True)
    running.put_earlier_back()
    if running.watch is not None:
        running.watch.remove()
    owner = wrapper()
    if owner is not None and owner._running is running:
        owner._running = None
        if running.average is not None and running.average.abandon():
            owner._runs_hold = None  # exchanges may still be under way in the memory of these runs


def _lower(wrapper: weakref.ref[PartialBackprop], module: nn.Module, _: object, outputs: Any) -> None:
    owner = wrapper()
    if owner is not None:
        owner._lower(module, outputs)


def _accumulated(wrapper: weakref.ref[PartialBackprop], parameter: Tensor) -> None:
    owner = wrapper()
    if owner is not None:
        owner._accumulated(parameter)
