"""The process of an experiment: reads what to run on stdin, writes ratios on stdout."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any, get_args

from tracer.advice import experiments
from tracer.experiments import SECONDS
from tracer.experiments.batches import worker_batch
from tracer.experiments.pairs import pairs_of
from tracer.experiments.turns import in_turns, joined
from tracer.replay.change import recorded_threads
from tracer.replay.memory import limited
from tracer.replay.replay_errors import CannotReplayError

TURNS_SECONDS = 8.0
"""Of all turns of an experiment; torch is imported and the trace read before"""


def main() -> None:
    """`{"ratio": [value, low, high], "again": [...], "took": nanoseconds of a step as it was}`,
    `{"ns": [value, low, high], "again": ...}` or `{"error": ...}`.
    """
    signal.alarm(SECONDS + 1)  # if nobody waits any more
    wanted = json.load(sys.stdin)
    try:
        print(json.dumps(told(wanted)))
    except CannotReplayError as error:
        print(json.dumps({"error": str(error)}))
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        print(json.dumps({"error": f"{type(error).__name__}: {first}"[:200]}))


def told(wanted: dict[str, Any]) -> dict[str, Any]:
    """What an experiment finds. Raises what its calls raise."""
    import torch

    experiment = _experiment(wanted["kind"], wanted["experiment"])
    if isinstance(wanted["threads"], int):
        torch.set_num_threads(recorded_threads(wanted["threads"]))
    with limited():
        if isinstance(experiment, experiments.WorkerBatch):
            return worker_batch(experiment)
        pairs = pairs_of(experiment, wanted["trace"])
        each = [(pair, in_turns(pair, TURNS_SECONDS / len(pairs))) for pair in pairs]
    return {
        "ratio": joined([(pair.ns, turns.ratio) for pair, turns in each]),
        "again": joined([(pair.ns, turns.again) for pair, turns in each]),
        "took": sum(pair.times * turns.ns for pair, turns in each),
    }


def _experiment(kind: str, fields: dict[str, Any]) -> experiments.Experiment:
    kinds = {one.__name__: one for one in get_args(experiments.Experiment)}
    found: experiments.Experiment = kinds[kind](**fields)
    return found
