"""Programs with one thing to improve: `text(name, changed)` is a script that prints its step times as JSON.

Each has a setup, a step as it is, and the same with the change that a rule of `tracer advise` names.
"""

from __future__ import annotations

from dataclasses import dataclass

_BEGIN = """
import json, math, sys, time, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); torch.set_num_threads({threads})
CHANGED = {changed}

def mlp(width, layers):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)])

def done(): pass
if {cuda}:
    done = torch.cuda.synchronize
if "tracer" in sys.modules:
    end_step = sys.modules["tracer"].step
else:
    def end_step(): pass
"""
_LOOP = """
times = []
for number in range({steps}):
    begin = time.perf_counter_ns()
    step(number)
    {done}
    times.append(time.perf_counter_ns() - begin)
    end_step()
print(json.dumps(times[3:]))
"""


@dataclass(frozen=True)
class Program:
    """`rule` should say it. `body` defines `step(number)`, and looks at CHANGED."""

    rule: str
    body: str
    cuda: bool = False
    threads: str = "1"
    steps: int = 14


def text(program: Program, changed: bool) -> str:
    """The script."""
    begin = _BEGIN.format(threads=program.threads, changed=changed, cuda=program.cuda)
    return begin + program.body + _LOOP.format(steps=program.steps, done="done()" if program.cuda else "")


_TRAIN = """
def step(number):
    loss_of(number).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PROGRAMS = {
    "Adam, 60 small parameters": Program("optimizer", """
model = mlp(64, 30)
optimizer = torch.optim.Adam(model.parameters(), fused=CHANGED)
batch = torch.randn(8, 64)
def loss_of(number): return model(batch).square().mean()
""" + _TRAIN),
    "AdamW, 24 parameters of 512 x 512": Program("optimizer", """
model = mlp(512, 12)
optimizer = torch.optim.AdamW(model.parameters(), fused=CHANGED)
batch = torch.randn(16, 512)
def loss_of(number): return model(batch).square().mean()
""" + _TRAIN),
    "SGD with momentum, large layers": Program("optimizer", """
model = mlp(1024, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=CHANGED)
batch = torch.randn(4, 1024)
def loss_of(number): return model(batch).square().mean()
""" + _TRAIN),
    "table of 60,000 x 128": Program("dense-gradient", """
table = nn.Embedding(60000, 128, sparse=CHANGED)
head = nn.Linear(128, 10)
kind = torch.optim.SparseAdam if CHANGED else torch.optim.Adam
optimizers = [kind(table.parameters()), torch.optim.Adam(head.parameters(), fused=True)]
def step(number):
    ids = torch.randint(0, 60000, (32, 20))
    head(table(ids).mean(1)).logsumexp(1).mean().backward()
    for one in optimizers:
        one.step(); one.zero_grad()
"""),
    "loader of 20 ops a row": Program("data-loader", """
from torch.utils.data import DataLoader, Dataset
data = torch.randn(4096, 64)
class Slow(Dataset):
    def __len__(self): return 4096
    def __getitem__(self, row): return torch.stack([data[row].roll(k) for k in range(20)]).mean(0)
batches = iter(DataLoader(Slow(), batch_size=128, num_workers=2 if CHANGED else 0))
model = mlp(512, 6); first = nn.Linear(64, 512)
optimizer = torch.optim.AdamW([*model.parameters(), *first.parameters()], fused=True)
def loss_of(number): return model(first(next(batches))).square().mean()
""" + _TRAIN),
    "loader of cheap rows": Program("data-loader", """
from torch.utils.data import DataLoader, TensorDataset
rows = TensorDataset(torch.randn(4096, 64))
batches = iter(DataLoader(rows, batch_size=128, num_workers=2 if CHANGED else 0))
model = mlp(64, 3)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
def loss_of(number): return model(next(batches)[0]).square().mean()
""" + _TRAIN),
    "attention by hand, training": Program("attention", """
qkv = nn.Linear(128, 384)
optimizer = torch.optim.AdamW(qkv.parameters(), fused=True)
batch = torch.randn(4, 256, 128)
def loss_of(number):
    q, k, v = qkv(batch).view(4, 256, 3, 4, 32).permute(2, 0, 3, 1, 4)
    if CHANGED: out = F.scaled_dot_product_attention(q, k, v)
    else: out = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(32), -1) @ v
    return out.square().mean()
""" + _TRAIN),
    "attention by hand, inference": Program("attention", """
qkv = nn.Linear(256, 768)
batch = torch.randn(2, 512, 256)
def step(number):
    with torch.inference_mode():
        q, k, v = qkv(batch).view(2, 512, 3, 8, 32).permute(2, 0, 3, 1, 4)
        if CHANGED: F.scaled_dot_product_attention(q, k, v)
        else: torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(32), -1) @ v
"""),
    "convolutions": Program("channels-last", """
model = nn.Sequential(*[nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()) for _ in range(4)])
batch = torch.randn(4, 32, 48, 48)
if CHANGED:
    model, batch = (one.to(memory_format=torch.channels_last) for one in (model, batch))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
def loss_of(number): return model(batch).square().mean()
""" + _TRAIN),
    "GRUCell over 40 time steps": Program("python-loop", """
cell = nn.GRU(64, 64, batch_first=True) if CHANGED else nn.GRUCell(64, 64)
optimizer = torch.optim.AdamW(cell.parameters(), fused=True)
batch = torch.randn(16, 40, 64)
def loss_of(number):
    if CHANGED: return cell(batch)[0][:, -1].square().mean()
    state = torch.zeros(16, 64)
    for time_step in range(40): state = cell(batch[:, time_step], state)
    return state.square().mean()
""" + _TRAIN),
    "one call for each of 64 rows": Program("python-loop", """
model = nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
batch = torch.randn(64, 64)
def loss_of(number):
    if CHANGED: return model(batch).square().mean()
    return torch.stack([model(row).square().mean() for row in batch]).mean()
""" + _TRAIN),
    "8 threads on fewer cores": Program("threads", """
import os
torch.set_num_threads(len(os.sched_getaffinity(0)) if CHANGED else 4 * len(os.sched_getaffinity(0)))
model = mlp(512, 8)
batch = torch.randn(64, 512)
def step(number):
    with torch.inference_mode(): model(batch)
"""),
    "float64": Program("wide-numbers", """
model = mlp(256, 4)
batch = torch.randn(256, 256)
if not CHANGED: model, batch = model.double(), batch.double()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
def loss_of(number): return model(batch).square().mean()
""" + _TRAIN),
    "inference with autograd": Program("inference", """
import contextlib
model = mlp(64, 16).eval()
batch = torch.randn(16, 64)
def step(number):
    with torch.inference_mode() if CHANGED else contextlib.nullcontext():
        for _ in range(4): model(batch).argmax(-1)
""", steps=40),
    "a size that changes": Program("recompiles", """
function = torch.compile(lambda x: x.sin().cos().sum(), dynamic=CHANGED, backend="eager")
def step(number): function(torch.randn(3 + number))
""", steps=8),
    "GPU: a read before the next launches": Program("gpu-waits", """
a = torch.randn(4096, 4096, device="cuda")
def step(number):
    loss = ((a @ a) @ a).mean()
    if not CHANGED: loss.item()
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end: pass
    (a @ a).sum()
""", cuda=True, steps=30),
    "GPU: 400 short kernels": Program("launch-bound", """
x = torch.randn(64, 64, device="cuda")
def work():
    y = x
    for _ in range(200): y = y * 1.0001 + 0.1
    return y
work(); torch.cuda.synchronize()
if CHANGED:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): work()
def step(number): graph.replay() if CHANGED else work()
""", cuda=True, steps=30),
    "GPU: AdamW, 80 parameters, foreach": Program("optimizer", """
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(40)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=CHANGED)
batch = torch.randn(8, 256, device="cuda")
def loss_of(number): return model(batch).square().mean()
""" + _TRAIN, cuda=True, steps=30),
    "GPU: products of float32": Program("wide-numbers", """
torch.set_float32_matmul_precision("high" if CHANGED else "highest")
x = torch.randn(4096, 4096, device="cuda")
def step(number):
    for _ in range(4): x @ x
""", cuda=True, steps=20),
    "GPU: attention by hand": Program("attention", """
q, k, v = (torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
def step(number):
    with torch.inference_mode():
        if CHANGED: F.scaled_dot_product_attention(q, k, v)
        else: torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v
""", cuda=True, steps=20),
    "GPU: convolutions in float16": Program("channels-last", """
model = nn.Sequential(*[nn.Conv2d(64, 64, 3, padding=1) for _ in range(6)]).cuda().half()
batch = torch.randn(32, 64, 64, 64, device="cuda").half()
if CHANGED:
    model, batch = (one.to(memory_format=torch.channels_last) for one in (model, batch))
def step(number):
    with torch.inference_mode(): model(batch)
""", cuda=True, steps=20),
}  # fmt: skip
