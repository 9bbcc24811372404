"""With --queries torch the questions of PyTorch's libraries are as CUPTI tells: number, order, caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lazily import torch

import tracer
from tracer.trace.certificate.cuda import QUERIES_OF_TORCH

OURS = ("cudaGetDevice", "cudaGetLastError", "cudaPeekAtLastError")
SETTLES = 0.2
"""Seconds: backward's thread asks for its device when backward has returned"""
TORCH = ("libtorch", "libc10")
Call = tuple[str, str | None, str, int | None, tuple[str, int, str | None] | None]


def net_step() -> Callable[[], None]:
    """Convolution, batch norm, a product, random numbers and an optimizer of small ops."""
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Dropout(), torch.nn.Linear(8 * 14 * 14, 10)).cuda()
    images, labels = torch.randn(4, 3, 16, 16, device="cuda"), torch.randint(10, (4,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert torch.cuda.current_device() == 0  # outside hops

    return step


def gpt2_step() -> Callable[[], None]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2)
    model = transformers.GPT2LMHeadModel(config).cuda()
    ids = torch.randint(50_000, (2, 32), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def recorded(path: Path, step: Callable[[], None], queries: str) -> tracer.Trace:
    time.sleep(SETTLES)
    with tracer.record(path, queries=queries, cuda="on"):
        for _ in range(2):
            step()
        torch.cuda.synchronize()
        time.sleep(SETTLES)
    return tracer.load(path)


def calls(trace: tracer.Trace, *, of_torch: bool) -> dict[int, list[Call]]:
    """By thread, in order; the questions of other libraries are left out with `of_torch`."""
    frames = {
        number: tuple((Path(frame["module"]).name, frame["offset"], frame["function"]) for frame in stack)
        for number, stack in trace.stacks.iter_rows()
    }
    ops = dict(trace.hops.select("id", "op").iter_rows())
    columns = ["thread", "name", "arguments", "hop", "stack", "result", "domain"]
    found: dict[int, list[Call]] = {}
    for thread, name, arguments, hop, stack, result, domain in trace.api_calls.select(columns).iter_rows():
        query = name in OURS
        if of_torch and query and not frames[stack][0][0].startswith(TORCH):
            continue
        said = arguments.split(", ")[-1] if query and arguments else None  # without addresses
        # The frames outside the caller's may be those of an earlier call (docs/cuda.md, Stacks).
        caller = frames[stack][0] if query else None
        found.setdefault(thread, []).append((f"{domain} {name}", said, ops.get(hop, ""), result, caller))
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("program", [net_step, gpt2_step])
def test_queries_are_those_that_cupti_tells(tmp_path: Path, program: Callable) -> None:
    step = program()
    for _ in range(3):
        step()
    every = recorded(tmp_path / "every.trace", step, "all")
    hooked = recorded(tmp_path / "hooked.trace", step, "torch")
    assert every.certificate["verdict"].startswith("complete")
    assert hooked.certificate["verdict"].startswith("complete")
    assert QUERIES_OF_TORCH not in every.certificate["why"]
    assert QUERIES_OF_TORCH in hooked.certificate["why"]
    wanted, got = calls(every, of_torch=True), calls(hooked, of_torch=False)
    assert wanted.keys() == got.keys()
    for thread, in_order in wanted.items():
        differ = [pair for pair in zip(in_order, got[thread], strict=False) if pair[0] != pair[1]]
        assert not differ, differ[0]
        assert len(in_order) == len(got[thread])
    asked = hooked.api_calls.filter(hooked.api_calls["name"].is_in(OURS))
    assert asked.height > 200
    assert asked["correlation"].null_count() == asked.height
    assert every.api_calls["correlation"].null_count() == 0


@pytest.mark.gpu
def test_slots_are_given_back_and_a_pause_records_nothing(tmp_path: Path) -> None:
    step = net_step()
    step()
    with tracer.record(tmp_path / "first.trace", queries="torch", cuda="on"):
        step()
    step()
    again = recorded(tmp_path / "again.trace", step, "torch")
    every = recorded(tmp_path / "every.trace", step, "all")
    wanted = sum(len(one) for one in calls(every, of_torch=True).values())
    assert sum(len(one) for one in calls(again, of_torch=False).values()) == wanted
