"""Analyses traces on the nodes of a Ray cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from tracer.fleet.fleet_errors import FleetError
from tracer.fleet.work import Part, Task, analyse, reason, unread

_RETRIES = 2
"""How often a task runs again if its node went away"""
_PATIENCE_SECONDS = 10.0


class OnRay:
    """Runs tasks on the cluster that runs already, else on one of this machine alone.

    Every node needs tracer, and sees the traces under the same paths. Raises FleetError if ray is missing or
    does not start.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._ray = _imported()
        self._say = say

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, list[Part]]]:
        """The parts of each task, in the order in which they are done."""
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            self._begin()
        try:
            yield from self._run(iter(tasks))
        finally:
            if ours:
                ray.shutdown()

    def _begin(self) -> None:
        ray = self._ray
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        _check(os.environ.get("RAY_ADDRESS", ""))
        try:
            try:
                ray.init(address="auto", **quiet)
            except ConnectionError:
                if os.environ.get("RAY_ADDRESS"):
                    raise
                self._say("no Ray cluster runs here; starting one on this machine alone")
                # It would send what it counts to its makers.
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
                ray.init(include_dashboard=False, **quiet)
        except Exception as error:
            raise FleetError(
                f"cannot reach a Ray cluster: {reason(error)}; start one: ray start --head"
            ) from error

    def _run(self, waiting: Iterator[Task]) -> Iterator[tuple[Task, list[Part]]]:
        ray = self._ray
        remote = ray.remote(max_retries=_RETRIES)(analyse)
        running: dict[Any, Task] = {}
        while True:
            # Two for each processor: so none waits for this process, and few results wait in memory.
            room = 2 * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(running)
            for task in islice(waiting, max(0, room)):
                running[remote.remote(task)] = task
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for future in done:
                task = running.pop(future)
                yield task, self._result(future, task)

    def _result(self, future: Any, task: Task) -> list[Part]:
        try:
            return self._ray.get(future)
        except self._ray.exceptions.RayError as error:
            return [unread(task.trace, f"the Ray worker that read it failed ({type(error).__name__})")]


def _check(address: str) -> None:
    """Raises FleetError if nobody answers at `HOST:PORT`: ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _PATIENCE_SECONDS).close()
    except OSError as error:
        raise FleetError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({error.strerror or error}); "
            "start one: ray start --head"
        ) from error


def _imported() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise FleetError("--engine ray needs the package ray; install it: pip install ray") from None
    return ray
