"""Theoretical occupancy: how many blocks of a kernel fit on a multiprocessor at once, and waves.

The rules are those of NVIDIA's occupancy calculator for compute capabilities 7.0 to 12.x: registers
are handed out to warps in units of 256, warps in units of 4, shared memory in units of 256 bytes
(7.x) or 128 bytes (8.0 and later, which also keep 1 KiB a block for the system). How much of the
L1 cache is shared memory is taken to be the most that the device allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WARP = 32
_REGISTER_UNIT = 256
_WARP_UNIT = 4


@dataclass(frozen=True)
class Launch:
    """One launch: blocks in the grid, threads a block, registers a thread, shared bytes a block."""

    blocks: int
    threads: int
    registers: int
    shared_bytes: int


@dataclass(frozen=True)
class Occupancy:
    """Of one launch on one device.

    `share` is warps on a multiprocessor that has work enough, of the most it can have; `limited_by`
    what keeps it from more: warps, blocks, registers or shared memory. `waves` is the number of
    times the whole device is filled; `tail_share` the part of the last wave's places that stay empty.
    """

    blocks_per_multiprocessor: int
    share: float
    limited_by: str
    waves: float
    tail_share: float


def occupancy(launch: Launch, device: dict[str, Any]) -> Occupancy | None:
    """The occupancy on a device (a row of `devices`); None where its facts are unknown or nothing fits."""
    facts = [device.get(name) for name in _FACTS]
    if any(not fact for fact in facts) or not launch.threads or not launch.blocks:
        return None
    major, multiprocessors, most_warps, most_blocks, registers, block_registers, shared = map(int, facts)  # type: ignore[arg-type]
    if not 7 <= major <= 12:
        return None
    warps = _round_up(launch.threads, WARP) // WARP
    fits = {
        "warps": most_warps // warps,
        "blocks": most_blocks,
        "registers": _fit_registers(warps, launch.registers, registers, block_registers),
        "shared memory": _fit_shared(launch.shared_bytes, shared, major),
    }
    limited_by = min(fits, key=lambda name: fits[name])
    blocks = fits[limited_by]
    if not blocks:
        return None
    waves = launch.blocks / (blocks * multiprocessors)
    whole = -(-launch.blocks // (blocks * multiprocessors))
    return Occupancy(blocks, blocks * warps / most_warps, limited_by, waves, whole - waves)


_FACTS = (
    "computeCapabilityMajor",
    "numMultiprocessors",
    "maxWarpsPerMultiprocessor",
    "maxBlocksPerMultiprocessor",
    "maxRegistersPerMultiprocessor",
    "maxRegistersPerBlock",
    "maxSharedMemoryPerMultiprocessor",
)


def _fit_registers(warps: int, registers: int, on_multiprocessor: int, in_block: int) -> int:
    if not registers:
        return 1 << 30
    a_warp = _round_up(registers * WARP, _REGISTER_UNIT)
    resident = in_block // a_warp // _WARP_UNIT * _WARP_UNIT
    return resident // warps * (on_multiprocessor // in_block)


def _fit_shared(shared: int, on_multiprocessor: int, major: int) -> int:
    kept, unit = (1024, 128) if major >= 8 else (0, 256)
    a_block = _round_up(shared + kept, unit)
    return on_multiprocessor // a_block if a_block else 1 << 30


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
