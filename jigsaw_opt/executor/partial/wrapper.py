"""`PartialBackprop`: partial backpropagation around any module, used as `DistributedDataParallel` is.

The forward pass to a level freezes the parameters before its cut. What depends on them and on inputs alone then gets no
graph: no activation of it is saved, and the backward pass ends there. Skips across the cut, tied weights, blocks that
turn gradients off and the cache of autocast need no care of their own, as none of it rests on who calls whom.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.autograd import Variable

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import UsageError, not_together, require_at_least, wrong_order
from jigsaw_opt.executor.models.leveled_model import frozen
from jigsaw_opt.executor.partial.agreement import require_outermost, require_trainable
from jigsaw_opt.executor.partial.forward_order import is_raised, observe
from jigsaw_opt.executor.partial.level_rules import LevelRule, Levels, level_rule, require_picklable
from jigsaw_opt.executor.partial.module_wrapper import WeakCall, sharing
from jigsaw_opt.executor.partial.noise import GradientNoise, NoiseEstimate
from jigsaw_opt.executor.partial.outputs import tensors
from jigsaw_opt.executor.partial.parts import GradientNeeds, ModelParts, are_cuts, require_modules
from jigsaw_opt.executor.partial.passes import BackwardPass, ForwardPass, of_unseen_outputs
from jigsaw_opt.executor.partial.steps import StepAdapting
from jigsaw_opt.executor.partial.turns import turns_of
from jigsaw_opt.executor.partial.workers import Workers


class PartialBackprop(StepAdapting):
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
        the others are drawn with at least that mean depth; ``two_level``, ``uniform``, or a `LevelSchedule`, which says
        what these are and has further options; a function of iteration and worker, both from 0, which
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
    efficiency_every
        0, or after how many iterations, again and again, the noise of the gradients of two iterations is measured, for
        `efficiency`.
    average_every
        1, or after how many iterations, again and again, parameters are averaged in place of gradients.
    process_group
        The group of those who train; None for the default group.

    Raises
    ------
    UsageError
        A cut is no module, an argument is of another type or out of range, nothing is trained, or the processes hold
        different models.
    """

    @typed
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
        efficiency_every: int = 0,
        average_every: int = 1,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(module)
        if not are_cuts(cuts):
            raise UsageError("cuts are a list of names, or a number from 0", code="wrong-type", path="cuts")
        require_at_least(0, debug=debug, efficiency_every=efficiency_every)
        if not isinstance(cuts, int):
            require_modules(module, cuts)
        self._iteration = 0
        self._cuts, self._debug, self._synchronise = cuts, debug, True
        depth = (cuts if isinstance(cuts, int) else len(cuts)) + 1
        noise = GradientNoise(depth, efficiency_every)
        self._peers = Workers(process_group, broadcast_buffers, noise, average_every)
        require_trainable(module, PartialBackprop, is_partial=depth > 1 and levels != "full")
        self._levels, self._schedule = levels, (depth, warm_up, granularity, seed)
        self._rule: LevelRule = self._of_levels()
        self._forget()
        self._peers.begin_alike(module)

    def _of_levels(self) -> LevelRule:
        depth, warm_up, granularity, seed = self._schedule
        return level_rule(self._levels, depth, self.workers, warm_up, granularity, seed)

    def _forget(self) -> None:
        """Know nothing of the parts and of any pass."""
        self._parts: ModelParts | None = None
        self._trained: list[nn.Parameter] = []
        self._runs_hold: list[tuple[int, torch.dtype, torch.device]] | None = None
        self._hooked: set[nn.Parameter] = set()
        self._needs = GradientNeeds()
        self._last: ForwardPass | None = None
        self._begun: int | None = None
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
        parts.require_same_parameters(self.module)
        self._follow_frozen(parts)
        turns = turns_of(self._levels)
        if self._begun != self.iteration:
            self._peers.begin_iteration(self, parts, self.iteration, self._rule, turns)
            if self._debug and self.iteration % self._debug == 0:
                self._peers.compare(self.module, self.iteration)
            if turns is not None:
                turns.begin_block(self.iteration)
            self._begun = self.iteration
        for other in sharing(self):
            other._is_latest = False
        self._is_latest = True
        levels = self._rule(self.iteration)
        beyond = parts.beyond(levels[self.rank])
        unreached = parts.beyond(max(levels)) if self._peers.exchanges else beyond
        self._last = ForwardPass(self.iteration, levels, beyond, unreached, self._synchronise)
        self._pending.append(self._last)
        with frozen(beyond):
            self._entered = self._last, list(tensors((args, kwargs)))
            try:
                outputs = self.module(*args, **kwargs)
            finally:
                self._entered = None
        if beyond:
            outputs = self._needs.anchored(self.module, (args, kwargs), outputs, WeakCall(self._accumulated))
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
            self._parts = self._peers.split(self.module, order, self._cuts)
            for module in order.raising:
                module.register_forward_hook(WeakCall(self._lower))
        return self._parts

    def efficiency(self) -> NoiseEstimate:
        """Return how noisy gradients have been of late, and so how far an iteration gets at any levels, and what pays.

        Times of levels are the shares of `describe`, with a backward pass that takes twice as long as a forward pass.

        Raises
        ------
        UsageError
            Nothing is measured, for ``efficiency_every`` is 0.
        """
        if not self._peers.noise.every:
            raise wrong_order("efficiency_every", "nothing is measured: give efficiency_every")
        found, backward_us = self._peers.noise.estimate(), self._parts.backward_us if self._parts else ()
        times = tuple(sum(backward_us) + 2 * us for us in accumulate(reversed(backward_us)))
        return replace(found, times=times, workers=self.workers) if sum(times) else found

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up on each worker; forward passes in the block keep the iteration and its levels."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def average_parameters(self) -> None:
        """Average the parameters of all workers now, as after the last local steps; all processes call this."""
        self._peers.average_parameters(self.module, self._known_parts(), self.iteration, self._rule)

    def _follow_frozen(self, parts: ModelParts) -> None:
        """Take account of parameters that the user has frozen, set free or moved to another type or device."""
        trained = [p for p in parts.buckets if p.requires_grad]
        hold = [(id(p), p.dtype, p.device) for p in trained]
        if hold == self._runs_hold:
            return
        hook = WeakCall(self._accumulated)  # autograd's hooks keep what they know, unseen by Python
        for parameter in trained:
            if parameter not in self._hooked:
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
                self._hooked.add(parameter)
        self._trained, self._runs_hold = trained, hold
        self._needs = GradientNeeds()
        self._peers.train(self.module, parts)

    def _lower(self, module: nn.Module, _: object, outputs: Any) -> None:
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
        """Begin the backward pass of a forward pass, unless one is under way."""
        if self._running is not None:
            return
        if not self._is_latest:
            raise wrong_order(
                "module",
                "another PartialBackprop of the same parameters has had a forward pass since this one: do the "
                "backward pass of each before, or wrap one module that holds both",
            )
        if forward in self._pending:
            self._pending.remove(forward)
        running = self._running = BackwardPass(forward)
        running.begin(self._trained if forward.synchronise and self._peers.exchanges else ())
        finish = partial(self._finish, running)
        # The engine drops what it was to call at the end of a backward pass that fails.
        running.end = weakref.finalize(finish, _end, weakref.ref(self), running)
        Variable._execution_engine.queue_callback(finish)

    def _accumulated(self, parameter: Tensor) -> None:
        """Take note of a gradient that is complete, of a parameter or an anchor."""
        if self._running is None:
            if self._last is None or not self._is_latest:
                return
            self._begin(of_unseen_outputs(self._pending) or self._last)
        running = self._running
        assert running is not None
        forward = running.forward
        if not running.reached and forward.synchronise and self._peers.exchanges:
            running.average = self._peers.average(self.module, running, turns_of(self._levels))
        running.reached = True
        if running.average is not None:
            running.average.arrived(parameter)

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
            A process has had neither a batch nor a call of `prepare`, or the processes follow a plan.
        """
        if turns_of(self._levels) is not None:
            raise not_together("join", "processes that follow a plan have equally many batches")
        with self._peers.joined(throw_on_early_termination):
            yield
            if self.workers > 1:
                if self._parts is not None:  # there may have been no forward pass
                    self._follow_frozen(self._parts)
                while self._peers.follow(self.module, self.iteration, self._rule(self.iteration)):
                    self._iteration += 1

    def _finish(self, running: BackwardPass) -> None:
        turns = turns_of(self._levels) if running.reached and running.forward.synchronise else None
        try:
            forward = running.forward
            if turns is not None:
                turns.end_block(self._trained[0].device)
            if running.watch is not None:
                running.watch.require_unchanged()
            self._peers.finish(self.module, running)
            if turns is not None:
                turns.end_iteration()
            if running.reached and forward.synchronise and forward.iteration == self.iteration:
                self._iteration += 1
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
        memo |= {id(shared): shared for shared in (self._peers.group, self._levels, self._rule, self._peers.hook)}
        copied = memo[id(self)] = PartialBackprop.__new__(PartialBackprop)
        copied.__dict__.update(deepcopy(self._unhooked(), memo))
        copied._peers.local = deepcopy(self._peers.local, memo)  # its keys are the copied parameters by now
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled; raise `UsageError` within local steps, and where processes or levels cannot be."""
        self._peers.require_common(self._iteration)
        self._peers.require_picklable()
        require_picklable(self._levels)
        return {name: value for name, value in self._unhooked().items() if name != "_rule"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Be what was pickled, among the processes that are here."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._rule = self._of_levels()


def _end(wrapper: weakref.ref[PartialBackprop], running: BackwardPass) -> None:
    """Set free what was frozen, whether the backward pass has ended well or not."""
    running.restore()
    owner = wrapper()
    if owner is not None and owner._running is running:
        owner._running = None
        if running.average is not None and running.average.abandon():
            owner._runs_hold = None  # exchanges may still be under way in the memory of these runs
