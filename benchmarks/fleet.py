"""What `tracer fleet` takes for many ranks: seconds of a rank, and the memory of all its processes.

python benchmarks/fleet.py --ranks 1 10 100 1000 --hops 100_000 [--jobs 2] [--seconds S] [--base FILE]

Each trace is made, analysed and deleted before there are more than a few. A real recording on the CPU (one
rank of examples/ddp.py, or FILE) is written again and again until it has as many hops as asked, see scale.py.
That file is copied for each rank. In the copy the rank, the name of its host and the moment at which it began
are others; hops and their times are the same. All hosts have one clock here.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scale import chunks_of, multiply

from tracer.fleet.traces import TraceFile
from tracer.trace.bytes import format as fmt

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "ddp.py"
RANKS_A_HOST = 8
_DEFINITIONS = 64 << 20
"""Within so many bytes scale.py writes the definitions, before all hops"""
LATER_NS = 40_000
"""How much later each rank in a hundred begins than the one before"""


@dataclass(frozen=True)
class Cost:
    """Of one run. `peak_gib` is resident memory of all processes together, `largest_gib` of one of them."""

    ranks: int
    hops: int
    seconds: float
    processor_seconds: float
    making_seconds: float
    merge_seconds: float
    peak_gib: float
    largest_gib: float
    parts_mib: float
    stopped: bool

    @property
    def seconds_a_rank(self) -> float:
        """Of analysis and merging, without making traces."""
        return (self.seconds - self.making_seconds) / self.ranks


class Template:
    """A trace that is copied for other ranks: only documents that say its rank change.

    There are several: one at its begin, and one for each process group that it joins.
    """

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        with trace.open("rb") as file:
            data = file.read(_DEFINITIONS)
        self._header = fmt.unpack_file_header(data)
        self._chunks = []
        offset = fmt.HEADER_BYTES
        for chunk in chunks_of(data):
            offset = data.index(fmt.pack_chunk(chunk.header, chunk.payload)[: fmt.CHUNK_HEADER.size], offset)
            if chunk.header.stream == fmt.DEFINITIONS and any(_rank_documents(chunk.payload)):
                self._chunks.append((offset, chunk))
        if not self._chunks:
            raise SystemExit(f"{trace} says no rank")

    def write(self, output: Path, rank: int, ranks: int) -> None:
        began = self._header.start_ns + rank % 100 * LATER_NS
        with self._trace.open("rb") as source, output.open("wb") as out:
            for offset, chunk in self._chunks:
                out.write(source.read(offset - source.tell()))
                payload = _of_rank(chunk.payload, rank, ranks)
                out.write(fmt.pack_chunk(chunk.header._replace(used=0, capacity=0), payload))
                source.seek(chunk.header.capacity, os.SEEK_CUR)
            shutil.copyfileobj(source, out, 1 << 22)
            end = out.tell()
            out.seek(0)
            last = began + self._header.last_ns - self._header.start_ns
            out.write(
                fmt.FILE_HEADER.pack(*self._header._replace(next_chunk=end, start_ns=began, last_ns=last))
            )


def _of_rank(payload: bytes, rank: int, ranks: int) -> bytes:
    """A chunk with this rank in its documents, and all ranks in the group of all."""
    place = {"rank": rank, "ranks": ranks, "host": f"node{rank // RANKS_A_HOST:03}"}
    parts, end = [], 0
    for start, size, document in _rank_documents(payload):
        groups = dict(document.get("groups", {}))
        if "0" in groups:
            groups["0"] = {**groups["0"], "ranks": list(range(ranks))}
        parts += [payload[end:start], _definition({**document, **place, "groups": groups})]
        end = start + size
    return b"".join([*parts, payload[end:]])


def _rank_documents(payload: bytes) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Where each record of a rank begins in a chunk, how long it is, and what it says."""
    offset = 0
    while offset + fmt.DEFINITION_HEAD.size <= len(payload):
        size, kind, _, _ = fmt.DEFINITION_HEAD.unpack_from(payload, offset)
        if kind == fmt.JSON:
            body = payload[offset + fmt.DEFINITION_HEAD.size : offset + size]
            (length,) = struct.unpack_from("<I", body)
            if body[4 : 4 + length] == b"rank":
                (packed,) = struct.unpack_from("<I", body, 4 + length)
                yield offset, size, json.loads(zlib.decompress(body[8 + length : 8 + length + packed]))
        offset += size


def _definition(document: dict[str, Any]) -> bytes:
    packed = zlib.compress(json.dumps(document).encode())
    body = struct.pack("<I", 4) + b"rank" + struct.pack("<I", len(packed)) + packed
    size = -(-(fmt.DEFINITION_HEAD.size + len(body)) // 8) * 8
    return (fmt.DEFINITION_HEAD.pack(size, fmt.JSON, fmt.DEFINITION_MAGIC, 0) + body).ljust(size, b"\0")


class Memory:
    """Resident memory of this process and those below it, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak = self.largest = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            of_each = [_resident(pid) for pid in _tree(os.getpid())]
            self.peak, self.largest = max(self.peak, sum(of_each)), max(self.largest, *of_each)


def _tree(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for thread in os.listdir(f"/proc/{pid}/task"):
            if thread != str(pid):
                children += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(below for child in children for below in _tree(int(child)))]


def _processor_seconds() -> float:
    """Of this process and those that it started and that ended."""
    own, started = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + started.ru_utime + started.ru_stime


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def run(template: Template, ranks: int, hops: int, jobs: int, folder: Path, seconds: float) -> Cost:
    """Makes, analyses and deletes traces of `ranks` ranks; no further ones after these seconds."""
    from tracer.analysis.fleet.merge import merge
    from tracer.fleet.gather import gather
    from tracer.fleet.parts import Parts
    from tracer.fleet.processes import Processes
    from tracer.fleet.work import write

    out = folder / f"fleet.{ranks}.{hops}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    began, making, made, used = time.perf_counter(), 0.0, 0, _processor_seconds()

    def traces() -> Iterator[TraceFile]:
        nonlocal making, made
        for rank in range(ranks):
            if time.perf_counter() - began > seconds:
                return
            start = time.perf_counter()
            trace = out / f"rank{rank:04}.trace"
            template.write(trace, rank, ranks)
            making += time.perf_counter() - start
            made += 1
            yield TraceFile(str(trace), "job", "1")

    parts = Parts(out)
    with Memory() as memory:
        found = gather(
            parts, traces(), Processes(jobs), say=print, done=lambda trace: Path(trace.path).unlink()
        )
        start = time.perf_counter()
        tables = merge(parts.all())
        write(tables, out)
        end = time.perf_counter()
    if found.errors or len(tables["ranks"]) != made or int(tables["ranks"]["hops"].min()) < hops:  # type: ignore[arg-type]
        raise SystemExit(f"{made} ranks were made, and the tables have {len(tables['ranks'])}: {found}")
    size = sum(file.stat().st_size for file in (out / "part").rglob("*.parquet"))
    shutil.rmtree(out)
    return Cost(
        *(made, int(tables["ranks"]["hops"].sum()), round(end - began, 1)),
        processor_seconds=round(_processor_seconds() - used, 1),
        making_seconds=round(making, 1),
        merge_seconds=round(end - start, 1),
        peak_gib=round(memory.peak / (1 << 30), 2),
        largest_gib=round(memory.largest / (1 << 30), 2),
        parts_mib=round(size / (1 << 20), 1),
        stopped=made < ranks,
    )


def record(folder: Path) -> Path:
    """One rank of two, on the CPU."""
    scripts = Path(sysconfig.get_path("scripts"))
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*job, "--no-python", scripts / "tracer", "record", "--force", "-o", f"{folder}/base/"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*map(str, command), str(EXAMPLE)], check=True, stdout=subprocess.DEVNULL, env=environment)
    return folder / "base" / "rank0.trace"


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds and memory that `tracer fleet` takes.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--hops", type=int, default=100_000)
    parser.add_argument("--jobs", "-j", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no rank after these")
    parser.add_argument("--base", type=Path, help="a recording of a rank without CUDA; else one is made")
    parser.add_argument("--folder", type=Path, help="where traces are made; else a temporary folder")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    costs = []
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        long = folder / "long.trace"
        multiply(options.base or record(folder), long, options.hops)
        print(f"{long.stat().st_size / (1 << 20):,.1f} MiB a trace", flush=True)
        template = Template(long)
        for ranks in options.ranks:
            costs.append(cost := run(template, ranks, options.hops, options.jobs, folder, options.seconds))
            print(
                f"{cost.ranks:5,} ranks of {cost.hops // cost.ranks:,} hops: {cost.seconds:,.1f} s, of that "
                f"{cost.making_seconds:,.1f} s making traces and {cost.merge_seconds:,.1f} s merging; "
                f"{cost.seconds_a_rank:.2f} s a rank, "
                f"{cost.processor_seconds / cost.ranks:.2f} s of processors; "
                f"{cost.peak_gib:.2f} GiB in all processes, "
                f"{cost.largest_gib:.2f} in the largest; parts {cost.parts_mib:,.1f} MiB"
                f"{'; stopped' if cost.stopped else ''}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")


if __name__ == "__main__":
    main()
