"""The rank of a process that no variable tells: the one that it gives to torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tracer.base import torch_abi
from tracer.base.interrupts import is_of_the_program
from tracer.recording import ranks

_MOST = 256
"""Groups that are described"""


class ProcessGroups:
    """`write` gets this process's place in a job: what is known now, else that in the group of all ranks.

    And the groups that it makes and is in.

    Processes that multiprocessing, Lightning or Accelerate start have no rank in their environment when they
    begin.
    """

    def __init__(self, write: Callable[[dict[str, object]], object]) -> None:
        self._write = write
        self._places: dict[int, dict[str, object]] = {}
        """PID -> rank and ranks of this process; of its parent too, if it was forked"""
        self._groups: dict[int, dict[str, dict[str, object]]] = {}
        """PID -> name of a group -> its ranks in the job, in their order, and its description"""
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
            group, pid = made[0], os.getpid()
            number, size = group.rank(), group.size()
            if not 0 <= number < size:  # of other ranks
                return
            if not of_ranks and pid not in self._places and size > 1:
                self._places[pid] = ranks.of(number, size)
            groups = self._groups.setdefault(pid, {})
            if len(groups) < _MOST:
                members = [int(rank) for rank in of_ranks or range(size)]
                description = str(getattr(group, "group_desc", ""))
                groups[str(group.group_name)] = {"ranks": members, "description": description}
            if len(groups).bit_count() == 1:  # the others at the end: each time all of them are written
                self.end()
        except Exception as error:  # another signature, a full disk: the rank stays unknown
            if is_of_the_program(error):
                raise

    def end(self) -> None:
        """Write the place, and all groups that are known."""
        pid = os.getpid()
        if place := self._places.get(pid):
            groups = self._groups.get(pid)
            self._write({**place, "groups": groups} if groups else place)


PLACE = (torch_abi.PROCESS_GROUPS_MODULE, torch_abi.NEW_PROCESS_GROUP)
"""Module and name of the function that ProcessGroups.wrap() replaces"""
