"""A GRU translator with stock kernels and with the built-in overrides: a training step, greedy decoding.

kernels_report.py has a row of each. The model is the translator of many tutorials: embeddings of 256, a
bidirectional encoder and a decoder with 512 hidden units, additive attention, vocabularies of 7853 and 5893
words. Both sides compute the same batches from the same first weights, in turns, in one process. Precision is
torch's default: cuDNN may use TF32, matrix products may not.

A training step is forward pass, backward pass, clipping and Adam at a rate of 1e-3. Its losses must stay as
near to stock's as those of stock without TF32 are (LOSSES). Decoding takes 64 sentences at once; the word
with the highest score is fed back. Its scores must be stock's within SCORES up to the first word that
differs, so a word differs only where two scores were equal within rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tracer import overrides
from tracer.compare.model import CaseResult, Timing
from tracer.compare.timing import Samples
from tracer.overrides.registry import registered

PAD, START, END = 0, 1, 2
TRAINING, DECODING = "training step", "greedy decoding of 64 sentences"
UNTIMED = 5
"""Pairs before those that are timed"""
LOSSES = 3.0
"""Times the mean distance of the losses of stock without TF32: roundings of one size differ by up to 2"""
LEAST_DISTANCE = 1e-6
"""Of losses, relative: what fp32 alone makes of a step"""
SCORES = 1e-2
"""Of the largest score: TF32 keeps 11 bits, and errors grow from word to word"""


@dataclass(frozen=True)
class Sizes:
    source: int = 7853
    target: int = 5893
    embedding: int = 256
    hidden: int = 512
    training_batch: int = 128
    decoding_batch: int = 64
    words: int = 24
    batches: int = 4


class Encoder(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.source, sizes.embedding)
        self.gru = nn.GRU(sizes.embedding, sizes.hidden, bidirectional=True)
        self.state = nn.Linear(2 * sizes.hidden, sizes.hidden)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Words (words, batch) -> states (words, batch, 2 hidden), and the decoder's first one."""
        states, last = self.gru(self.embedding(source))
        return states, torch.tanh(self.state(torch.cat((last[-2], last[-1]), dim=1)))


class Attention(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.energy = nn.Linear(3 * hidden, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, state: Tensor, states: Tensor, padding: Tensor) -> Tensor:
        """(batch, 1, words): how much each word counts."""
        queries = state.unsqueeze(1).expand(-1, states.shape[1], -1)
        energy = torch.tanh(self.energy(torch.cat((queries, states), dim=2)))
        scores = self.score(energy).squeeze(2).masked_fill(padding, -1e10)
        return torch.softmax(scores, dim=1).unsqueeze(1)


class Translator(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = Encoder(sizes)
        self.embedding = nn.Embedding(sizes.target, sizes.embedding)
        self.attention = Attention(sizes.hidden)
        self.gru = nn.GRU(2 * sizes.hidden + sizes.embedding, sizes.hidden)
        self.output = nn.Linear(3 * sizes.hidden + sizes.embedding, sizes.target)

    def next_word(
        self, word: Tensor, state: Tensor, states: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores (batch, target) of the word after `word` (batch,), and the new state."""
        embedded = self.embedding(word).unsqueeze(0)
        attended = torch.bmm(self.attention(state, states, padding), states).transpose(0, 1)
        output, state = self.gru(torch.cat((embedded, attended), dim=2), state.unsqueeze(0))
        scores = self.output(torch.cat((output[0], attended[0], embedded[0]), dim=1))
        return scores, state[0]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Scores (words, batch, target), each word after the one that should have come before it."""
        states, state = self.encoder(source)
        states, padding = states.transpose(0, 1), source.t() == PAD
        scores = []
        for word in (torch.full_like(target[0], START), *target[:-1]):
            score, state = self.next_word(word, state, states, padding)
            scores.append(score)
        return torch.stack(scores)

    @torch.no_grad()
    def greedy(self, source: Tensor, longest: int, keep: list[Tensor] | None = None) -> Tensor:
        """The likeliest words (words, batch). `keep` gets the scores of each."""
        states, state = self.encoder(source)
        states, padding = states.transpose(0, 1), source.t() == PAD
        word = torch.full_like(source[0], START)
        ended = torch.zeros_like(word, dtype=torch.bool)
        words = []
        for _ in range(longest):
            scores, state = self.next_word(word, state, states, padding)
            word = scores.argmax(dim=1)
            words.append(word)
            if keep is not None:
                keep.append(scores)
            ended |= word == END
            if ended.all():  # the host waits for the word, as in any decoder
                break
        return torch.stack(words)


def sentences(words: int, batch: int, vocabulary: int, device: str, seed: int) -> Tensor:
    """(words, batch): random words, an end after half of them at least, and padding."""
    random = torch.Generator().manual_seed(seed)
    made = torch.randint(END + 1, vocabulary, (words, batch), generator=random)
    lengths = torch.randint(words // 2, words, (batch,), generator=random)
    lengths[0] = words - 1
    places = torch.arange(words).unsqueeze(1)
    made = made.masked_fill(places == lengths, END).masked_fill(places > lengths, PAD)
    return made.to(device)


class Training:
    """A model and its optimiser; each call is one step and returns the loss."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        torch.manual_seed(0)
        self.model = Translator(sizes).to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.batches = [
            (
                sentences(sizes.words, sizes.training_batch, sizes.source, device, 2 * seed),
                sentences(sizes.words, sizes.training_batch, sizes.target, device, 2 * seed + 1),
            )
            for seed in range(sizes.batches)
        ]
        self.steps = 0

    def __call__(self) -> Tensor:
        source, target = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        self.optimiser.zero_grad()
        scores = self.model(source, target)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=PAD)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return loss.detach()


@dataclass(frozen=True)
class EndToEnd:
    """One row: `what` is TRAINING or DECODING, `mode` that of the overrides (auto or force)."""

    what: str
    mode: str
    sizes: Sizes = Sizes()
    device: str = "cuda"
    names: tuple[str, ...] = ("mm", "gru", "cat")

    @property
    def name(self) -> str:
        return f"end to end: seq2seq {self.what}, all overrides, {self.mode}"

    def on(self) -> AbstractContextManager[object]:
        return overrides.use(*(f"{name}:{self.mode}" for name in self.names)) if self.names else nullcontext()

    def measure(self, pairs: int) -> tuple[CaseResult, str]:
        """The result, and the cell of its error."""
        result = CaseResult(self.name)
        before = self._counts()
        error = (self._training if self.what == TRAINING else self._decoding)(result, pairs)
        parts = [f"{op} {ran - before.get(op, 0)}" for op, ran in self._counts().items() if ran]
        result.note = "; ".join(filter(None, [result.note, f"ran: {', '.join(parts)}" if parts else ""]))
        return result, error

    def _training(self, result: CaseResult, pairs: int) -> str:
        stock, override = Training(self.sizes, self.device), Training(self.sizes, self.device)
        found = self._in_turns(result, stock, override, pairs)
        exact = Training(self.sizes, self.device)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            strict = torch.stack([exact() for _ in found[0]])
        losses, others = torch.stack(found[0]), torch.stack(found[1])
        ours = (others - losses).abs().mean().item()
        noise = max((strict - losses).abs().mean().item(), LEAST_DISTANCE * losses.abs().mean().item())
        result.note = (
            f"the losses of {len(losses)} steps are {ours:.1e} from stock's in the mean, "
            f"those of stock without TF32 {noise:.1e}"
        )
        if not ours <= LOSSES * noise:
            result.broken = result.note
        return f"{ours / noise:.2f}"

    def _decoding(self, result: CaseResult, pairs: int) -> str:
        torch.manual_seed(0)
        model = Translator(self.sizes).to(self.device).eval()
        words = self.sizes.words
        source = sentences(words, self.sizes.decoding_batch, self.sizes.source, self.device, 0)
        scores: tuple[list[Tensor], list[Tensor]] = ([], [])
        stock = model.greedy(source, words, scores[0])
        with self.on():
            override = model.greedy(source, words, scores[1])
        same, distance = agreement(stock, override, *scores)
        count = source.shape[1]
        result.note = (
            f"{same} of {count} sentences are stock's; scores differ by {distance:.1e} until a word does"
        )
        if not distance <= SCORES:
            result.broken = result.note
        self._in_turns(result, *(lambda: model.greedy(source, words) for _ in range(2)), pairs=pairs)
        return f"{same} of {count}"

    def _in_turns(
        self, result: CaseResult, stock: Callable[[], Tensor], override: Callable[[], Tensor], pairs: int
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Puts the wall time into the result; returns what the calls of each side returned."""
        samples = Samples()
        found: tuple[list[Tensor], list[Tensor]] = ([], [])
        for number in range(UNTIMED + pairs):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                with self.on() if side else nullcontext():
                    self._wait()
                    begin = time.perf_counter_ns()
                    found[side].append((override if side else stock)())
                    self._wait()
                    took = float(time.perf_counter_ns() - begin)
                if number >= UNTIMED:
                    (samples.override if side else samples.stock).append(took)
        result.wall = Timing.of(samples)
        return found

    def _wait(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def _counts(self) -> dict[str, int]:
        return {op: ran for name in self.names for op, ran in registered()[name].ran().items()}


def agreement(stock: Tensor, override: Tensor, ours: list[Tensor], theirs: list[Tensor]) -> tuple[int, float]:
    """How many sentences are equal, and the largest distance of scores, relative to the largest score.

    The scores of a sentence count up to the first word that differs: after it the inputs differ too.

        stock     7 3 9 4        counts: the scores of 7, 3 and 9
        override  7 3 8 4
    """
    length = min(len(stock), len(override))
    differs = stock[:length] != override[:length]
    before = differs.cumsum(0) - differs.long() == 0
    distance = torch.stack(
        [(a - b).abs().amax(1) / a.abs().max() for a, b in zip(ours[:length], theirs[:length], strict=True)]
    )
    is_same = ~differs.any(0)
    same = int(is_same.sum()) if len(stock) == len(override) else 0
    return same, distance[before].max().item()
