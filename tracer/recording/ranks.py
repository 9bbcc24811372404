"""Which rank of a job this process is, as what started it says in the environment."""

from __future__ import annotations

import os
import sys

from tracer.base.interrupts import is_of_the_program
from tracer.base.machine import boot
from tracer.base.numerals import number_of

TYPE_CHECKING = False  # `typing` is not loaded yet when the interpreter starts
if TYPE_CHECKING:
    from collections.abc import Mapping

_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
# torchrun, Accelerate, Lightning and Ray Train; Open MPI; MPICH and Intel MPI; srun.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


class Rank:
    """One process of a job: `number` counts from 0, `ranks` is how many there are."""

    def __init__(self, number: int, ranks: int) -> None:
        self.number = number
        self.ranks = ranks

    @property
    def name(self) -> str:
        """`rank03` of 16 ranks: names in a folder are in the order of their numbers."""
        return f"rank{self.number:0{len(str(self.ranks - 1))}}"


def facts() -> dict[str, object]:
    """What a trace has of this process's place in a job, ready for JSON; {} if it is alone.

    The clocks of two traces with one `boot` are the same clock.
    """
    rank = of_this_process() or _of_torch()
    return of(rank.number, rank.ranks) if rank else {}


def of(number: int, ranks: int) -> dict[str, object]:
    """The same of a rank that is known."""
    place: dict[str, object] = {"rank": number, "ranks": ranks, "host": os.uname().nodename, "boot": boot()}
    if again := restarts():
        place["restarts"] = again
    return place


def of_this_process(environment: Mapping[str, str] = os.environ) -> Rank | None:
    """None if this process is alone: no variable names a rank, or there is only one."""
    for of_rank, of_ranks in _VARIABLES:
        number, ranks = (number_of(environment.get(name, "")) for name in (of_rank, of_ranks))
        if number is not None and ranks is not None and number < ranks and ranks > 1:
            return Rank(number, ranks)
    return None


def restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often what starts the job has started it before: a rank of it had died."""
    return max(number_of(environment.get(name, "")) or 0 for name in _RESTARTS)


def _of_torch() -> Rank | None:
    """The rank of a process whose process group was made before the recording began."""
    groups = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        if groups is None or not groups.is_initialized() or groups.get_world_size() < 2:
            return None
        return Rank(groups.get_rank(), groups.get_world_size())
    except Exception as error:  # another torch's module, or one that is being imported: then it is not known
        if is_of_the_program(error):
            raise
        return None
