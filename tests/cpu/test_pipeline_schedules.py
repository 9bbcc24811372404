"""Schedules of torch.distributed.pipelining with several stages a rank: what they leave idle themselves."""

from __future__ import annotations

import pytest
from launching import Launcher

PIPELINE = """\
import sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble

dist.init_process_group("gloo")
rank = dist.get_rank()
stages = [PipelineStage(nn.Linear(64, 64), rank + 2 * n, 4, torch.device("cpu")) for n in range(2)]
kind = ScheduleInterleaved1F1B if sys.argv[1] == "1f1b" else ScheduleInterleavedZeroBubble
schedule = kind(stages, 4, loss_fn=lambda y, target: (y - target).square().mean())
x = torch.randn(64, 64)
for step in range(3):
    if rank == 0:
        schedule.step(x)
    else:
        time.sleep(0.05)
        schedule.step(target=x, losses=[])
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("1f1b", " Interleaved 1F1B of 2 such stages a rank leaves 11.1 %."),
        ("zero", " This schedule splits its backward (zero-bubble): what it leaves idle itself is unknown."),
    ],
)
def test_the_own_bubble_of_several_stages_a_rank(launcher: Launcher, kind: str, said: str) -> None:
    launcher.write(PIPELINE)
    run = launcher.job(2, "-o", "job/", "script.py", kind)
    assert run.status == 0, run.err
    report = launcher.run([str(launcher.tracer), "report", "job/"]).out
    sentence = next(line for line in report.splitlines() if " waited for messages**: " in line)
    assert sentence.endswith(said), sentence
