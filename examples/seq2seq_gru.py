"""Trains a small attention seq2seq (GRU encoder and decoder) to reverse sequences of numbers.

    python examples/seq2seq_gru.py
    tracer record examples/seq2seq_gru.py --epochs 2
    tracer record examples/seq2seq_gru.py --device cuda --hidden 256 --batch 64

The data is generated, so nothing is downloaded; the defaults take a few seconds on two cores.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

START = 0  # the token that begins every output; numbers are 1..vocabulary-1


class Encoder(nn.Module):
    """Numbers (batch, length) -> states (batch, length, hidden) and the last one."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        return self.gru(self.embedding(numbers))


class Attention(nn.Module):
    """Additive attention of one query (batch, hidden) over states (batch, length, hidden)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        energy = torch.tanh(self.query(query).unsqueeze(1) + self.key(states))
        weights = torch.softmax(self.score(energy).squeeze(-1), dim=-1)
        return torch.bmm(weights.unsqueeze(1), states).squeeze(1)


class Decoder(nn.Module):
    """One output position at a time: embedding and attended states through a GRU cell's step."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.attention = Attention(hidden)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, token: Tensor, state: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        context = self.attention(state[-1], states)
        step = torch.cat([self.embedding(token), context], dim=-1)
        output, state = self.gru(step.unsqueeze(1), state)
        return self.output(output.squeeze(1)), state


class Seq2Seq(nn.Module):
    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.encoder = Encoder(vocabulary, hidden)
        self.decoder = Decoder(vocabulary, hidden)

    def forward(self, numbers: Tensor, targets: Tensor, teacher_forcing: bool) -> Tensor:
        """Logits (batch, length, vocabulary); targets are fed back under teacher forcing only."""
        states, state = self.encoder(numbers)
        token = torch.full_like(numbers[:, 0], START)
        logits = []
        for position in range(targets.shape[1]):
            step, state = self.decoder(token, state, states)
            logits.append(step)
            token = targets[:, position] if teacher_forcing else step.argmax(dim=-1)
        return torch.stack(logits, dim=1)


def batch_of(size: int, length: int, vocabulary: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    numbers = torch.randint(1, vocabulary, (size, length), device=device)
    return numbers, numbers.flip(1)


def device_of(model: nn.Module) -> str:
    return str(next(model.parameters()).device)


def train_epoch(model: Seq2Seq, optimiser: torch.optim.Optimizer, options: argparse.Namespace) -> float:
    model.train()
    device = device_of(model)
    total = 0.0
    for _ in range(options.steps):
        numbers, targets = batch_of(options.batch, options.length, options.vocabulary, device)
        logits = model(numbers, targets, teacher_forcing=True)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        total += loss.item()
    return total / options.steps


@torch.no_grad()
def accuracy(model: Seq2Seq, options: argparse.Namespace) -> float:
    """The share of numbers that the model gets right when it feeds on its own output."""
    model.eval()
    numbers, targets = batch_of(256, options.length, options.vocabulary, device_of(model))
    logits = model(numbers, targets, teacher_forcing=False)
    return (logits.argmax(dim=-1) == targets).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a GRU seq2seq to reverse numbers.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40, help="batches an epoch")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=8, help="numbers in a sequence")
    parser.add_argument("--vocabulary", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where it trains: cpu, cuda, cuda:1...")
    parser.add_argument("--threads", type=int, default=1, help="tensors this small gain nothing from more")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    model = Seq2Seq(options.vocabulary, options.hidden).to(options.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(1, options.epochs + 1):
        began = time.perf_counter()
        loss = train_epoch(model, optimiser, options)
        share = accuracy(model, options)
        seconds = time.perf_counter() - began
        print(f"epoch {epoch}: loss {loss:.3f}, reversed {share:.0%}, {seconds:.1f} s")


if __name__ == "__main__":
    main()
