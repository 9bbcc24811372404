"""Quantisation from first principles: a small net on digits, in float32 and then in whole numbers.

    python examples/gallery/quantisation.py
    tracer record examples/gallery/quantisation.py

A range of floats [low, high] is mapped to 0 .. 2^bits - 1: value = scale * (number - zero_point). A product
of two such matrices is then scale * scale times a product of whole numbers, which is what is computed here:
images, weights and what goes from layer to layer are bytes, sums are 32-bit, and between layers a
multiplication by the scale and a division by the next one bring a sum back to a byte. Ranges of what goes
between layers are measured on the training images first. 8 and 4 bits cost nothing to speak of, 3 a little,
and with 2 nearly half of the digits are wrong.

Step 0 trains and quantises; then each evaluation is a step: 1 in float32, 2 to 5 with 8, 4, 3 and 2 bits.
Look at what computes: in float32 `aten::mkldnn_convolution` and `aten::addmm`, which libraries do; in whole
numbers `aten::mm` of i32, for which PyTorch has a loop of its own and no library, with `aten::round`,
`aten::clamp` and copies between types around it. A quarter of the memory, and not faster: for that the
kernel has to be made for bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import tracer

try:
    from sklearn.datasets import load_digits
except ModuleNotFoundError:
    print("this needs the package scikit-learn: pip install scikit-learn", file=sys.stderr)
    sys.exit(3)

KERNEL, CHANNELS = 3, 16


class Net(nn.Module):
    """Images (batch, 1, 8, 8) of digits -> logits (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, CHANNELS, KERNEL)
        self.hidden = nn.Linear(CHANNELS * 3 * 3, 64)
        self.output = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.conv(x).relu(), 2)
        return self.output(self.hidden(x.flatten(1)).relu())


@dataclass(frozen=True)
class Scale:
    """How numbers 0 .. 2^bits - 1 stand for floats: value = scale * (number - zero_point)."""

    scale: float
    zero_point: int
    bits: int

    @classmethod
    def of(cls, values: Tensor, bits: int) -> Scale:
        """One that reaches from the smallest to the largest value, and has nought in it exactly."""
        low, high = min(values.min().item(), 0.0), max(values.max().item(), 0.0)
        scale = (high - low) / (2**bits - 1)
        return cls(scale, round(-low / scale), bits)

    def numbers(self, values: Tensor) -> Tensor:
        whole = torch.round(values / self.scale) + self.zero_point
        return whole.clamp(0, 2**self.bits - 1).to(torch.uint8)


class QuantisedLayer:
    """Rows of bytes (n, inputs) -> rows of bytes (n, outputs): what a layer with weights and ReLU does."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, before: Scale, after: Scale) -> None:
        weight = layer.weight.detach().flatten(1)
        scale = Scale.of(weight, before.bits)
        self.numbers = scale.numbers(weight)
        self.weight_zero = scale.zero_point
        self.before, self.after = before, after
        self.sums = before.scale * scale.scale  # what one of a sum stands for
        self.bias = torch.round(layer.bias.detach() / self.sums).to(torch.int32)

    def sum_up(self, rows: Tensor) -> Tensor:
        """Rows of bytes -> sums of 32 bits, bias included."""
        inputs = rows.to(torch.int32) - self.before.zero_point
        weights = self.numbers.to(torch.int32) - self.weight_zero
        return torch.mm(inputs, weights.t()) + self.bias

    def __call__(self, rows: Tensor) -> Tensor:
        return self.after.numbers(self.sum_up(rows).relu() * self.sums)


class QuantisedNet:
    """A trained Net in whole numbers; `images` are those on which ranges are measured."""

    def __init__(self, net: Net, images: Tensor, bits: int) -> None:
        features = net.conv(images).relu()
        hidden = net.hidden(nn.functional.max_pool2d(features, 2).flatten(1)).relu()
        scales = [Scale.of(values, bits) for values in (images, features, hidden, net.output(hidden))]
        self.images = scales[0]
        self.conv = QuantisedLayer(net.conv, scales[0], scales[1])
        self.hidden = QuantisedLayer(net.hidden, scales[1], scales[2])
        self.output = QuantisedLayer(net.output, scales[2], scales[3])

    def __call__(self, images: Tensor) -> Tensor:
        numbers = self.images.numbers(images).squeeze(1)
        patches = numbers.unfold(1, KERNEL, 1).unfold(2, KERNEL, 1)  # (n, 6, 6, 3, 3)
        features = self.conv(patches.reshape(-1, KERNEL * KERNEL))
        pooled = features.view(-1, 3, 2, 3, 2, CHANNELS).amax(dim=(2, 4))  # the largest stays the largest
        rows = pooled.permute(0, 3, 1, 2).flatten(1)
        return self.output.sum_up(self.hidden(rows))  # logits, times a number above nought

    def bytes(self) -> int:
        return sum(
            layer.numbers.nbytes + layer.bias.nbytes for layer in (self.conv, self.hidden, self.output)
        )


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, and those to test on; sklearn has the 1,797 with it."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images))
    images, labels = images[order], labels[order]
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def train(net: Net, images: Tensor, labels: Tensor) -> None:
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(10):
        for some in torch.randperm(len(images)).split(100):
            loss = nn.functional.cross_entropy(net(images[some]), labels[some])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


@torch.inference_mode()
def share_right(answer: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> float:
    """The share of images whose label has the largest logit."""
    return (answer(images).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    images, labels, test_images, test_labels = digits()
    net = Net()
    train(net, images, labels)
    size = sum(parameter.nbytes for parameter in net.parameters())
    with torch.inference_mode():
        quantised = {bits: QuantisedNet(net, images, bits) for bits in (8, 4, 3, 2)}
    tracer.step()
    right = share_right(net, test_images, test_labels)
    tracer.step()
    print(f"float32: {right:.1%} right, {size:,} bytes of weights")
    for bits, small in quantised.items():
        right = share_right(small, test_images, test_labels)
        tracer.step()
        print(f"{bits} bits:  {right:.1%} right, {small.bytes():,} bytes, each number in a byte")


if __name__ == "__main__":
    main()
