"""What a trace file holds, and how its recording ended."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.definitions import Definitions
from tracer.trace.bytes.endings import STOPPED
from tracer.trace.bytes.events import EventBlock


@dataclass
class Losses:
    """What could not be read."""

    damaged_chunks: int = 0
    torn_events: int = 0
    missing_chunks: int = 0
    missing_bytes: int = 0


@dataclass
class Contents:
    """What a trace file holds, before its lanes are joined."""

    path: str
    header: fmt.FileHeader
    packed: bool
    """Whether the file is a packed trace"""
    owner: int
    """The user whose file it is"""
    end: int
    """The file offset after the last chunk."""
    chunks: int = 0
    lanes: dict[tuple[int, int], dict[int, tuple[fmt.ChunkHeader, EventBlock]]] = field(default_factory=dict)
    """(process, lane) -> sequence -> chunk of hops"""
    activities: dict[tuple[int, int], dict[int, NDArray[np.uint64]]] = field(default_factory=dict)
    """(process, lane) -> sequence -> records of GPU activities, a row each"""
    definitions: Definitions = field(default_factory=Definitions)
    key_sets: dict[int, int] = field(default_factory=dict)
    """key set -> its number in EventBlock.key_set"""
    pids: dict[int, int] = field(default_factory=dict)
    """process -> OS process id"""
    losses: Losses = field(default_factory=Losses)
    ended: str = STOPPED
    """STOPPED, KILLED, DUMPED or WRITTEN"""
    written: bool = False
    """Whether a process can still write to the file"""
