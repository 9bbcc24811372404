"""Translates small English sentences into German: GRU encoder, attention, GRU decoder; trained, then greedy.

    python examples/gallery/translation.py
    tracer record examples/gallery/translation.py

Look at one training step: the encoder is one `aten::gru.input` over the whole sentence, the decoder one
for each word, each behind attention (`aten::softmax` over the words, `aten::bmm` with their states).
Decoding is greedy: the word with the highest score (`scores.argmax` in the script) is fed back, and the
end of a sentence is looked for by `aten::item`, once a word: on a GPU the host has to wait for that word.
The article follows the gender of a noun that comes later, and "not" moves to the end, so no word can be
translated by itself.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

NOUNS = {"dog": "der Hund", "cat": "die Katze", "horse": "das Pferd", "bird": "der Vogel", "cow": "die Kuh"}
ADJECTIVES = {"old": "alte", "small": "kleine", "black": "schwarze", "quick": "schnelle"}
VERBS = {"sleeps": "schläft", "runs": "läuft", "eats": "frisst", "drinks": "trinkt"}
PLAIN = {"sleeps": "sleep", "runs": "run", "eats": "eat", "drinks": "drink"}

PAD, START, END = 0, 1, 2
HIDDEN, EMBEDDING, BATCH, STEPS = 64, 32, 32, 80
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def sentences() -> list[tuple[str, str]]:
    """All of them, in English and in German."""
    pairs = []
    for noun, (article, german) in ((noun, text.split()) for noun, text in NOUNS.items()):
        for adjective in ("", *ADJECTIVES):
            for verb, in_german in VERBS.items():
                english = f"the {adjective} {noun}".replace("  ", " ")
                subject = f"{article} {ADJECTIVES.get(adjective, '')} {german}".replace("  ", " ")
                pairs.append((f"{english} {verb}", f"{subject} {in_german}"))
                pairs.append((f"{english} does not {PLAIN[verb]}", f"{subject} {in_german} nicht"))
    return pairs


class Words:
    """Numbers for the words of one language; 0 to 2 are padding, start and end."""

    def __init__(self, texts: list[str]) -> None:
        self.words = ["<pad>", "<start>", "<end>", *sorted({word for text in texts for word in text.split()})]
        self.number = {word: number for number, word in enumerate(self.words)}

    def batch(self, texts: list[str]) -> Tensor:
        """(sentences, words), with an end and padding behind it."""
        rows = [torch.tensor([*(self.number[word] for word in text.split()), END]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(DEVICE)

    def text(self, numbers: list[int]) -> str:
        return " ".join(self.words[number] for number in numbers)


class Translator(nn.Module):
    def __init__(self, source: int, target: int) -> None:
        super().__init__()
        self.source = nn.Embedding(source, EMBEDDING, padding_idx=PAD)
        self.target = nn.Embedding(target, EMBEDDING, padding_idx=PAD)
        self.encoder = nn.GRU(EMBEDDING, HIDDEN, batch_first=True)
        self.score = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.decoder = nn.GRU(EMBEDDING + HIDDEN, HIDDEN, batch_first=True)
        self.output = nn.Linear(EMBEDDING + 2 * HIDDEN, target)

    def encode(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """States of all words (batch, words, hidden), and the last one (1, batch, hidden)."""
        return self.encoder(self.source(numbers))

    def next_word(
        self, word: Tensor, state: Tensor, states: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores of the next word (batch, target), and the new state."""
        query = self.score(state[-1]).unsqueeze(2)
        scores = torch.bmm(states, query).squeeze(2).masked_fill(padding, -torch.inf)
        attended = torch.bmm(torch.softmax(scores, dim=1).unsqueeze(1), states)
        embedded = self.target(word).unsqueeze(1)
        output, state = self.decoder(torch.cat([embedded, attended], dim=2), state)
        return self.output(torch.cat([embedded, attended, output], dim=2).squeeze(1)), state


def loss_of(model: Translator, english: Tensor, german: Tensor) -> Tensor:
    states, state = model.encode(english)
    word = torch.full_like(german[:, 0], START)
    scores = []
    for position in range(german.shape[1]):
        score, state = model.next_word(word, state, states, english == PAD)
        scores.append(score)
        word = german[:, position]  # what should have come, not what did
    return nn.functional.cross_entropy(torch.stack(scores, 2), german, ignore_index=PAD)


@torch.no_grad()
def translate(model: Translator, english: Tensor, longest: int = 8) -> list[int]:
    """Greedy: the likeliest word at each position, until the end."""
    states, state = model.encode(english)
    word, numbers = torch.full((1,), START, device=DEVICE), []
    for _ in range(longest):
        scores, state = model.next_word(word, state, states, english == PAD)
        word = scores.argmax(dim=1)
        if (number := word.item()) == END:
            break
        numbers.append(number)
    return numbers


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pairs = sentences()
    random.Random(0).shuffle(pairs)
    training, unseen = pairs[:-20], pairs[-20:]
    english, german = (Words([pair[side] for pair in pairs]) for side in (0, 1))
    model = Translator(len(english.words), len(german.words)).to(DEVICE)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, STEPS + 1):
        chosen = random.Random(step).sample(training, BATCH)
        loss = loss_of(
            model,
            *(words.batch([pair[side] for pair in chosen]) for side, words in enumerate((english, german))),
        )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    model.eval()
    said = [german.text(translate(model, english.batch([pair[0]]))) for pair in unseen]
    with_not = next(at for at, (source, _) in enumerate(unseen) if " not " in source)
    for at in (0, 1, with_not):
        print(f"{unseen[at][0]} -> {said[at]}")
    right = sum(text == target for text, (_, target) in zip(said, unseen, strict=True))
    print(f"right: {right} of {len(unseen)} sentences that training had not")


if __name__ == "__main__":
    main()
