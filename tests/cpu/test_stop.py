"""A stop leaves each dispatch table entry as it was found, whatever happened meanwhile."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import Launcher
from lazily import torch
from table_words import TableWords, build, changed

import tracer

HERE = Path(__file__).parent
Undo = Callable[[], None]


@pytest.fixture(scope="session")
def words_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("words") / "table_words.so"
    build(library)
    return library


@pytest.fixture
def words(words_library: Path) -> TableWords:
    return TableWords(words_library)


def dumps() -> dict[str, str]:
    return {
        name: torch._C._dispatch_dump(name) + torch._C._dispatch_dump_table(name)
        for name in torch._C._dispatch_get_all_op_names()
    }


@pytest.mark.promise("docs/how_it_works.md")
def test_every_entry_is_as_found(tmp_path: Path, words: TableWords) -> None:
    before, texts = words.read(), dumps()
    with tracer.record(tmp_path / "t.trace") as recording:
        assert words.hooked() > 100_000
        torch.ones(2, requires_grad=True).mul(2).sum().backward()
    assert recording.summary.hops > 0
    assert words.hooked() == 0
    assert changed(before, words.read()) == []
    assert dumps() == texts
    torch._C._dispatch_check_all_invariants()


def test_the_dispatcher_checks_one_operator(tmp_path: Path) -> None:
    """As torch's own tests do, past the check of all operators."""
    with tracer.record(tmp_path / "t.trace"):
        for name in ("aten::sin", "aten::mm"):
            torch._C._dispatch_check_invariants(name)
        torch._C._dispatch_check_all_invariants()
    torch._C._dispatch_check_invariants("aten::sin")


# ---- the table changes while recording -----------------------------------------------------------


def seven(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.full((2,), 7.0)


def implement_mul() -> Undo:
    library = torch.library.Library("aten", "IMPL")
    library.impl("mul.Tensor", seven, "CPU")
    assert product() == 7
    return library._destroy


def implement_a_composite() -> Undo:
    library = torch.library.Library("aten", "IMPL")
    library.impl("matmul", seven, "CompositeImplicitAutograd")
    assert torch.matmul(torch.ones(2, 2), torch.ones(2))[0] == 7
    return library._destroy


def implement_mul_twice() -> Undo:
    first, second = torch.library.Library("aten", "IMPL"), torch.library.Library("aten", "IMPL")
    first.impl("mul.Tensor", lambda a, b: torch.full((2,), 8.0), "CPU")
    assert product() == 8
    second.impl("mul.Tensor", seven, "CPU", allow_override=True)
    assert product() == 7
    first._destroy()  # the older kernel goes; the newer one stays in the table
    assert product() == 7
    return second._destroy


def define_an_operator() -> Undo:
    library = torch.library.Library("tracerstop", "FRAGMENT")
    library.define("own(Tensor x) -> Tensor")
    library.impl("own", lambda x: x + 1, "CompositeExplicitAutograd")
    assert torch.ops.tracerstop.own(torch.ones(2))[0] == 2
    return library._destroy


def define_a_custom_op() -> Undo:
    @torch.library.custom_op("tracerstop::custom", mutates_args=())
    def custom(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    custom.register_autograd(lambda ctx, grad: grad * 3)
    x = torch.ones(2, requires_grad=True)
    custom(x).sum().backward()
    assert x.grad[0] == 3
    return custom._lib._destroy


def register_a_fallback() -> Undo:
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda op, *args, **kwargs: torch.full((2,), 9.0), "PrivateUse3")
    return library._destroy


CHANGES = [
    implement_mul,
    implement_a_composite,
    implement_mul_twice,
    define_an_operator,
    define_a_custom_op,
    register_a_fallback,
]


def product() -> float:
    return torch.mul(torch.ones(2), torch.ones(2))[0].item()


@pytest.mark.parametrize("change", CHANGES)
def test_entries_that_change_while_recording(
    tmp_path: Path, words: TableWords, change: Callable[[], Undo]
) -> None:
    undo = change()  # as it is without a recording
    changed_words = words.read()
    undo()
    found = words.read()

    def assert_now(expected: dict) -> None:
        assert words.hooked() == 0
        assert changed(expected, words.read()) == []
        torch._C._dispatch_check_all_invariants()

    with tracer.record(tmp_path / "made.trace") as made:
        undo = change()
        torch.ones(1)  # a recording without an op is not complete
    assert_now(changed_words)
    with tracer.record(tmp_path / "unmade.trace") as unmade:
        undo()
        torch.ones(1)
    assert_now(found)
    with tracer.record(tmp_path / "both.trace") as both:
        change()()
        torch.ones(1)
    assert_now(found)
    assert product() == 1
    verdicts = {recording.summary.verdict for recording in (made, unmade, both)}
    assert verdicts == {"complete: nothing dropped"}


def test_changes_between_recordings(tmp_path: Path, words: TableWords) -> None:
    for change in CHANGES:  # torch registers some operators of its own at a first use
        change()()
    found = words.read()
    for change in CHANGES:
        with tracer.record(tmp_path / "t.trace", force=True):
            undo = change()
        with tracer.record(tmp_path / "t.trace", force=True):
            product()
        undo()
        with tracer.record(tmp_path / "t.trace", force=True):
            assert product() == 1
    assert changed(found, words.read()) == []


# ---- after a stop --------------------------------------------------------------------------------


def test_nothing_is_written_after_a_stop(tmp_path: Path) -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(1)
        x = torch.randn(4, 4, requires_grad=True)
        loss = torch.nn.functional.layer_norm(x @ x, (4,)).relu().sum()
        loss.backward()
        return [loss.detach(), x.grad]

    before = run()
    path = tmp_path / "t.trace"
    with tracer.record(path) as recording:
        during = run()
    written = path.read_bytes()
    after = run()
    assert path.read_bytes() == written
    assert len(tracer.load(path).hops) == recording.summary.hops > 0
    for results in (during, after):
        assert all(torch.equal(a, b) for a, b in zip(results, before, strict=True))


def test_a_pause_in_the_middle_of_a_hop_keeps_later_hops_at_their_depth(tmp_path: Path) -> None:
    from tracer import _C

    with (
        tracer.record(tmp_path / "t.trace"),
        torch.library._scoped_library("tracerstop", "FRAGMENT") as library,
    ):
        library.define("pausing(Tensor x) -> Tensor")

        def pausing(x: torch.Tensor) -> torch.Tensor:
            _C.pause()
            return x.clone()

        library.impl("pausing", pausing, "CPU")
        x = torch.ones(2)
        torch.ops.tracerstop.pausing(x)
        torch.neg(x)  # not recorded
        _C.start()
        torch.abs(x)
    hops = tracer.load(tmp_path / "t.trace").hops
    assert "aten::neg" not in set(hops["op"].cast(str))
    late = hops.filter(hops["op"].cast(str) == "aten::abs")
    assert late["parent"].null_count() == 1, "nested in a hop that was left during the pause"


# ---- beside running threads ----------------------------------------------------------------------


def stress(launcher: Launcher, words_library: Path, *counts: int) -> None:
    done = launcher.python(str(HERE / "stop_stress.py"), str(words_library), *map(str, counts))
    assert (done.status, done.err) == (0, "")
    assert min(map(int, done.out.split()[1:])) > 0


def test_beside_running_threads(launcher: Launcher, words_library: Path) -> None:
    stress(launcher, words_library, 1_000, 10, 10)


@pytest.mark.slow
def test_beside_running_threads_for_long(launcher: Launcher, words_library: Path) -> None:
    stress(launcher, words_library, 10_000, 300, 200)


def test_the_hooks_of_a_step_in_another_thread_do_not_change(tmp_path: Path) -> None:
    from torch.optim.optimizer import _global_optimizer_post_hooks as hooks  # torch.optim hides the module

    stepping, go_on = threading.Event(), threading.Event()

    def stay(*_: object) -> None:
        stepping.set()
        go_on.wait()

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    optimizer.register_step_pre_hook(stay)
    found = list(hooks)
    recording = tracer.record(tmp_path / "begun_before.trace")
    recording.start()
    begun = list(hooks)
    assert len(begun) == len(found) + 1
    thread = threading.Thread(target=optimizer.step)
    thread.start()
    try:
        stepping.wait()
        torch.ones(1)
        recording.stop()
        assert list(hooks) == begun
        with tracer.record(tmp_path / "begun_inside.trace"):
            torch.ones(1)
            assert list(hooks) == begun
    finally:
        go_on.set()
        thread.join()
    until = time.monotonic() + 60
    while list(hooks) != found and time.monotonic() < until:
        time.sleep(0.001)
    assert list(hooks) == found


COLLECTING = """
import faulthandler, gc, sys, threading
import torch, tracer

class Cycle: pass

def leave_garbage(*_):
    cycle = Cycle()
    cycle.itself, cycle.local = cycle, threading.local()

def wait(depth):
    return wait(depth - 1) if depth else end.wait()

end = threading.Event()
threads = [threading.Thread(target=wait, args=(depth,)) for depth in range(8)]
for thread in threads:
    thread.start()
events = set()
sys.addaudithook(lambda event, _: events.add(event))
faulthandler.dump_traceback_later(120, exit=True)
gc.callbacks.append(leave_garbage)
gc.set_threshold(1, 1_000_000, 1_000_000)
with tracer.record("t.trace"):
    torch.ones(1)
gc.callbacks.clear()
end.set()
print("sys._current_frames" in events)
"""


def test_while_garbage_of_the_script_is_collected(launcher: Launcher) -> None:
    """sys._current_frames() of Python 3.11 hangs if it collects a threading.local as garbage (gh-106883)."""
    done = launcher.python(str(launcher.write(COLLECTING)))
    assert (done.status, done.out, done.err) == (0, "False\n", "")


def test_a_recording_leaves_no_thread_local_as_garbage(tmp_path: Path) -> None:
    """Or the script's own sys._current_frames() could hang after it."""

    def thread_locals() -> set[int]:
        return {id(thing) for thing in gc.get_objects() if type(thing) is threading.local}

    gc.collect()
    gc.disable()
    try:
        before = thread_locals()
        with tracer.record(tmp_path / "t.trace"):
            torch.ones(1)
        assert thread_locals() <= before
    finally:
        gc.enable()
