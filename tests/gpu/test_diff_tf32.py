"""`tracer diff` of a run with TF32 and one without: the setting is named, and the kernels are."""

from __future__ import annotations

import json
from pathlib import Path

from launching import Launcher

SCRIPT = """\
import torch, tracer
from torch import nn
torch.backends.cuda.matmul.allow_tf32 = {tf32}
torch.backends.cudnn.allow_tf32 = {tf32}
net = nn.Sequential(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 900, 256)).cuda()
images = torch.randn(64, 32, 32, 32, device="cuda")
for _ in range(10):
    outputs = net(images)
    torch.cuda.synchronize()
    tracer.step()
"""


def test_tf32_on_and_off(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    for name, tf32 in (("before", True), ("after", False)):
        launcher.write(SCRIPT.format(tf32=tf32))
        run = launcher.record("--cuda", "on", "-o", f"{name}.trace", "script.py")
        assert run.status == 0, run.err
    diff = [str(launcher.tracer), "diff", "before.trace", "after.trace"]
    document = json.loads(launcher.run([*diff, "--json", "--limit", "0"]).out)
    assert document["causes"][:2] == [
        "float32_matmul_precision high -> highest",
        "cudnn_allow_tf32 True -> False",
    ]
    changes = {change["op"]: change for change in document["changes"]}
    assert changes["aten::conv2d"]["what"] == ["another chain"]
    assert changes["aten::linear"]["what"] == ["another chain"]
    assert "aten::relu" not in changes
    kernels = [
        line
        for side in ("before", "after")
        for chain in changes["aten::linear"][side]["chains"]
        for line in chain.splitlines()
        if "gemm" in line or "cutlass" in line
    ]
    assert len(set(kernels)) >= 2, kernels
    assert document["gpu"]["ratio"]["low"] > 1, document["gpu"]
    out = launcher.run(diff).out
    assert "; GPU time " in " ".join(out.partition("\nlikely causes: ")[0].split())
    assert "GPU before" in out
