"""Recordings of moves: calls and returns on the lanes of threads, and the hops that they are."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from synthetic import AUTOGRAD_CPU, CPU, NO_SEQUENCE, Lane, TraceWriter

NS = 10  # of a tick, by the clock in the header


class Move(NamedTuple):
    """Enters a hop and then leaves the innermost `leaves` ones."""

    hop: int
    source: int
    at_autograd: bool
    raised: bool
    leaves: int


moves = st.builds(Move, st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans(), st.integers(0, 3))


def run(lane: Lane, thread_moves: list[Move], rows: list[dict[str, Any]]) -> None:
    """Writes the events of a thread; its last hops stay open."""
    first = len(rows)
    open_rows: list[int] = []
    last = 0
    for move in thread_moves:
        row = len(rows)
        key_set, sequence = (AUTOGRAD_CPU, row) if move.at_autograd else (CPU, NO_SEQUENCE)
        written = 0 if open_rows else move.source
        last = lane.enter(move.hop, key_set, source=written, sequence=sequence)
        line = f"train.py:{written}" if written else None
        source = rows[open_rows[0]]["source"] if open_rows else line
        rows.append(
            {
                "process": lane.process,
                "thread": lane.thread,
                "parent": open_rows[-1] if open_rows else None,
                "op": f"aten::op{move.hop}",
                "key": "AutogradCPU" if move.at_autograd else "CPU",
                "kind": "call",
                "source": source,
                "called_from": source,
                "sequence_nr": row if move.at_autograd else None,
                "start_ns": last * NS,
                "end_ns": None,
                "raised": False,
                "open": True,
            }
        )
        open_rows.append(row)
        for _ in range(min(move.leaves, len(open_rows))):
            last = lane.exit(move.raised)
            rows[open_rows.pop()].update(end_ns=last * NS, open=False, raised=move.raised)
    for row in open_rows:
        rows[row]["end_ns"] = last * NS
    for row in rows[first:]:
        row["self_ns"] = row["end_ns"] - row["start_ns"]
    for row in rows[first:]:
        if row["parent"] is not None:
            rows[row["parent"]]["self_ns"] -= row["end_ns"] - row["start_ns"]


def new_recording(processes: int = 1, **options: int) -> TraceWriter:
    writer = TraceWriter(**options)  # type: ignore[arg-type]
    for process in range(processes):
        writer.process(process, how=0 if process == 0 else 2)
        for hop in range(4):
            writer.hop(hop, f"aten::op{hop}", process=process)
    return writer


def record(
    processes: list[list[list[list[Move]]]], **options: int
) -> tuple[TraceWriter, list[dict[str, Any]]]:
    """Each process has lanes; each lane is used by threads one after the other."""
    writer = new_recording(max(len(processes), 1), **options)
    rows: list[dict[str, Any]] = []
    thread = 1000
    for process, lanes in enumerate(processes):
        for number, threads in enumerate(lanes):
            lane = writer.lane(process, number, thread + 1, torch_thread=thread + 1)
            for line in range(1, 4):
                lane.define_source(line, "train.py", line)
            for thread_moves in threads:
                thread += 1
                lane.adopt(thread, torch_thread=thread)
                run(lane, thread_moves, rows)
    return writer, rows
