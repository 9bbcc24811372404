"""Programs with one thing to improve each, and the same without: `program(case, planted)`."""

from __future__ import annotations

_BEGIN = """
import math, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); torch.set_num_threads({threads})
PLANTED = {planted}

def mlp(width, layers):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)])

def train(model, batches, loss_of, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), fused=True)
    for batch in batches:
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
CASES = {
    "optimizer": """
model = mlp(64, 30)
train(model, torch.randn(8, 8, 64), lambda m, b: m(b).square().mean(),
      torch.optim.AdamW(model.parameters(), fused=not PLANTED))
""",
    "data-loader": """
from torch.utils.data import DataLoader, Dataset, TensorDataset
data = torch.randn(1024, 64)
class Slow(Dataset):
    def __len__(self): return 1024
    def __getitem__(self, row): return torch.stack([data[row].roll(k) for k in range(20)]).mean(0)
rows = Slow() if PLANTED else TensorDataset(data)
train(mlp(64, 2), DataLoader(rows, batch_size=128), lambda m, b: m(b if PLANTED else b[0]).square().mean())
""",
    "dense-gradient": """
table = nn.Embedding(60000, 64, sparse=not PLANTED)
kind = torch.optim.Adam if PLANTED else torch.optim.SparseAdam
train(table, [torch.randint(0, 60000, (32, 10)) for _ in range(7)], lambda m, b: m(b).mean(1).square().mean(),
      kind(table.parameters()))
""",
    "attention": """
qkv = nn.Linear(64, 192)
def loss_of(model, batch):
    q, k, v = model(batch).view(2, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
    if PLANTED:
        out = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(16), -1) @ v
    else:
        out = F.scaled_dot_product_attention(q, k, v)
    return out.square().mean()
train(qkv, torch.randn(8, 2, 128, 64), loss_of)
""",
    "python-loop": """
def loss_of(model, batch):
    if PLANTED:
        return torch.stack([model(row).square().mean() for row in batch]).mean()
    return model(batch).square().mean()
train(nn.Linear(64, 64), torch.randn(8, 64, 64), loss_of)
""",
    "wide-numbers": """
batches, model = torch.randn(8, 256, 256), mlp(256, 3)
if PLANTED:
    batches, model = batches.double(), model.double()
train(model, batches, lambda m, b: m(b).square().mean())
""",
    "inference": """
import contextlib
model = mlp(64, 8).eval()
with contextlib.nullcontext() if PLANTED else torch.inference_mode():
    for batch in torch.randn(40, 16, 64):
        model(batch).argmax(-1)
""",
    "threads": """
torch.set_num_threads(8 if PLANTED else {cores})
with torch.inference_mode():
    model = mlp(256, 4)
    for batch in torch.randn(20, 64, 256):
        model(batch)
""",
    "channels-last": """
model = nn.Sequential(*[nn.Conv2d(16, 16, 3, padding=1) for _ in range(3)])
batches = torch.randn(7, 4, 16, 32, 32)
if not PLANTED:
    model = model.to(memory_format=torch.channels_last)
    batches = [batch.to(memory_format=torch.channels_last) for batch in batches]
train(model, batches, lambda m, b: m(b).square().mean())
""",
    "recompiles": """
import tracer
double = torch.compile(lambda x: x.sin().sum(), dynamic=not PLANTED, backend="eager")
for number in range(3, 12):
    double(torch.randn(number * 7))
    tracer.step()
""",
}


def program(case: str, planted: bool, cores: int = 2) -> str:
    """Its text; one thread, but where threads are the matter."""
    begin = _BEGIN.replace("{threads}", "1").replace("{planted}", str(planted))
    return begin + CASES[case].replace("{cores}", str(cores))
