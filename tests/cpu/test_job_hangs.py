"""Three ranks, of which rank 1 hangs in one of five ways: the report of their dumps names the place."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import TIMEOUT, Launcher

HANGS = """\
import os, signal, sys, threading, time
import torch
import torch.distributed as dist

case, rank = sys.argv[1], int(os.environ["RANK"])


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        while i == 2 and rank == 1 and not os.path.exists("go"):
            time.sleep(0.05)
        return torch.ones(4)


lock = threading.Lock()
options = dict(num_workers=1, prefetch_factor=1, multiprocessing_context="fork") if case == "loader" else {}
dist.init_process_group("gloo")
for step, x in enumerate(torch.utils.data.DataLoader(Data(), **options) if options else [torch.ones(4)] * 3):
    hangs = step == 2 and rank == 1
    y = x * 2
    if hangs and case == "lock":
        lock.acquire()
    with lock:
        z = y.view(2, 2)
    if hangs and case == "kernel":
        torch.linalg.svd(torch.ones(8000, 8000))
    if hangs and case == "dead":
        if not os.fork():  # keeps the sockets open, as a worker does: else gloo says that its peer has died
            while not os.path.exists("go"):
                time.sleep(0.05)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    if hangs and case == "other":
        dist.barrier()
    if step == 2:
        open(f"ready.{rank}", "w").close()
    dist.all_reduce(y)
"""
WAIT = r"Ranks 0, 2 have waited there for [\d.]+ m?s( to [\d.]+ m?s)?\. "
PLACES = {
    "kernel": WAIT + r"Rank 1 has been in `aten::\w+(\.\w+)?` of `script\.py:29` for [\d.]+ m?s\.$",
    "lock": WAIT + r"Rank 1 left `aten::mul\.Tensor` of `script\.py:23` [\d.]+ m?s ago, and has called no op "
    r"since \(last time, `script\.py:27` came next\)\.$",
    "loader": WAIT
    + r"Rank 1 left `c10d::allreduce_` of `script\.py:40` [\d.]+ m?s ago, and has called no op "
    r"since \(in the range `enumerate\(DataLoader\)#_MultiProcessingDataLoaderIter\.__next__`; "
    r"last time, `script\.py:21` came next\)\.$",
}


def report_of_dumps(launcher: Launcher, case: str) -> list[str]:
    """The paragraphs of the report of the dumps of a job whose rank 1 hangs."""
    launcher.write(HANGS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher.environment |= {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [str(launcher.tracer), "record", "--max-size", "16M", "-o", "job/", "script.py", case]
    ranks = list(started(launcher, command))
    try:
        wait_for(launcher.folder, "ready.0", "ready.2")
        alive = [0, 1, 2]
        if case == "dead":
            ranks[1].wait(TIMEOUT)
            alive.remove(1)
        time.sleep(1.1)
        for rank in alive:
            ranks[rank].send_signal(signal.SIGUSR2)
        wait_for(launcher.folder, *(f"job/rank{rank}.dump0001.trace" for rank in alive))
    finally:
        (launcher.folder / "go").touch()
        for process in ranks:
            if case != "loader":  # its worker would live on
                process.kill()
            process.communicate(timeout=TIMEOUT)
    (launcher.folder / "hang").mkdir()
    for path in launcher.folder.glob("job/*.dump0001.trace"):
        path.rename(launcher.folder / "hang" / path.name)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del launcher.environment[name]
    run = launcher.run([str(launcher.tracer), "report", "hang/"])
    assert run.status == 0, run.err
    print(run.out[:2000])
    return run.out.split("\n\n")


def started(launcher: Launcher, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    for rank in range(3):
        launcher.environment["RANK"] = str(rank)
        yield launcher.start(*command)


def wait_for(folder: Path, *names: str) -> None:
    end = time.monotonic() + TIMEOUT
    while not all((folder / name).exists() for name in names):
        assert time.monotonic() < end, [name for name in names if not (folder / name).exists()]
        time.sleep(0.02)


@pytest.mark.promise("report", "docs/jobs.md#a-job-that-hangs")
@pytest.mark.parametrize("case", ["kernel", "lock", "loader"])
def test_a_rank_that_did_not_come(launcher: Launcher, case: str) -> None:
    said = report_of_dumps(launcher, case)[2]
    number = r"\*\*Rank 1 did not reach\*\* `c10d::allreduce_` of `script\.py:40` \(call 2 of group `0`\)\. "
    assert re.match(number + PLACES[case], said), said


def test_a_rank_in_another_collective(launcher: Launcher) -> None:
    assert report_of_dumps(launcher, "other")[2].startswith(
        "**Ranks wait in different collectives**: call 2 of group `0` is `c10d::allreduce_` of "
        "`script.py:40` on ranks 0, 2 and `c10d::barrier` of `script.py:37` on rank 1."
    )


def test_a_dead_rank(launcher: Launcher) -> None:
    text = "\n\n".join(report_of_dumps(launcher, "dead"))
    wait = "**Ranks 0, 2 probably wait** in `c10d::allreduce_` of `script.py:40` (call 2 of "
    assert wait in text, text
    ended = "No trace here is of rank 1. If a rank got the signal and wrote no dump, its process has ended."
    assert ended in text, text
