"""`tracer advise` on a GPU: waits, launches, TF32, channels_last, the optimizer; and their clean twins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launching import Launcher

_BEGIN = """
import torch, torch.nn as nn
torch.manual_seed(0)
PLANTED = {planted}
"""
CASES = {
    # The host prepares for 2 ms what it could prepare while the GPU works.
    "gpu-waits": """
import time
a = torch.randn(4096, 4096, device="cuda")
total = torch.zeros((), device="cuda")
import tracer
for step in range(10):
    b = a @ a
    loss = (b @ a).mean()
    if PLANTED:
        print(loss.item())
    else:
        total += loss
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    (a @ a).sum()
    tracer.step()
torch.cuda.synchronize()
""",
    "launch-bound": """
import tracer
x = torch.randn(64, 64, device="cuda")
if not PLANTED:
    x = torch.randn(4096, 4096, device="cuda")
for step in range(10):
    y = x
    for _ in range(60):
        y = y * 1.0001 + 0.1 if PLANTED else (y @ x).tanh()
    tracer.step()
torch.cuda.synchronize()
""",
    "wide-numbers": """
import tracer
torch.set_float32_matmul_precision("highest" if PLANTED else "high")
x = torch.randn(4096, 4096, device="cuda")
for step in range(8):
    for _ in range(4):
        x @ x
    tracer.step()
torch.cuda.synchronize()
""",
    "optimizer": """
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(40)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=not PLANTED)
for step in range(10):
    model(torch.randn(8, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
""",
}


def advised(folder: Path, case: str, planted: bool, *words: str) -> dict[str, Any]:
    launcher = Launcher(folder)
    launcher.write(_BEGIN.replace("{planted}", str(planted)) + CASES[case])
    recorded = launcher.record("--values", "scalars", "-o", "run.trace", "script.py")
    assert recorded.status == 0, recorded.err
    run = launcher.run([str(launcher.tracer), "advise", "run.trace", "--json", "--all", *words])
    assert run.status == 0, run.err
    print(run.out)
    return dict(json.loads(run.out))


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for row in document["advice"] for one in (row, *row["alternatives"])]


@pytest.mark.parametrize("case", CASES)
def test_what_was_planted_is_found_and_not_in_the_twin(tmp_path: Path, case: str) -> None:
    found = rows(advised(tmp_path / "planted", case, True))
    mine = next(row for row in found if row["rule"] == case)
    assert mine["line"].startswith("script.py:")
    assert case not in [row["rule"] for row in rows(advised(tmp_path / "twin", case, False))]


@pytest.mark.parametrize("case", ["wide-numbers", "optimizer"])
def test_a_gain_is_measured(tmp_path: Path, case: str) -> None:
    found = advised(tmp_path, case, True, "--measure")
    mine = next(row for row in [*rows(found), *found["dropped"]] if row["rule"] == case)
    if mine["known"] == "bounded":
        assert mine["why_not_measured"] in ("the machine is busy", "the machine was busy")
    else:
        assert mine["known"] == "measured"
        assert mine["gain"]["ratio_low"] > 1.02
