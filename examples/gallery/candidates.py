"""Which op of a translator should be optimised first? Ask the kernel survey, not the host's times alone.

    python examples/gallery/candidates.py        (needs a CUDA GPU)
    tracer record examples/gallery/candidates.py

Look at the survey of kernels: it ranks by possible gain, that is the time of a kernel beyond what the
device would need for its bytes and operations, not by time alone. The project that this gallery grew from
suspected GRU, cat and linear by hand from a profile; here each kernel is listed with the op that launched
it. Then compare with the time between kernels, "Idle GPU": where the GPU waits for the host, a faster kernel
gains nothing and fewer launches do.
"""

from __future__ import annotations

import random
import sys

import torch
import translation
from torch import nn

STEPS = 8


def main() -> None:
    if not torch.cuda.is_available():
        print("candidates.py needs a CUDA GPU, and torch finds none here", file=sys.stderr)
        sys.exit(3)
    torch.manual_seed(0)
    translation.HIDDEN, translation.EMBEDDING = 512, 256  # a size that a GPU is used for
    pairs = translation.sentences()
    english, german = (translation.Words([pair[side] for pair in pairs]) for side in (0, 1))
    model = translation.Translator(len(english.words), len(german.words)).to("cuda")
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    chosen = random.Random(0).sample(pairs, 128)
    batch = english.batch([pair[0] for pair in chosen]), german.batch([pair[1] for pair in chosen])
    for _ in range(STEPS):
        loss = translation.loss_of(model, *batch)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    print(f"{STEPS} steps of {len(chosen)} sentences, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
