"""Metrics of a service, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from jigsaw_opt.serving.board import PHASES, STATES
from jigsaw_opt.serving.service import Service


class Metrics(Collector):
    """Counts requests, and reads all else from a service when it is asked."""

    def __init__(self, service: Service) -> None:
        self._service, self.polls = service, 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        labels = ("method", "path", "status")
        self.requests = Counter("jigsaw_requests", "requests by answer", labels, registry=self.registry)
        self.seconds = Histogram("jigsaw_request_seconds", "time of requests", ("path",), registry=self.registry)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield what there is."""
        service, board = self._service, self._service.board
        for name, count in service.counts.items():
            yield CounterMetricFamily(f"jigsaw_{name}", f"{name} since the start", count)
        phases = [PHASES.index(board.phase(job)) for job in board.jobs.values()]
        for what, known, found in (("gpus", STATES, board.gpu_states), ("jobs", PHASES, phases)):
            family = GaugeMetricFamily(f"jigsaw_{what}", f"{what} by state", labels=["state"])
            for k, state in enumerate(known):
                family.add_metric([state], found.count(k))
            yield family
        writable = not (service.unwritable or service.failure)
        gauges = {"sequence": service.sequence, "polls": self.polls, "waiting_requests": service.waiting.qsize()}
        for name, value in (gauges | {"gpus_in_use": len(board.gpu_jobs), "writable": writable}).items():
            yield GaugeMetricFamily(f"jigsaw_{name}", name.replace("_", " "), float(value))
