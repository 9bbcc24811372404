"""A stop leaves each dispatch table entry as it was found, whatever happened meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from launching import Launcher
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
