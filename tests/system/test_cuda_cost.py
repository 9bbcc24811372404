"""What benchmarks/cuda_cost.py makes of its visits."""

from types import SimpleNamespace

import pytest
from benchmark_modules import benchmark


@pytest.fixture(scope="module")
def cuda_cost():
    return benchmark("cuda_cost")


def process(workload, variant, steps, number=0):
    visits = [{"ns": each, "behind_ns": 0.0, "mib": 1.0} for each in steps]
    return SimpleNamespace(
        workload=workload, variant=variant, number=number, visits=visits, figures={}, error=None
    )


def processes(costs, bare=100.0, number=0):
    """What the variants add to a bare step, by workload and variant, round by round."""
    made = []
    for workload, variants in costs.items():
        rounds = len(next(iter(variants.values())))
        made += [process(workload, "bare", [bare] * rounds, number)]
        made += [
            process(workload, variant, [bare + each for each in added], number)
            for variant, added in variants.items()
        ]
    return made


def judged(cuda_cost, costs):
    return judged_of(cuda_cost, costs, processes(costs))


def judged_of(cuda_cost, workloads, ran):
    rows = [cuda_cost.row_of(workload, ran) for workload in workloads]
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


def test_each_process_is_compared_with_the_bare_one_beside_it(cuda_cost):
    """The second group runs on a slower machine, and costs as much there."""
    ran = processes({"linear step": {"full": [20.0] * 3, "prof": [40.0] * 3}})
    ran += processes({"linear step": {"full": [20.0] * 3, "prof": [40.0] * 3}}, bare=170.0, number=1)
    row = cuda_cost.row_of("linear step", ran)
    assert row.added == {"full": 20.0, "prof": 40.0}
    assert row.bare == 135.0
    mean, likely = judged_of(cuda_cost, ["linear step"], ran)
    assert (mean, likely) == (0.5, (0.5, 0.5))


def test_processes_that_differ_widen_the_interval(cuda_cost):
    """Rounds within a process are alike: drawing rounds alone would leave no doubt."""
    ran = []
    for number, cost in enumerate([10.0, 20.0, 30.0]):
        ran += processes({"linear step": {"full": [cost] * 9, "prof": [40.0] * 9}}, number=number)
    mean, (low, high) = judged_of(cuda_cost, ["linear step"], ran)
    assert (mean, low, high) == (0.5, 0.25, 0.75)


def test_rounds_that_a_process_did_not_live_to_see_count_for_the_others(cuda_cost):
    ran = [
        process("linear step", "bare", [100.0, 100.0, 200.0]),
        process("linear step", "full", [130.0]),
        process("linear step", "prof", [150.0, 150.0, 290.0]),
    ]
    row = cuda_cost.row_of("linear step", ran)
    assert row.added == {"full": 30.0, "prof": 50.0}
    assert cuda_cost.row_of("seq2seq step", ran) is None


def test_an_incomplete_recording_is_told_whichever_process_made_it(cuda_cost):
    ran = []
    for number, verdict in enumerate(["complete", "incomplete: 5 lost", "complete"]):
        ran += processes({"linear step": {"full": [20.0] * 3, "prof": [40.0] * 3}}, number=number)
        ran[-2].figures = {"verdict": verdict}
    assert cuda_cost.row_of("linear step", ran).figures == {"full": {"verdict": "incomplete: 5 lost"}}
    ran[4].figures = {"verdict": "complete"}
    assert cuda_cost.row_of("linear step", ran).figures == {"full": {"verdict": "complete"}}
