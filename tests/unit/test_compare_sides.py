"""What the runs of a script say of one side: figures of the same runs, which do not contradict each other."""

from __future__ import annotations

import pytest
from frames import TraceBuilder, hop

from tracer.compare.sides import side_of
from tracer.trace import Trace


def run(*times: int, kernel: str = "wrapper_CPU_tanh", other: int | None = None) -> Trace:
    """Calls of tanh with these times of their kernel (ns); call `other` becomes another chain."""
    builder = TraceBuilder()
    inputs = builder.signature(([4, 4], "torch.float32"))
    for number, ns in enumerate(times):
        below = [hop("aten::empty", "CPU", self_ns=10)] * (number == other)
        mine = hop("aten::tanh", "CPU", *below, kernel=kernel, self_ns=ns)
        builder.calls(hop("aten::tanh", "AutogradCPU", mine, self_ns=100, inputs=inputs))
    return builder.trace()


def test_a_slow_first_call_does_not_turn_the_chain_against_the_table() -> None:
    stock = side_of([run(90_000, 1000, 1200, 1100), run(80_000, 1300, 1100, 1200)], ["aten::tanh"])
    override = side_of(
        [run(200, 5000, 5100, 5200), run(100, 5000, 5100, 5300)], ["aten::tanh"], stock.longest
    )
    key = ("aten::tanh", "4x4 f32")
    for side in (stock, override):
        chain, others = side.by_key[key].usual()
        per_run = side.by_key[key].median
        assert chain.nodes["median_ns"][0] == pytest.approx(sum(per_run) / 2, abs=1)
        assert (chain.links[0].most, chain.counts.op_calls, others) == (1, 1, 0)
    assert stock.by_key[key].total > override.by_key[key].total
    assert stock.by_key[key].median < override.by_key[key].median
    assert stock.calls == [4 * median for median in stock.by_key[key].median]


def test_runs_with_another_chain_are_not_in_its_times() -> None:
    runs = [run(1000, 1000), run(9000, 9000, kernel="another"), run(2000, 2000)]
    chain, _ = side_of(runs, ["aten::tanh"]).by_key["aten::tanh", "4x4 f32"].usual()
    assert chain.nodes["median_ns"].to_list() == [1600, 1500]


def test_calls_that_became_another_chain_are_counted() -> None:
    side = side_of([run(1000, 1000, 1000, other=0)], ["aten::tanh"])
    assert side.by_key["aten::tanh", "4x4 f32"].usual()[1] == 1


def test_what_one_run_lacks_is_left_out() -> None:
    side = side_of([run(1000), TraceBuilder().calls(hop("aten::exp", "CPU")).trace()], ["aten::tanh"])
    assert side.by_key == {}
    side = side_of([TraceBuilder().calls(hop("aten::exp", "CPU")).trace(), run(1000)], ["aten::tanh"])
    assert side.by_key == {}
