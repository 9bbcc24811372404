"""Programs that step no optimizer and mark no step: a step is a call of the outermost module."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from launching import Launcher

import tracer
from tracer.analysis.step_times import step_times

MODEL = """
import json, os, signal, time
import torch
from torch import nn
torch.manual_seed(0)

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(64, 256), nn.Linear(256, 8)
    def forward(self, rows):
        time.sleep(0.004)  # before the first op
        hidden = self.inner(rows).tanh()
        time.sleep(0.004)
        return self.head(hidden)

net, criterion, spent = Decoder(), nn.CrossEntropyLoss(), []
rows, labels = torch.randn(32, 64), torch.zeros(32, dtype=torch.long)
"""
INFERENCE = """
with torch.inference_mode():
    for _ in range(6):
        begun = time.perf_counter()
        out = net(rows)
        spent.append(time.perf_counter() - begun)
        criterion(out, labels)
        out.argmax(1)
print(json.dumps(spent))
"""
BY_HAND = """
for _ in range(4):
    criterion(net(rows), labels).backward()
    with torch.no_grad():
        for weight in net.parameters():
            weight -= 0.1 * weight.grad
            weight.grad = None
"""
KILLED = """
for number in range(3):
    if number == 2:
        net.head.register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    net(rows)
"""
WORKERS = """
class Rows(torch.utils.data.Dataset):
    change = nn.Sequential(nn.Tanh(), nn.Tanh())
    def __len__(self): return 8
    def __getitem__(self, index): return self.change(torch.ones(64))
for batch in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=1):
    net(batch)
"""
SERVER = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool, torch.inference_mode():
    list(pool.map(lambda _: net(rows), range(8)))
"""


def recorded(launcher: Launcher, script: str, status: int = 0) -> tuple[tracer.Trace, str]:
    launcher.write(MODEL + script)
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == status, run.err
    return tracer.load(launcher.folder / "run.trace"), run.out


@pytest.fixture(scope="module")
def inference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Launcher, list[float]]:
    launcher = Launcher(tmp_path_factory.mktemp("inference"))
    _, said = recorded(launcher, INFERENCE)
    return launcher, json.loads(said)


def shown(launcher: Launcher, *words: str) -> str:
    run = launcher.run([str(launcher.tracer), *words])
    assert run.status == 0, run.err
    return run.out


def test_a_call_has_the_time_of_the_programs_own_clock(inference: tuple[Launcher, list[float]]) -> None:
    launcher, spent = inference
    trace = tracer.load(launcher.folder / "run.trace")
    steps = step_times(trace).filter(step_times(trace)["step"].is_not_null())
    assert steps["module"].to_list() == ["Decoder"] * len(spent)
    calls = trace.module_calls.filter(trace.module_calls["module"] == "Decoder")
    for clock, begin, end, forward in zip(
        spent, calls["start_ns"], calls["end_ns"], steps["forward_ns"], strict=True
    ):
        assert end - begin <= clock * 1e9
        assert forward >= end - begin > 8_000_000, "it slept before its first op, too"


def test_commands_say_what_a_step_is(inference: tuple[Launcher, list[float]]) -> None:
    launcher, spent = inference
    said = "A step is a call of Decoder, and what runs until the next one: nothing else marked a step."
    assert said in shown(launcher, "steps", "run.trace")
    assert said in shown(launcher, "report", "run.trace")
    document = json.loads(shown(launcher, "steps", "run.trace", "--json"))
    assert [row["module"] for row in document["steps"]] == [*["Decoder"] * len(spent), None]
    assert "the median of" in shown(launcher, "ledger", "run.trace")
    shutil.copy(launcher.folder / "run.trace", launcher.folder / "again.trace")
    assert "steady step" in shown(launcher, "diff", "run.trace", "again.trace")


def test_one_step_of_them_can_be_read(inference: tuple[Launcher, list[float]]) -> None:
    launcher, _ = inference
    path = launcher.folder / "run.trace"
    whole, part = tracer.load(path), tracer.load(path, step=3)
    rows = whole.hops.filter(whole.hops["step"] == 3)
    assert part.hops.filter(part.hops["step"] == 3)["op"].to_list() == rows["op"].to_list() != []


def test_a_backward_pass_is_of_the_step_of_its_forward_pass(launcher: Launcher) -> None:
    trace, _ = recorded(launcher, BY_HAND)
    backward = trace.hops.filter(trace.hops["forward_hop"].is_not_null())
    forward = trace.hops["step"].gather(backward["forward_hop"])
    within = backward["step"].is_not_null()
    assert set(forward.filter(within)) == {0, 1, 2}
    assert (forward.filter(within) == backward["step"].filter(within)).all()


def test_a_killed_call_is_no_step(launcher: Launcher) -> None:
    trace, _ = recorded(launcher, KILLED, -signal.SIGKILL)
    assert trace.steps["step"].to_list() == [0, 1]
    assert trace.module_calls["open"].to_list() == [False, False, True]


def test_what_workers_of_a_loader_call_is_no_step(launcher: Launcher) -> None:
    trace, _ = recorded(launcher, WORKERS)
    assert set(trace.steps["module"]) == {"Decoder"}
    assert len(trace.steps) == 4


def test_calls_of_several_threads(launcher: Launcher) -> None:
    trace, _ = recorded(launcher, SERVER)
    assert len(trace.module_calls) == len(trace.steps) == 8
    assert trace.module_calls["thread"].n_unique() == 2
    assert not trace.module_calls["open"].any()


def test_a_compiled_module_has_steps(launcher: Launcher, tmp_path: Path) -> None:
    trace, _ = recorded(
        launcher,
        "net.forward = lambda rows: net.head(net.inner(rows).tanh())\n"
        "fast = torch.compile(net, backend='eager')\n"
        "for _ in range(4): fast(rows)\n",
    )
    assert len(trace.steps) == 4
    assert trace.steps["module"].n_unique() == 1
