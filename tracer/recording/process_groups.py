"""The rank of a process that no variable tells: the one that it gives to torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tracer.base import torch_abi
from tracer.recording import ranks


class ProcessGroups:
    """`write` gets this process's place in a job: what is known now, else that in the group of all ranks.

    Processes that multiprocessing, Lightning or Accelerate start have no rank in their environment when they
    begin.
    """

    def __init__(self, write: Callable[[dict[str, object]], object]) -> None:
        self._write = write
        self._places: dict[int, dict[str, object]] = {}
        """PID -> rank and ranks of this process; of its parent too, if it was forked"""
        if place := ranks.facts():
            self._places[os.getpid()] = place
            write(place)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What replaces torch's function while recording."""

        def new_process_group(*arguments: Any, **named: Any) -> Any:
            made = original(*arguments, **named)
            self._made(arguments, named, made)
            return made

        return new_process_group

    def _made(self, arguments: tuple[Any, ...], named: dict[str, Any], made: Any) -> None:
        try:
            of_ranks = arguments[2] if len(arguments) > 2 else named["global_ranks_in_group"]
            if of_ranks or os.getpid() in self._places:
                return
            group = made[0]
            number, size = group.rank(), group.size()
            if 0 <= number < size and size > 1:
                self._places[os.getpid()] = ranks.of(number, size)
                self._write(self._places[os.getpid()])
        except Exception:  # another signature, a full disk: the rank stays unknown, and the script goes on
            return

    def end(self) -> None:
        """Write the place again: a forked child that had recorded nothing could not write it."""
        if place := self._places.get(os.getpid()):
            self._write(place)


PLACE = (torch_abi.PROCESS_GROUPS_MODULE, torch_abi.NEW_PROCESS_GROUP)
"""Module and name of the function that ProcessGroups.wrap() replaces"""
