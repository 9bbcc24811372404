"""`tracer compare --tune` on a GPU, and mode auto afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launching import Launcher, Run
from lazily import torch
from override_calls import native

CASE = "mm 8x1536x5893 NT float32"
NO_FASTER = "measured to be no faster than stock"
SCRIPT = """
import torch
from tracer import overrides

torch.backends.cuda.matmul.allow_tf32 = False
a = torch.randn(8, 1536, device="cuda")
w = torch.randn(5893, 1536, device="cuda")
with overrides.use("mm"):
    torch.mm(a, w.t())
    mm = overrides.registered()["mm"]
    print(mm.ran()["aten::mm"], mm.handed_over()["aten::mm"])
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    native()  # or the test is skipped
    launcher = Launcher(tmp_path)
    launcher.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    launcher.write(SCRIPT)
    return launcher


def tuned(launcher: Launcher, *arguments: str) -> Run:
    return launcher.run([str(launcher.tracer), "compare", "--tune", *arguments])


def auto(launcher: Launcher, **variables: str) -> Run:
    return launcher.python("script.py", extra=variables)


def test_auto_follows_the_file(launcher: Launcher) -> None:
    run = tuned(launcher, "mm", "--case", CASE, "--pairs", "5")
    assert run.status == 0, run.err
    head, line = run.out.splitlines()
    assert line.startswith(CASE)
    assert max(len(head), len(line)) <= 80
    (path,) = (launcher.folder / "cache" / "tracer").glob("measured-*.json")
    assert str(path) in run.err
    data = json.loads(path.read_text())
    assert (data["gpu"], data["torch"]) == (torch.cuda.get_device_name(), torch.__version__)
    (row,) = data["mm"]
    assert row["faster"] == line.endswith("  yes"), (row, line)
    for faster, expected in ((True, "1 {}\n"), (False, f"0 {{'{NO_FASTER}': 1}}\n")):
        row["faster"] = faster
        path.write_text(json.dumps(data))
        assert auto(launcher).out == expected
    built_in = auto(launcher, TRACER_MEASURED="off").out
    assert (
        built_in in ("1 {}\n", "0 {'not measured to be faster': 1}\n") or "GPU was not measured" in built_in
    )


def test_a_file_of_another_gpu_is_ignored_with_one_line(launcher: Launcher) -> None:
    run = tuned(launcher, "mm", "--case", CASE, "--pairs", "5", "-o", "measured.json")
    assert run.status == 0, run.err
    assert not (launcher.folder / "cache" / "tracer").exists()
    path = launcher.folder / "measured.json"
    data = json.loads(path.read_text())
    data["mm"][0]["faster"] = False
    path.write_text(json.dumps(data))
    assert NO_FASTER in auto(launcher, TRACER_MEASURED=str(path)).out
    path.write_text(json.dumps(data | {"gpu": "NVIDIA Nothing"}))
    run = auto(launcher, TRACER_MEASURED=str(path))
    assert NO_FASTER not in run.out
    assert f"{path} is ignored: it was measured on NVIDIA Nothing, and this GPU is" in run.err


def test_a_gru_is_measured_in_both_passes_with_gpu_time(launcher: Launcher) -> None:
    run = tuned(launcher, "gru", "cat", "--case", "T32 B32 I256 H256 bf", "--case", "dim 0 64x512")
    assert run.status == 0, run.err
    forward, both, cat = run.out.splitlines()[1:]
    assert both.split()[6] == "+bwd"
    for line in (forward, both, cat):
        assert "graph" not in line
        assert float(line.split()[-3 if line.endswith("yes") else -4]) > 0  # the ratio of GPU times


def test_rows_replace_those_before_at_once() -> None:
    extension = native()
    row = ("float32", False, True, (5, 8), (4167, 8333), (1087, 2172))
    a = torch.randn(8, 1536, device="cuda")
    w = torch.randn(5893, 1536, device="cuda")
    try:
        for faster, slower, expected in (([row], [], (1, {})), ([], [row], (0, {NO_FASTER: 1}))):
            extension.set_measured_mm(0, faster, slower)
            extension.reset_counts("mm")
            extension.install("mm", False)
            torch.mm(a, w.t())
            extension.remove("mm")
            found = extension.ran("mm")["aten::mm"], extension.handed_over("mm")["aten::mm"]
            assert found == expected
        with pytest.raises(ValueError, match="no device 64"):
            extension.set_measured_mm(64, [], [])
        with pytest.raises(ValueError, match='no element "int8"'):
            extension.set_measured_mm(0, [("int8", *row[1:])], [])
    finally:
        extension.set_measured_mm(0, [], [])
    assert extension.gpu_names()[0] == torch.cuda.get_device_name(0)
