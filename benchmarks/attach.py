"""Attach to training loops again and again: does it work, how long do they stand still, are results the same?

    python benchmarks/attach.py --attaches 200

Each job trains seeded in three threads, without tracer: the main thread with an optimizer, a DataLoader and a
module; the others with forward and backward of their own. It is attached to at random moments, each time with
a begin and an end. A job stands still while the kernel shows it as traced. The digests of all losses and
weights are compared with those of a job that was left alone, and each word of the dispatch table with what it
was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tracer.attach.session import Session
from tracer.base.errors import RecordingError
from tracer.recording.options import Options

HERE = Path(__file__).parent
JOB = r"""
import ctypes, hashlib, json, os, sys, threading, time
import torch

torch.set_num_threads(1)
FOLDER, STEPS = sys.argv[1], int(sys.argv[2])
ROOM = 10_000_000
torch.manual_seed(0)

def table():
    library = os.path.join(FOLDER, "table_words.so")
    if not os.path.exists(library):
        return ""
    words = (ctypes.c_uint64 * ROOM)()
    names = ctypes.create_string_buffer(ROOM)
    read = ctypes.CDLL(library).table_words
    read.restype = ctypes.c_uint64
    count = read(words, ctypes.c_uint64(ROOM), names, ctypes.c_uint64(ROOM))
    return hashlib.sha256(bytes(memoryview(words)[:count]) + names.value).hexdigest()

class Net(torch.nn.Module):
    def __init__(self, generator):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(48, 48) for _ in range(3))
        for weight in self.parameters():
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    def forward(self, x):
        with torch.autograd.profiler.record_function("layers"):
            for layer in self.layers:
                x = layer(x).relu()
        return x

class Data(torch.utils.data.Dataset):
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
    def __len__(self):
        return 8 * STEPS
    def __getitem__(self, index):
        return torch.randn(48, generator=self.generator)

def train(seed, digests, with_optimizer, steps=STEPS):
    generator = torch.Generator().manual_seed(seed)
    model, digest = Net(generator), hashlib.sha256()
    optimizer = torch.optim.Adam(model.parameters()) if with_optimizer else None
    batches = iter(torch.utils.data.DataLoader(Data(seed), batch_size=8)) if with_optimizer else None
    for step in range(steps):
        x = next(batches) if with_optimizer else torch.randn(8, 48, generator=generator)
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        if with_optimizer:
            optimizer.step()
        else:
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= 0.01 * weight.grad
        digest.update(loss.detach().numpy().tobytes())
    for weight in model.parameters():
        digest.update(weight.detach().numpy().tobytes())
    digests[seed] = digest.hexdigest()

train(1, {}, True, 2)  # what torch registers at its first use is there
before, digests = table(), {}
open(os.path.join(FOLDER, "ready"), "w").close()
# Shorter, so that the main thread does not wait in join(), where it would take no request.
others = [threading.Thread(target=train, args=(seed, digests, False, STEPS // 3)) for seed in (2, 3)]
for other in others:
    other.start()
train(1, digests, True)
for other in others:
    other.join()

def recording():
    native = sys.modules.get("tracer._C")
    return native is not None and native.recording() is not None

def is_restored():
    for _ in range(20):  # a recording may have begun while the words were read
        while recording():  # begun just before: it ends as the others do
            time.sleep(0.01)
        if table() == before:
            return True
    return False

print(json.dumps({"digests": digests, "table": is_restored()}))
"""


def still(pid: int, over: threading.Event, found: list[float]) -> None:
    """Append the milliseconds that the job stood still, which the kernel shows as state t, until `over`."""
    began = total = 0.0
    while not over.is_set():
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            break
        now = time.perf_counter()
        if state == b"t":
            began = began or now
        elif began:
            total, began = total + now - began, 0.0
        time.sleep(0.0005)
    found.append(1000 * total)


def once(session: Session, action: str, facts: dict, figures: dict[str, list[float]]) -> str:
    """Begin or end; how long it took, and how long the job stood still, go into the figures."""
    over, started = threading.Event(), time.monotonic()
    watch = threading.Thread(target=still, args=(session.process.pid, over, figures[f"{action}_still_ms"]))
    watch.start()
    try:
        with session.request(action, facts) as ticket:
            return session.deliver(ticket, "started" if action == "begin" else "ended")
    finally:
        figures[f"{action}_s"].append(time.monotonic() - started)
        over.set()
        watch.join()


def ends(job: subprocess.Popen[str]) -> bool:
    """Whether it has ended or is about to: it has been trained, so it runs no ops."""
    try:
        job.wait(3)
    except subprocess.TimeoutExpired:
        return False
    return True


def build_words(folder: Path) -> None:
    sys.path.insert(0, str(HERE.parent / "tests" / "cpu"))
    from table_words import build

    build(folder / "table_words.so")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attaches", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20000, help="steps of each job")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    figures: dict[str, list[float]] = {
        f"{action}_{what}": [] for action in ("begin", "end") for what in ("still_ms", "s")
    }
    failures: list[str] = []
    jobs = unequal = changed = attached = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_words(folder)
        (folder / "job.py").write_text(JOB)
        command = [sys.executable, str(folder / "job.py"), name, str(given.steps)]
        began = time.monotonic()
        trace = str(folder / "t.trace")
        request = {"path": trace, "shown": trace, "force": True, "reserved": False}
        request["options"] = Options().document()
        alone = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"a job alone: {time.monotonic() - began:.0f} s, table same: {alone['table']}", flush=True)
        while attached < given.attaches:
            (folder / "ready").unlink()
            job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            jobs += 1
            while not (folder / "ready").exists():
                time.sleep(0.05)
            while job.poll() is None and attached < given.attaches:
                time.sleep(draw.random() * 0.5)
                try:
                    session = Session(job.pid, 60)
                    once(session, "begin", request, figures)
                    time.sleep(draw.random() * 0.5)
                    said = once(session, "end", {}, figures)
                except RecordingError as error:
                    if "ended" not in str(error) and not ends(job):
                        failures.append(str(error))
                        print("failed:", error, flush=True)
                    continue
                attached += 1
                if "complete: nothing dropped" not in said and not ("no op ran" in said and ends(job)):
                    failures.append(said.strip())
                    print("failed:", said, flush=True)
            out, err = job.communicate()
            if job.returncode or err:
                failures.append(f"the job ended with {job.returncode}: {err.strip()[-200:]}")
                continue
            found = json.loads(out)
            unequal += found["digests"] != alone["digests"]
            changed += not found["table"]
            print(f"{attached} attaches, {jobs} jobs, {len(failures)} failures", flush=True)
    print(f"cores {len(os.sched_getaffinity(0))}; attaches {attached}; jobs {jobs}; failures {len(failures)}")
    print(f"jobs with other digests {unequal}; jobs with another table {changed}")
    for figure, values in figures.items():
        print(f"{figure}: median {statistics.median(values):.3g}, most {max(values):.3g}, n {len(values)}")
    for failure in failures:
        print("failed:", failure)


if __name__ == "__main__":
    main()
