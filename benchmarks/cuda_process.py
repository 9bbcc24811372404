"""One variant and one workload in a process of its own; cuda_cost.py starts it and asks for visits.

    python benchmarks/cuda_process.py VARIANT WORKLOAD DEVICE FOLDER STEPS_DIVIDED_BY

Reads "visit" or "end" from stdin, a line each, and answers with a line of JSON on stdout.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import gc
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces each start and stop

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import tracer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
VARIANTS = {
    "bare": "no tool",
    "only": "tracer, --cuda off --no-shapes --no-source --no-modules: hops only",
    "hops": "tracer, --cuda off",
    "full": "tracer, defaults: hops, API calls, GPU activities",
    "before": "full, of the tracer in --before FOLDER",
    "lean": "full without shapes, source lines and modules: prof has none of them",
    "ring": "full with --max-size 64M: the file is full, and the oldest goes",
    "driver": "full with --driver all",
    "queries": "full with --queries torch",
    "cupti": "the main part of what full asks of CUPTI: callbacks that do nothing, activities thrown away",
    "callbacks": "of cupti the callbacks",
    "activities": "of cupti the GPU activities",
    "prof": "torch.profiler, CPU and CUDA activities",
    "prof+": "prof with record_shapes, with_stack",
}
PARTS = 10
OPTIONS = {
    "only": {"cuda": "off", "shapes": False, "source": False, "modules": False},
    "hops": {"cuda": "off"},
    "full": {"cuda": "on"},
    "before": {"cuda": "on"},
    "lean": {"cuda": "on", "shapes": False, "source": False, "modules": False},
    "ring": {"cuda": "on", "max_size": "64M"},
    "driver": {"cuda": "on", "driver": "all"},
    "queries": {"cuda": "on", "queries": "torch"},
}

CUPTI_PARTS = {"cupti": "cg", "callbacks": "c", "activities": "g"}
"""Of variants without a tool: what cupti_alone.cpp starts."""

Run = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """`prepare` makes the function that runs one step; a visit runs `steps` of them."""

    prepare: Callable[[str], Run]
    steps: int
    is_step: bool = True
    """A training step, and not a single op"""


def mm(device: str) -> Run:
    a, b = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    return lambda: torch.mm(a, b)


def add(device: str) -> Run:
    a, b = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    return lambda: torch.add(a, b)


def cat(device: str) -> Run:
    a, b = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    return lambda: torch.cat([a, b])


def linear_step(device: str) -> Run:
    layer, x = nn.Linear(256, 256, device=device), torch.randn(64, 256, device=device)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        layer(x).square().mean().backward()
        optimiser.step()

    return step


def seq2seq_step(device: str) -> Run:
    example = _example("seq2seq_gru")
    options = argparse.Namespace(steps=1, batch=32, length=8, vocabulary=12, hidden=64)
    model = example.Seq2Seq(options.vocabulary, options.hidden).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    return lambda: example.train_epoch(model, optimiser, options)


def resnet34_step(device: str) -> Run:
    example = _example("resnet34")
    work = example.Work(example.parse(["--device", device, "--batch", "8"]))
    return work.train_step


def transformer_step(device: str) -> Run:
    return _layer_step(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (4, 16, 32), device)


def gpt2_block_step(device: str) -> Run:
    block = nn.TransformerEncoderLayer(
        768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return _layer_step(block, (8, 1024, 768) if device != "cpu" else (1, 64, 768), device)


def _layer_step(layer: nn.Module, shape: tuple[int, ...], device: str) -> Run:
    layer = layer.to(device)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    batch = torch.randn(shape, device=device)

    def step() -> None:
        optimiser.zero_grad()
        layer(batch).square().mean().backward()
        optimiser.step()

    return step


def gpt2_step(device: str, width: int = 256, heads: int = 4, tokens: int = 128) -> Run:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=width, n_head=heads)).to(device)
    ids = torch.randint(0, 50_000, (8, tokens), device=device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return lambda: _step_of(optimiser, device, lambda: model(input_ids=ids, labels=ids).loss)


def large_gpt2_step(device: str) -> Run:
    return gpt2_step(device, width=768, heads=12, tokens=512)


def resnet50_step(device: str) -> Run:
    import torchvision

    model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
    images = torch.randn(64, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device=device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return lambda: _step_of(optimiser, device, lambda: nn.functional.cross_entropy(model(images), labels))


def _step_of(optimiser: torch.optim.Optimizer, device: str, loss: Callable[[], torch.Tensor]) -> None:
    with torch.autocast(device, dtype=torch.bfloat16):
        value = loss()
    value.backward()
    optimiser.step()
    optimiser.zero_grad()


WORKLOADS = {
    "mm 64x64": Workload(mm, 10_000, is_step=False),
    "add 64x64": Workload(add, 10_000, is_step=False),
    "cat 2 of 64x64": Workload(cat, 10_000, is_step=False),
    "linear step": Workload(linear_step, 200),
    "seq2seq step": Workload(seq2seq_step, 16),
    "resnet34 step": Workload(resnet34_step, 10),
    "transformer step": Workload(transformer_step, 100),
    "gpt2 block step": Workload(gpt2_block_step, 40),
    "gpt2 step": Workload(gpt2_step, 30),
    "large gpt2 step": Workload(large_gpt2_step, 30),
    "resnet50 step": Workload(resnet50_step, 30),
}


class Process:
    """The workload of this process under its variant."""

    def __init__(self, variant: str, workload: str, device: str, folder: Path, fewer: int) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.variant, self.device = variant, device
        self.trace = folder / f"{variant} {workload}.trace"
        self.steps = max(1, WORKLOADS[workload].steps // fewer)
        self.run = WORKLOADS[workload].prepare(device)
        self.ran = 0
        self.summary: tracer.Summary | None = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """One recording for the life of the process: what goes on once (names, stacks) is over by a visit."""
        if parts := CUPTI_PARTS.get(self.variant):
            start_cupti(parts, self.trace.parent)
        if self.variant not in OPTIONS:
            yield
            return
        options = dict(OPTIONS[self.variant])
        if self.device == "cpu":
            options["cuda"] = "off"
        self.trace.unlink(missing_ok=True)
        recording = tracer.record(self.trace, **options)
        with recording:
            yield
        self.summary = recording.summary

    def visit(self) -> dict[str, float]:
        """Nanoseconds of a step on the host (the median of parts of the visit, as others use the machine
        too); what the GPU was behind at the end; MiB of memory then.
        """
        with self.profiled():
            for _ in range(max(1, self.steps // 4)):
                self.step()
            self.settle()
            gc.collect()
            gc.disable()
            with on_cores_of_their_own():
                parts = []
                for part in range(PARTS):
                    steps = self.steps * (part + 1) // PARTS - self.steps * part // PARTS
                    if not steps:
                        continue
                    part_began = time.perf_counter_ns()
                    for _ in range(steps):
                        self.step()
                    parts.append((time.perf_counter_ns() - part_began) / steps)
                ended = time.perf_counter_ns()
                gc.enable()
                self.settle()
                waited = time.perf_counter_ns() - ended
                memory = anonymous_mib()
        return {"ns": statistics.median(parts), "behind_ns": waited / self.steps, "mib": memory}

    def profiled(self):  # type: ignore[no-untyped-def]
        """A session a visit: the profiler keeps all events in memory until it ends."""
        if self.variant not in ("prof", "prof+"):
            return nullcontext()
        gpu = [] if self.device == "cpu" else [ProfilerActivity.CUDA]
        more = self.variant == "prof+"
        return profile(activities=[ProfilerActivity.CPU, *gpu], record_shapes=more, with_stack=more)

    def step(self) -> None:
        self.ran += 1
        self.run()

    def settle(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def figures(self) -> dict[str, object]:
        """What the recording says of all steps of this process."""
        if self.summary is None:
            return {}
        size = self.trace.stat().st_size
        self.trace.unlink()
        return {
            "steps": self.ran,
            "bytes_per_step": size / self.ran,
            "hops_per_step": self.summary.hops / self.ran,
            "summary": dataclasses.asdict(self.summary),
            "verdict": self.summary.verdict,
        }


def start_cupti(parts: str, folder: Path) -> None:
    """Compiles cupti_alone.cpp against the CUPTI that torch brings, and starts these parts of it for as long
    as this process lives.
    """
    from torch.utils.cpp_extension import CUDA_HOME  # brings much that the other variants need not have

    packages = Path(torch.__file__).parents[1] / "nvidia"
    headers = [next(packages.glob("*/include/cupti.h")).parent]
    if CUDA_HOME:  # the packages leave out some headers that those of CUPTI include
        headers.append(Path(CUDA_HOME) / "include")
    cupti = next(packages.glob("*/lib/libcupti.so*"))
    source = Path(__file__).with_name("cupti_alone.cpp")
    library = folder / f"cupti_alone.{os.getpid()}.so"
    command = ["c++", "-std=c++20", "-O2", "-shared", "-fPIC", *(f"-I{path}" for path in headers)]
    command += [str(source), str(cupti), f"-Wl,-rpath,{cupti.parent}", "-o", str(library)]
    subprocess.run(command, check=True)
    if error := ctypes.CDLL(str(library)).start(parts.encode()):
        raise RuntimeError(f"CUPTI refuses to start ({error}): is another tool running?")


@contextmanager
def on_cores_of_their_own() -> Iterator[None]:
    """Keeps the thread that runs forward and the one that runs backward on the same two cores in every
    process and visit, and all other threads away from these: where threads happen to run makes more of a
    difference than what is measured. Does nothing on a machine with few cores.
    """
    everywhere = os.sched_getaffinity(0)
    cores = one_of_each_core(everywhere)
    if len(cores) < 4:
        yield
        return
    forward, backward = cores[1:3]  # the first one often has the interrupts
    rest = everywhere - siblings_of(forward) - siblings_of(backward)
    threads = {int(thread): _name_of(thread) for thread in os.listdir("/proc/self/task")}
    main = threading.get_native_id()
    for thread, name in threads.items():
        place = {forward} if thread == main else {backward} if name.startswith("pt_autograd") else rest
        _move(thread, place)
    try:
        yield
    finally:
        for thread in threads:
            _move(thread, everywhere)


def one_of_each_core(cpus: set[int]) -> list[int]:
    """Of processors that share a core, the first."""
    return sorted({min(siblings_of(cpu) & cpus) for cpu in cpus})


def siblings_of(cpu: int) -> set[int]:
    """Processors of one core, this one included; from the kernel's list, such as 0-1 or 0,8."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return {cpu}
    ranges = [part.split("-") for part in text.strip().split(",")]
    return {number for part in ranges for number in range(int(part[0]), int(part[-1]) + 1)}


def _name_of(thread: str) -> str:
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    except OSError:
        return ""


def _move(thread: int, cpus: set[int]) -> None:
    with suppress(ProcessLookupError):
        os.sched_setaffinity(thread, cpus)


def anonymous_mib() -> float:
    """Resident memory that is no file's: the pages of a trace belong to its file."""
    with open("/proc/self/status") as file:
        return int(re.search(r"RssAnon:\s+(\d+)", file.read())[1]) / 1024


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    variant, workload, device, folder, fewer = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(what: dict[str, object]) -> None:
        print(json.dumps(what), file=answers, flush=True)

    process = Process(variant, workload, device, Path(folder), int(fewer))
    with process.recorded():
        for _ in range(max(5, process.steps // 4)):
            process.step()
        process.settle()
        answer({"ready": True})
        for line in sys.stdin:
            if line.strip() != "visit":
                break
            answer(process.visit())
    answer(process.figures())


if __name__ == "__main__":
    main()
