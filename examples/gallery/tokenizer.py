"""A tokenizer learns the common pieces of protein-like sequences and feeds an embedding.

    python examples/gallery/tokenizer.py
    tracer record examples/gallery/tokenizer.py

Byte-pair encoding begins with single letters and merges the pair that is met most often, again and again.
The sequences are made up here: amino acids at random, and among them a few motifs that come back, so the
merges should find the motifs. The tokenizer is trained, saved, loaded, and gives the same tokens after that.

Look at how little there is to see: the `tokenizers` package works in Rust and no op of PyTorch takes part in
making tokens. The first ops make the embedding's table; then `torch.tensor` takes the numbers, and from there
it is `aten::embedding`, with the mean over each sequence.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

try:
    from tokenizers import Tokenizer, models, trainers
except ModuleNotFoundError:
    print("this needs the package tokenizers: pip install tokenizers", file=sys.stderr)
    sys.exit(3)

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
MOTIFS = ("GKSTLL", "HEAGAW", "CPYC", "DFGRD")
PAD, UNKNOWN = "[PAD]", "[UNK]"


def sequences(count: int, seed: int) -> list[str]:
    """Made-up proteins: random letters with a motif after every few of them."""
    chance = random.Random(seed)

    def piece() -> str:
        return "".join(chance.choices(AMINO_ACIDS, k=chance.randint(2, 6))) + chance.choice(MOTIFS)

    return ["".join(piece() for _ in range(chance.randint(5, 10))) for _ in range(count)]


def train(proteins: list[str], size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[PAD, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(proteins, trainer)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(PAD), pad_token=PAD)
    return tokenizer


def saved_and_loaded(tokenizer: Tokenizer) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "proteins.json")
        tokenizer.save(path)
        return Tokenizer.from_file(path)


def vectors(tokenizer: Tokenizer, embedding: nn.Embedding, proteins: list[str]) -> Tensor:
    """(sequences, width): the mean of the rows of each sequence's tokens, padding left out."""
    encoded = tokenizer.encode_batch(proteins)
    tokens = torch.tensor([one.ids for one in encoded])
    is_token = torch.tensor([one.attention_mask for one in encoded]).unsqueeze(-1)
    return (embedding(tokens) * is_token).sum(dim=1) / is_token.sum(dim=1)


def main() -> None:
    torch.manual_seed(0)
    trained = train(sequences(2000, seed=0), size=120)
    tokenizer = saved_and_loaded(trained)
    unseen = sequences(16, seed=1)
    assert [one.ids for one in tokenizer.encode_batch(unseen)] == [
        one.ids for one in trained.encode_batch(unseen)
    ]
    found = [motif for motif in MOTIFS if tokenizer.token_to_id(motif) is not None]
    letters = sum(map(len, unseen))
    tokens = sum(sum(one.attention_mask) for one in tokenizer.encode_batch(unseen))
    print(f"motifs that became one token: {', '.join(found)}")
    print(f"{letters} letters of unseen sequences are {tokens} tokens, before and after saving and loading")
    size = tokenizer.get_vocab_size()
    embedding = nn.Embedding(size, 16, padding_idx=tokenizer.token_to_id(PAD))
    print(f"{size} tokens in the vocabulary; embedded: {tuple(vectors(tokenizer, embedding, unseen).shape)}")


if __name__ == "__main__":
    main()
