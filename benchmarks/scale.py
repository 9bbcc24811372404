"""What reading a long recording costs: seconds and peak memory of load, report and tree.

python benchmarks/scale.py [--hops 10_000_000] [--lanes 1] [--base FILE] [--folder FOLDER] [--json FILE]

A real recording (of examples/seq2seq_gru.py, or FILE) is written again and again, one copy after
the other in time, until the trace has as many hops as asked: threads, steps, autograd nodes and shapes are
those of a training run. Each reader then runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tracer.trace.bytes import format as fmt

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "seq2seq_gru.py"
SECONDS, GIB = {"report": 12.0, "tree of one step": 5.0}, {"report": 2.0}
"""Goals for ten million hops on two quiet cores"""
LOAD = "import sys; from tracer.trace import load; print(load(sys.argv[1]))"


@dataclass(frozen=True)
class Chunk:
    header: fmt.ChunkHeader
    payload: bytes


@dataclass(frozen=True)
class Cost:
    """What one reader took: seconds by the clock and of processors, and its largest resident memory."""

    what: str
    seconds: float
    processor_seconds: float
    peak_gib: float

    @property
    def verdict(self) -> str:
        bounds = [(self.seconds, SECONDS.get(self.what)), (self.peak_gib, GIB.get(self.what))]
        missed = any(bound is not None and measured > bound for measured, bound in bounds)
        return "" if self.what not in SECONDS else "missed" if missed else "met"


def chunks_of(data: bytes) -> Iterator[Chunk]:
    """The chunks of a trace that was stopped in order."""
    offset = fmt.HEADER_BYTES
    while offset + fmt.CHUNK_HEADER.size <= len(data):
        header = fmt.ChunkHeader(*fmt.CHUNK_HEADER.unpack_from(data, offset))
        if header.magic != fmt.CHUNK_MAGIC:
            offset += fmt.CHUNK_ALIGNMENT
            continue
        yield Chunk(header, data[offset + fmt.CHUNK_HEADER.size : offset + header.used])
        offset += header.capacity


@dataclass(frozen=True)
class Shift:
    """How much later a copy is than the recording, and on which threads."""

    ticks: int
    sequence: int
    """Autograd sequence numbers go on from the copy before"""
    threads: int


def moved(payload: bytes, shift: Shift) -> bytes:
    """The events of a chunk of hops of a recording without CUDA, in a copy."""
    words = np.frombuffer(payload, "<u8").copy()
    heads = np.flatnonzero(words.view(np.int64) < 0)
    kinds = words[heads] >> np.uint64(fmt.EVENT_KIND_SHIFT) & np.uint64(fmt.EVENT_KIND_MASK)
    words[heads] += np.uint64(shift.ticks)
    sequenced = heads[kinds == fmt.ENTER] + 3
    sequenced = sequenced[words[sequenced] & np.uint64(fmt.LOW_32) != fmt.NO_SEQUENCE]
    words[sequenced] += np.uint64(shift.sequence)
    nodes = heads[kinds == fmt.NODE]
    made = nodes[(words[nodes + 1] != fmt.ACCUMULATE_GRAD) & (words[nodes + 2] & np.uint64(fmt.LOW_32) != 0)]
    words[made + 1] += np.uint64(shift.sequence)
    words[made + 2] += np.uint64(shift.threads << 32)
    owners = heads[kinds == fmt.THREAD]
    words[owners + 1] += np.uint64(shift.threads | shift.threads << 32)
    return words.tobytes()


def extent(chunks: list[Chunk]) -> tuple[int, int, int]:
    """Of chunks of hops: hops, the last tick, the largest autograd sequence number."""
    hops = last = sequence = 0
    for chunk in chunks:
        words = np.frombuffer(chunk.payload, "<u8")
        heads = np.flatnonzero(words.view(np.int64) < 0)
        kinds = words[heads] >> np.uint64(fmt.EVENT_KIND_SHIFT) & np.uint64(fmt.EVENT_KIND_MASK)
        enters = heads[kinds == fmt.ENTER]
        numbers = words[enters + 3] & np.uint64(fmt.LOW_32)
        hops += len(enters)
        last = max(last, int((words[heads] & np.uint64(fmt.TICKS_MASK)).max(initial=0)))
        sequence = max(sequence, int(numbers[numbers != fmt.NO_SEQUENCE].max(initial=0)))
    return hops, last, sequence


def multiply(base: Path, output: Path, hops: int, lanes: int = 1) -> int:
    """Writes a trace of at least `hops` hops made of copies of `base`; returns how many it has.

    With several lanes the copies run side by side, as threads do.
    """
    data = base.read_bytes()
    file = fmt.unpack_file_header(data)
    chunks = list(chunks_of(data))
    of_hops = [chunk for chunk in chunks if chunk.header.stream == fmt.HOPS]
    others = [chunk for chunk in chunks if chunk.header.stream == fmt.DEFINITIONS]
    per_copy, last, sequence = extent(of_hops)
    copies = -(-hops // per_copy)
    rounds = -(-copies // lanes)
    own = 1 + max(chunk.header.lane for chunk in of_hops)
    lengths = {lane: sum(c.header.lane == lane for c in of_hops) for lane in range(own)}
    page = bytearray(data[: fmt.HEADER_BYTES])
    with output.open("wb") as out:
        out.write(page)

        def write(chunk: Chunk, payload: bytes, lane: int, ordinal: int, thread: int, ticks: int) -> None:
            header = chunk.header._replace(
                lane=lane,
                sequence=ordinal,
                thread=chunk.header.thread + thread,
                ticks=ticks,
                used=0,
                capacity=0,
            )
            out.write(fmt.pack_chunk(header, payload))

        for chunk in others:
            header = chunk.header
            for place in range(lanes if header.lane != fmt.PROCESS_LANE else 1):
                lane = header.lane + own * place if header.lane != fmt.PROCESS_LANE else header.lane
                write(chunk, chunk.payload, lane, header.sequence, place, header.ticks)
        for turn in range(rounds):
            for chunk in of_hops:
                for place in range(min(lanes, copies - turn * lanes)):
                    shift = Shift(turn * (last + 1), turn * (sequence + 1), place)
                    header = chunk.header
                    write(
                        chunk,
                        moved(chunk.payload, shift),
                        header.lane + own * place,
                        header.sequence + turn * lengths[header.lane],
                        place,
                        header.ticks + shift.ticks,
                    )
        end = out.tell()
        rate = (file.last_ticks - file.start_ticks) / (file.last_ns - file.start_ns)
        header = file._replace(
            next_chunk=end,
            last_ticks=file.start_ticks + rounds * (last + 1),
            last_ns=file.start_ns + int(rounds * (last + 1) / rate),
        )
        out.seek(0)
        out.write(fmt.FILE_HEADER.pack(*header))
    return per_copy * copies


def measure(what: str, *arguments: str) -> Cost:
    """Runs Python with these arguments; its output is dropped. Raises where it fails."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{what} ended with {process.returncode}")
    return Cost(
        what, round(seconds, 1), round(used.ru_utime + used.ru_stime, 1), round(used.ru_maxrss / (1 << 20), 2)
    )


def record(folder: Path) -> Path:
    base = folder / "base.trace"
    command = [Path(sysconfig.get_path("scripts")) / "tracer", "record", "--force", "-o", base, EXAMPLE]
    subprocess.run([*map(str, command), "--epochs", "4"], check=True, stdout=subprocess.DEVNULL)
    return base


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds and memory that reading a long recording takes.")
    parser.add_argument("--hops", type=int, default=10_000_000)
    parser.add_argument("--lanes", type=int, default=1, help="threads that ran side by side")
    parser.add_argument("--base", type=Path, help="a recording without CUDA to copy; else one is made")
    parser.add_argument("--folder", type=Path, help="where the trace goes and stays; else it is removed")
    parser.add_argument("--step", type=int, default=80)
    parser.add_argument("--only", choices=["load", "report", "tree", "flat"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        trace = folder / f"scale.{options.hops}.{options.lanes}.trace"
        if not trace.exists():
            hops = multiply(options.base or record(folder), trace, options.hops, options.lanes)
            print(f"{hops:,} hops, {trace.stat().st_size / (1 << 20):,.0f} MiB", flush=True)
        app, path = ("-m", "tracer.cli.app"), str(trace)
        runs = {
            "load": ("load", ("-c", LOAD, path)),
            "report": ("report", (*app, "report", path)),
            "tree": ("tree of one step", (*app, "tree", path, "--step", str(options.step))),
            "flat": ("flat", (*app, "top", path)),
        }
        costs = []
        for name, (what, arguments) in runs.items():
            if options.only in (None, name):
                costs.append(cost := measure(what, *arguments))
                print(
                    f"{what:18} {cost.seconds:6.1f} s ({cost.processor_seconds:.1f} s of processors) "
                    f"{cost.peak_gib:6.2f} GiB  {cost.verdict}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")


if __name__ == "__main__":
    main()
