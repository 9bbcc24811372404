"""Messages between synthetic ranks, whose moments are known."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from rank_traces import MS
from synthetic import TraceWriter, tensor, text

from tracer.analysis.fleet.in_memory import merged_tables
from tracer.analysis.job.folder import load_job
from tracer.report.job_tables import Tables
from tracer.report.message_tables import most_waiting, own_bubble

SENDS, RECEIVES, ANY = 1, 2, 3


class Peer:
    """A rank that sends to others, and receives from them; of two ranks, to the other one."""

    def __init__(self, rank: int, boot: str = "clock", ranks: int = 2) -> None:
        self.rank, self.writer = rank, TraceWriter(ticks=1000)
        self.writer.process(0)
        groups = {"0": {"ranks": list(range(ranks)), "description": "default_pg"}}
        job = {"rank": rank, "ranks": ranks, "host": boot, "boot": boot, "groups": groups}
        self.writer.json(0, "rank", job)
        for number, op in enumerate(("aten::mm", "c10d::send", "c10d::recv_", "c10d::recv_any_source_")):
            self.writer.hop(number, op)
        self.writer.function(1, "cudaLaunchKernel")
        self.writer.string(1, "ncclDevKernel_SendRecv")
        self.lane, self.launched, self.marks = self.writer.lane(thread=100), 0, 0
        for line in range(1, 4):
            self.lane.define_source(line, "/work/pipe.py", line)
        for peer in range(ranks):
            for tag in range(2):
                words = ('{"process_group": "0"}', str(peer), str(tag))
                packed = b"".join(
                    struct.pack("<H", place) + text(word) for place, word in enumerate(words, 1)
                )
                scalars = struct.pack("<I", len(words)) + packed
                self.lane.define_signature(_signature(peer, tag), tensor((4,)), scalars=scalars)

    def marked(self, name: str) -> Peer:
        self.marks += 1
        self.lane.define_string(10 + self.marks, name)
        self.lane.range_enter(10 + self.marks)
        self.lane.range_exit()
        return self

    def at(
        self,
        ms: float,
        hop: int,
        line: int = 1,
        tag: int = 0,
        gpu: tuple[float, float] | None = None,
        peer: int | None = None,
    ) -> Peer:
        signature = _signature(1 - self.rank if peer is None else peer, tag)
        self.writer.ticks = max(self.writer.ticks, 1000 + int(ms * MS))
        self.lane.enter(hop, source=line, signature=signature if hop else 0)
        if gpu:
            self.launched += 1
            self.lane.api(1, correlation=self.launched)
            ran = [1000 + int(moment * MS) for moment in gpu]
            self.writer.activity(1, self.launched, *ran, name=1)
        self.lane.exit()
        return self

    def ends_group(self, begin: float, end: float) -> Peer:
        self.launched += 1
        self.lane.api(1, correlation=self.launched)
        self.writer.activity(1, self.launched, *(1000 + int(moment * MS) for moment in (begin, end)), name=1)
        return self

    def write(self, folder: Path, **header: int) -> None:
        last = {"last_ticks": self.writer.ticks, "last_ns": 5000 + 10 * (self.writer.ticks - 1000)}
        self.writer.header = {**last, "flags": 3, **header}
        folder.mkdir(exist_ok=True)
        self.writer.write(folder / f"rank{self.rank}.trace")


def _signature(peer: int, tag: int) -> int:
    return 1 + 2 * peer + tag


def tables(folder: Path) -> Tables:
    return merged_tables(load_job(folder), "job")


def waits(folder: Path) -> list[tuple[int, int, str, float]]:
    """receiver, sender, where it received, and what it waited, in ms."""
    return [
        (row["receiver"], row["sender"], row["received_at"][-1], round(row["total_ns"] / 1e6, 1))
        for row in tables(folder)["messages"].to_dicts()
    ]


def test_a_receiver_waits_until_the_sender_sends(tmp_path: Path) -> None:
    Peer(0).at(8, SENDS, 1).at(9, 0).write(tmp_path)
    Peer(1).at(2, RECEIVES, 2).at(9, 0).write(tmp_path)
    assert waits(tmp_path) == [(1, 0, "2", 6.0)]


def test_what_the_sender_did_before_is_named(tmp_path: Path) -> None:
    """A gap of 5 ms behind line 3, beside an op and a shorter gap."""
    Peer(0).at(0, 0, 3).at(5, 0, 2).at(6, SENDS, 1).at(7, 0).write(tmp_path)
    Peer(1).at(1, RECEIVES, 2).at(9, 0).write(tmp_path)
    (row,) = tables(tmp_path)["messages"].to_dicts()
    assert (row["before"], row["after"], row["op"]) == ("/work/pipe.py:3", "/work/pipe.py:2", None)
    assert round(row["did_ns"] / 1e6) == 5


def test_a_receiver_that_does_other_work_does_not_wait(tmp_path: Path) -> None:
    Peer(0).at(8, SENDS, 1).at(9, 0).write(tmp_path)
    Peer(1).at(2, RECEIVES, 2).at(3, 0).at(9, 0).write(tmp_path)
    assert waits(tmp_path) == [(1, 0, "2", 1.0)]


def test_a_message_that_was_sent_before_is_not_waited_for(tmp_path: Path) -> None:
    Peer(0).at(1, SENDS, 1).write(tmp_path)
    Peer(1).at(2, RECEIVES, 2).at(9, 0).write(tmp_path)
    assert waits(tmp_path) == [(1, 0, "2", 0.0)]


def test_messages_of_another_tag_are_other_messages(tmp_path: Path) -> None:
    """The first that is sent is the second that is received."""
    Peer(0).at(4, SENDS, 1, tag=1).at(8, SENDS, 3, tag=0).write(tmp_path)
    Peer(1).at(2, RECEIVES, 2, tag=0).at(2.5, RECEIVES, 1, tag=1).at(20, 0).write(tmp_path)
    assert waits(tmp_path) == [(1, 0, "2", 6.0), (1, 0, "1", 1.5)]
    (stage,) = (row for row in tables(tmp_path)["stages"].to_dicts() if row["received"])
    assert round(stage["waited_ns"] / 1e6, 1) == 6.0, "waits at once count once"


def test_on_the_gpu_kernels_wait(tmp_path: Path) -> None:
    Peer(0).at(1, SENDS, 1, gpu=(12, 13)).write(tmp_path)
    Peer(1).at(1, RECEIVES, 2, gpu=(5, 13)).at(2, 0).write(tmp_path)
    assert waits(tmp_path) == [(1, 0, "2", 7.0)]


@pytest.mark.parametrize("overwritten", [0, 7])
def test_what_has_no_other_end_is_counted(tmp_path: Path, overwritten: int) -> None:
    """From any rank; a call that the other rank never made; or all, where the first calls are missing."""
    Peer(0).at(1, SENDS, 1).write(tmp_path, overwritten_hops=overwritten)
    Peer(1).at(1, RECEIVES, 2).at(2, ANY).at(3, RECEIVES, 2).write(tmp_path)
    found = tables(tmp_path)["stages"].select("rank", "received", "unmatched").rows()
    assert found == [(0, 0, 0), ((1, 1, 2) if not overwritten else (1, 0, 3))]


def test_hosts_without_a_known_clock_are_not_compared(tmp_path: Path) -> None:
    Peer(0, boot="one").at(1, SENDS, 1).write(tmp_path)
    Peer(1, boot="two").at(1, RECEIVES, 2).write(tmp_path)
    assert waits(tmp_path) == []


def test_the_bubble_of_a_schedule() -> None:
    """p - 1 of m + p - 1 slots: 2 stages and 4 microbatches, 4 stages and 8 microbatches."""
    assert own_bubble(2, 4) == pytest.approx(1 / 5)
    assert own_bubble(4, 8) == pytest.approx(3 / 11)
    assert own_bubble(2, 4, 2) == pytest.approx(1 / 9)
    assert own_bubble(1, 4) is None
    assert own_bubble(2, None) is None
    assert own_bubble(2, -1) is None, "of a stranger's table"


def test_a_pipeline_is_the_ranks_that_messages_link(tmp_path: Path) -> None:
    """Two pipelines of three stages, of which the first receives nothing; the schedule's ranges tell m."""
    for first in (0, 3):
        for stage in range(3):
            peer = Peer(first + stage, ranks=6)
            for microbatch in range(3):
                begin = 10 * microbatch + 3 * stage
                peer.marked(f"Forward {microbatch}")
                if stage:
                    peer.at(begin - 2, RECEIVES, 2, peer=first + stage - 1)
                if stage < 2:
                    peer.at(begin + 2, SENDS, 1, peer=first + stage + 1)
                peer.at(begin + 2.5, 0)
            peer.write(tmp_path)
    said = most_waiting(tables(tmp_path), "job", "")
    assert said.endswith("GPipe and 1F1B of these stages leave 40.0 %.")


def test_the_rank_that_all_wait_for_is_named(tmp_path: Path) -> None:
    """The last stage waits for the second, which waited for the first: that one did something."""
    Peer(0, ranks=3).at(1, 0, 3).at(30, SENDS, 1, peer=1).write(tmp_path)
    Peer(1, ranks=3).at(1, RECEIVES, 2, peer=0).at(30.5, 0).at(31, SENDS, 1, peer=2).write(tmp_path)
    Peer(2, ranks=3).at(0, RECEIVES, 2, peer=1).at(40, 0).write(tmp_path)
    said = most_waiting(tables(tmp_path), "job", "")
    assert "most for rank 1, which waited for rank 0: `/work/pipe.py:1` -> `/work/pipe.py:2`." in said
    assert "`/work/pipe.py:3 -> /work/pipe.py:1` took 29.0 ms before it sent" in said


def test_without_ranges_of_a_schedule_nothing_is_said_of_it(tmp_path: Path) -> None:
    """Two tensors may be one microbatch."""
    Peer(0).at(8, SENDS, 1).at(9, 0).write(tmp_path)
    Peer(1).at(2, RECEIVES, 2).at(9, 0).write(tmp_path)
    said = most_waiting(tables(tmp_path), "job", "")
    assert "waited for messages" in said
    assert "leave" not in said


def test_a_kernel_of_a_group_has_no_op(tmp_path: Path) -> None:
    """batch_isend_irecv: ncclGroupEnd launches the kernel when the ops have ended."""
    Peer(0).at(8, SENDS, 1).ends_group(8.5, 9).at(20, 0).write(tmp_path)
    Peer(1).at(2, RECEIVES, 2).ends_group(2.5, 9).at(3, 0).at(20, 0).write(tmp_path)
    assert waits(tmp_path) == [(1, 0, "2", 6.0)]
    assert tables(tmp_path)["messages"]["on_gpu"].to_list() == [True]
