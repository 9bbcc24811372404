"""How launches of Triton kernels are bracketed; real ones need a GPU (tests/gpu/test_compiled_gpu.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracer.recording.compiled.launches import Launches


class Native:
    def __init__(self) -> None:
        self.open: list[str] = []
        self.seen: list[str] = []

    def enter_range(self, name: str) -> int:
        self.open.append(name)
        self.seen.append(name)
        return len(self.open)

    def leave_range(self, entered: int) -> None:
        if entered:
            self.open.pop()


class Recorded:
    def __init__(self) -> None:
        self.native = Native()
        self.documents: dict[str, Any] = {}
        self.errors: list[BaseException] = []
        self.launches = Launches(self.native, self.documents.__setitem__, self.errors.append)  # type: ignore[arg-type]


def autotuner(name: str = "triton_poi_fused_add_0", **facts: Any) -> Any:
    config = SimpleNamespace(num_warps=4, num_stages=1)
    launcher = SimpleNamespace(n_regs=20, n_spills=0, config=config)
    return SimpleNamespace(
        inductor_meta={"kernel_name": name}, launchers=[launcher], filename="k.py", **facts
    )


def test_a_launch_is_a_range_and_is_described_once() -> None:
    recorded = Recorded()
    run = recorded.launches.of_inductor(lambda tuner, *arguments, stream: (arguments, stream))
    first, second = autotuner(), autotuner("triton_red_fused_sum_1")
    assert run(first, 1, 2, stream=7) == ((1, 2), 7)
    run(first, stream=7)
    run(second, stream=7)
    names = [name.partition("#")[0] for name in recorded.native.seen]
    assert names == ["kernel:triton_poi_fused_add_0"] * 2 + ["kernel:triton_red_fused_sum_1"]
    assert recorded.native.seen[0] == recorded.native.seen[1]
    numbers = [name.partition("#")[2] for name in recorded.native.seen[1:]]
    assert list(recorded.documents) == [f"launch:{number}" for number in numbers]
    facts = recorded.documents[f"launch:{numbers[0]}"]
    assert (facts["registers"], facts["spills"], facts["num_warps"], facts["file"]) == (20, 0, 4, "k.py")
    assert not recorded.native.open


def test_autotuning_is_marked() -> None:
    recorded = Recorded()
    tuner = autotuner()
    bench = recorded.launches.of_benchmark(lambda tuner, launcher: launcher)
    run = recorded.launches.of_inductor(lambda tuner, **_: bench(tuner, 5))
    assert run(tuner, stream=1) == 5
    run(tuner, stream=1, benchmark_run=True)
    kinds = [name.partition(":")[0] for name in recorded.native.seen]
    assert kinds == ["kernel", "bench", "bench", "bench"]


def test_an_exception_of_the_launch_is_that_of_the_program() -> None:
    recorded = Recorded()

    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError("theirs")

    with pytest.raises(MemoryError, match="theirs"):
        recorded.launches.of_inductor(fails)(autotuner(), stream=1)
    assert not recorded.native.open


def test_what_this_torch_names_otherwise_is_an_error_that_is_counted() -> None:
    recorded = Recorded()
    run = recorded.launches.of_inductor(lambda tuner: 3)
    assert run(object()) == 3
    assert [type(error) for error in recorded.errors] == [AttributeError]
    assert not recorded.native.seen


def test_a_kernel_of_the_user_has_its_function_and_line() -> None:
    recorded = Recorded()

    def double() -> None: ...

    function = SimpleNamespace(fn=double)
    compiled = SimpleNamespace(n_regs=16, n_spills=2, metadata=SimpleNamespace(num_warps=8, num_stages=3))
    run = recorded.launches.of_user(lambda function, **_: compiled)
    assert run(function, grid=(1,), warmup=True) is compiled
    assert not recorded.native.seen
    assert run(function, grid=(1,), warmup=False) is compiled
    assert recorded.native.seen[0].startswith("kernel:double#")
    (facts,) = recorded.documents.values()
    assert facts["defined_at"] == f"{__file__}:{double.__code__.co_firstlineno}"
    assert (facts["registers"], facts["spills"], facts["num_warps"]) == (16, 2, 8)
