"""Trains examples/seq2seq_gru.py with stock kernels and with the built-in overrides, and compares the losses.

    python benchmarks/override_seq2seq.py
    python benchmarks/override_seq2seq.py --seeds 2 --steps 50 --override gru:force
    python benchmarks/override_seq2seq.py --rate 1e-3

Sizes and learning rate are the example's own unless others are given. For each seed four runs on the same
data: stock, stock without TF32, stock's settings with the overrides on, and stock from first weights of
which each was changed by about 1e-7 of itself. The overrides pass where, for every seed, their largest
deviation from stock over all steps is at most twice that of stock without TF32, and the means of the last 20
losses differ by at most 1 %. Exits 1 where they do not.

The last run, and the means of stock without TF32, say whether such a comparison is about arithmetic at
all. Training multiplies any difference:
at the example's rate of 5e-3 the one of 1e-7 has grown to 1e-3 and more in 200 steps (on a CPU), and no two
ways to round give the same losses any more; at 1e-3, which is Adam's own, it is as small at the end.
The table has the deviations of the first steps besides.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from tracer import overrides

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from seq2seq_gru import Seq2Seq, batch_of  # noqa: E402

FIRST, LAST = 20, 20
NUDGE = 1e-7
DEVIATIONS = 2.0  # times that of stock without TF32
MEANS = 0.01


@dataclass(frozen=True)
class Settings:
    steps: int
    batch: int
    length: int
    vocabulary: int
    hidden: int
    rate: float
    device: str


def losses(
    settings: Settings, seed: int, names: list[str], tf32: bool = True, nudge: float = 0.0
) -> list[float]:
    """The loss of each step. The same seed gives the same data and the same first weights, and each weight is
    changed by about `nudge` of itself.
    """
    torch.manual_seed(seed)
    model = Seq2Seq(settings.vocabulary, settings.hidden)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + nudge * torch.randn(weight.shape, generator=generator))
    model.to(settings.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.rate)
    batches = [batch_of(settings.batch, settings.length, settings.vocabulary) for _ in range(settings.steps)]
    found: list[torch.Tensor] = []
    with ExitStack() as stack:
        stack.enter_context(torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32))
        if names:
            stack.enter_context(overrides.use(*names))
        for numbers, targets in batches:
            numbers, targets = numbers.to(settings.device), targets.to(settings.device)
            logits = model(numbers, targets, teacher_forcing=True)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            found.append(loss.detach())
    return torch.stack(found).tolist()


@dataclass(frozen=True)
class Seed:
    seed: int
    deviation: float  # of the overrides from stock
    without_tf32: float  # of stock without TF32 from stock
    nudged: float  # of stock from weights changed by NUDGE of themselves
    early: float  # of the overrides over the first steps
    early_without_tf32: float
    mean: float  # of the last losses with the overrides
    stock_mean: float
    mean_without_tf32: float
    nudged_mean: float

    @property
    def passed(self) -> bool:
        return self.is_near(self.mean) and self.deviation <= DEVIATIONS * self.without_tf32

    def is_near(self, mean: float) -> bool:
        """Whether a mean of last losses is as near to stock's as that of the overrides has to be."""
        return abs(mean - self.stock_mean) <= MEANS * abs(self.stock_mean)


def largest_difference(one: list[float], other: list[float]) -> float:
    """NaN where a loss is NaN, which no bound holds."""
    differences = [abs(a - b) for a, b in zip(one, other, strict=True)]
    return max(differences, key=lambda value: float("inf") if value != value else value)


def compare(settings: Settings, seed: int, names: list[str]) -> Seed:
    stock = losses(settings, seed, [])
    nudged = losses(settings, seed, [], nudge=NUDGE)
    strict = losses(settings, seed, [], tf32=False)
    override = losses(settings, seed, names)
    last = min(LAST, settings.steps)
    return Seed(
        seed,
        largest_difference(override, stock),
        largest_difference(strict, stock),
        largest_difference(nudged, stock),
        largest_difference(override[:FIRST], stock[:FIRST]),
        largest_difference(strict[:FIRST], stock[:FIRST]),
        *(sum(losses[-last:]) / last for losses in (override, stock, strict, nudged)),
    )


def table(seeds: list[Seed]) -> str:
    lines = [
        f"| seed | largest deviation | of stock without TF32 | of nudged stock | in {FIRST} steps "
        f"| of stock without TF32 | mean of the last {LAST} losses | of stock | of stock without TF32 "
        "| of nudged stock | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {s.seed} | {s.deviation:.2e} | {s.without_tf32:.2e} | {s.nudged:.2e} | {s.early:.2e} "
        f"| {s.early_without_tf32:.2e} | {s.mean:.5f} | {s.stock_mean:.5f} "
        f"| {mean_beside(s, s.mean_without_tf32)} | {mean_beside(s, s.nudged_mean)} "
        f"| {'passed' if s.passed else 'FAILED'} |"
        for s in seeds
    ]
    return "\n".join(lines)


def mean_beside(seed: Seed, mean: float) -> str:
    """A mean of stock's own, marked where the bound for the overrides would refuse it."""
    return f"{mean:.5f}" if seed.is_near(mean) else f"{mean:.5f}, beyond {MEANS:.0%}"


def counts(names: list[str]) -> str:
    """How often each built-in override ran, and what it handed over."""
    from tracer import _overrides

    lines = []
    for name in (name.partition(":")[0] for name in names):
        if name not in ("mm", "gru", "cat"):
            continue
        for operator, calls in _overrides.ran(name).items():
            handed = _overrides.handed_over(name)[operator]
            lines.append(
                f"- {operator}: ran {calls}" + "".join(f"; {n} to stock: {why}" for why, n in handed.items())
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=8, help="numbers in a sequence")
    parser.add_argument("--vocabulary", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rate", type=float, default=5e-3, help="learning rate of Adam (5e-3)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--override", default="mm:force,gru:force,cat:force", help="names, separated by commas"
    )
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print(
            "override_seq2seq: torch finds no CUDA GPU here; --device cpu compares CPU overrides",
            file=sys.stderr,
        )
        return 1
    settings = Settings(
        options.steps,
        options.batch,
        options.length,
        options.vocabulary,
        options.hidden,
        options.rate,
        options.device,
    )
    names = [name for name in options.override.split(",") if name]
    seeds = [compare(settings, seed, names) for seed in range(options.seeds)]
    print(f"{settings}\n{options.override or 'stock'}\n")
    print(table(seeds))
    if options.device.startswith("cuda"):
        print(f"\n{counts(names)}")
    return 0 if all(seed.passed for seed in seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
