"""What benchmarks/cuda_cost.py makes of its visits."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def cuda_cost():
    sys.path.insert(0, BENCHMARKS)
    try:
        import cuda_cost as module
    finally:
        sys.path.remove(BENCHMARKS)
    return module


def processes(costs):
    """A bare step takes 100; what the others add, by workload and variant, round by round."""

    def process(workload, variant, added):
        visits = [{"ns": 100.0 + each, "behind_ns": 0.0, "mib": 1.0} for each in added]
        return SimpleNamespace(workload=workload, variant=variant, visits=visits, figures={}, error=None)

    made = []
    for workload, variants in costs.items():
        rounds = len(next(iter(variants.values())))
        made += [process(workload, "bare", [0.0] * rounds)]
        made += [process(workload, variant, added) for variant, added in variants.items()]
    return made


def judged(cuda_cost, costs):
    ran = processes(costs)
    rows = [cuda_cost.row_of(workload, ran) for workload in costs]
    return cuda_cost.geometric_mean(rows, "full/prof"), cuda_cost.interval(rows, ran, "full/prof")


def test_equal_rounds_leave_no_doubt(cuda_cost):
    costs = {"linear step": {"full": [20.0] * 5, "prof": [40.0] * 5}}
    costs["resnet34 step"] = {"full": [10.0] * 7, "prof": [80.0] * 7}
    mean, (low, high) = judged(cuda_cost, costs)
    assert mean == low == high == pytest.approx((0.5 * 0.125) ** 0.5)


def test_unlike_rounds_widen_the_interval(cuda_cost):
    full = [20.0, 10.0, 40.0, 15.0, 35.0, 18.0, 22.0, 30.0, 12.0]
    mean, (low, high) = judged(cuda_cost, {"linear step": {"full": full, "prof": [40.0] * 9}})
    assert mean == 0.5
    assert low < 0.45 < 0.55 < high
    assert 10 / 40 <= low < high <= 40 / 40


def test_noise_larger_than_a_cost_has_no_interval(cuda_cost):
    full = [-30.0, 40.0, -20.0, 25.0, -35.0, 30.0, 5.0]
    _, likely = judged(cuda_cost, {"linear step": {"full": full, "prof": [40.0] * 7}})
    assert likely is None
