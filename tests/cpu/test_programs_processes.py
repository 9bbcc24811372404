"""Programs of several processes: a fork server with torch in it, loaders whose workers are spawned."""

from __future__ import annotations

import polars as pl
import pytest
from launching import Launcher
from programs import at, values, whole

import tracer


def load(launcher: Launcher) -> tracer.Trace:
    return whole(tracer.load(launcher.folder / "both.trace"))


def test_fork_server_with_torch(launcher: Launcher) -> None:
    """The server imports torch once and joins; its children are forked from it, hooked already."""
    launcher.write(
        "import multiprocessing, torch\n"
        "def work(n, out):\n"
        "    x = torch.linspace(0, 1, 4)\n"
        "    for _ in range(n): x = torch.neg(x).exp()\n"
        "    out.put(x.numpy().tobytes())\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('forkserver')\n"
        "    context.set_forkserver_preload(['torch'])\n"
        "    out = context.Queue()\n"
        "    for n in (3, 5):\n"
        "        child = context.Process(target=work, args=(n, out))\n"
        "        child.start(); print(out.get()); child.join(); print(child.exitcode)\n"
    )
    launcher.same("script.py")
    trace = load(launcher)
    assert trace.processes["how"].cast(pl.String).to_list() == ["root", "joined", "forked", "forked"]
    counts = at(trace.hops, "aten::exp", "CPU").group_by("process").len().sort("process").rows()
    assert counts == [(2, 3), (3, 5)], "the server itself runs nothing"
    assert all(source.endswith("script.py:4") for source in values(at(trace.hops, "aten::exp"), "source"))


@pytest.mark.parametrize(
    ("method", "torch_in_main"),
    [
        ("fork", True),
        ("fork", False),
        ("spawn", False),
        ("forkserver", True),
        # The other two in `make nightly`: torch is loaded a dozen times in each.
        pytest.param("spawn", True, marks=pytest.mark.slow),
        pytest.param("forkserver", False, marks=pytest.mark.slow),
    ],
)
def test_children_of_children_and_pools(launcher: Launcher, method: str, torch_in_main: bool) -> None:
    """All of them end their part, whether they have torch from the start or import it while they work."""
    launcher.write(
        "import concurrent.futures, multiprocessing, sys\n"
        + "import torch\n" * torch_in_main
        + "def work(n):\n"
        "    import torch\n"
        "    x = torch.ones(2)\n"
        "    for _ in range(n): torch.neg(x)\n"
        "    return n\n"
        "def parent(n):\n"
        "    child = multiprocessing.Process(target=work, args=(n,))\n"
        "    child.start(); work(1); child.join()\n"
        "def leave():\n"
        "    work(11); sys.exit(4)\n"
        "def start(target, *args):\n"
        "    child = multiprocessing.Process(target=target, args=args)\n"
        "    child.start(); child.join(); print(child.exitcode)\n"
        "if __name__ == '__main__':\n"
        f"    multiprocessing.set_start_method({method!r})\n"
        "    work(0)\n"
        "    start(parent, 3); start(leave)\n"
        "    with multiprocessing.Pool(1) as pool:\n"
        "        print(pool.map(work, [4, 1])); pool.close(); pool.join()\n"
        "    with concurrent.futures.ProcessPoolExecutor(1) as pool: print(list(pool.map(work, [5, 2])))\n"
        "    import torch.multiprocessing\n"
        f"    torch.multiprocessing.start_processes(work, nprocs=2, start_method={method!r})\n"
    )
    launcher.says("0\n4\n[4, 1]\n[5, 2]\n", "script.py")  # torch is loaded seven times in a run that spawns
    negated = at(load(launcher).hops, "aten::neg", "CPU").group_by("process").len()
    assert sorted(negated["len"]) == [1, 1, 3, 5, 7, 11], "of start_processes: 0 and 1"


def test_persistent_workers(launcher: Launcher) -> None:
    """Spawned workers that live through both epochs: each is one process, with its own random numbers."""
    script = (
        "import torch\n"
        "from torch.utils.data import DataLoader, IterableDataset, get_worker_info\n"
        "class Stream(IterableDataset):\n"
        "    def __iter__(self):\n"
        "        worker = get_worker_info()\n"
        "        for i in range(worker.id, 8, worker.num_workers):\n"
        "            yield torch.linspace(0, 1, 4).mul(i), torch.rand(2)\n"
        "if __name__ == '__main__':\n"
        "    torch.manual_seed(0)\n"
        "    loader = DataLoader(Stream(), batch_size=2, num_workers=2, persistent_workers=True,\n"
        "                        multiprocessing_context='spawn')\n"
        "    for epoch in range(2):\n"
        "        for row, random in loader: print(row.numpy().tobytes(), random.numpy().tobytes())\n"
        "    del loader  # else it is left to the end of the interpreter, which kills the workers\n"
    )
    launcher.write(script)
    launcher.write(script.replace("'spawn'", "'fork'"), "forks.py")  # which says the same, sooner
    alone = launcher.python("forks.py")
    assert (alone.status, alone.err) == (0, "")
    launcher.says(alone.out, "script.py")
    trace = load(launcher)
    assert trace.processes["how"].cast(pl.String).to_list() == ["root", "joined", "joined"]
    assert at(trace.hops, "aten::mul.Tensor", "CPU").group_by("process").len().sort("process").rows() == [
        (1, 8),
        (2, 8),
    ]
    stacked = at(trace.hops, "aten::stack.out", "CPU")  # a batch is put together in shared memory
    assert sorted(values(stacked, "process")) == [1, 2], "by the workers"
    assert sorted(values(at(trace.hops, "aten::rand"), "process")) == [1, 2]
