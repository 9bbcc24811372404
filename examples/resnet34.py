"""Trains ResNet-34 (He and others, 2015), written out, on images and labels made up here.

    python examples/resnet34.py --steps 2 --batch 2
    tracer record examples/resnet34.py --device cuda --images imagenet --batch 16

The small size is the one for CIFAR: images of 32 x 32, a first convolution of 3 x 3 and no pooling
after it. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # channels, blocks


@dataclass(frozen=True)
class Images:
    """`side` pixels in height and in width, of `classes` kinds."""

    side: int
    classes: int


SIZES = {"cifar": Images(32, 10), "imagenet": Images(224, 1000)}


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions around which the input is added; the first halves the image at `stride` 2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """Images (batch, 3, side, side) -> logits (batch, classes); 34 layers unless `stages` say otherwise."""

    def __init__(self, images: Images, stages: tuple[tuple[int, int], ...] = STAGES) -> None:
        super().__init__()
        width = stages[0][0]
        small = images.side < 64
        self.stem = nn.Sequential(
            nn.Conv2d(
                3, width, 3 if small else 7, stride=1 if small else 2, padding=1 if small else 3, bias=False
            ),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks = []
        for stage, (channels, count) in enumerate(stages):
            for block in range(count):
                blocks.append(BasicBlock(width, channels, stride=2 if stage and not block else 1))
                width = channels
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.output = nn.Linear(width, images.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.pool(self.blocks(self.stem(x))).flatten(1))


class Work:
    """The model, its optimiser and one batch in host memory (page-locked where a GPU is used)."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        self.device = torch.device(options.device)
        self.images = SIZES[options.images]
        layout = torch.channels_last if options.channels_last else torch.contiguous_format
        self.model = ResNet(self.images).to(self.device, memory_format=layout)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        self.bf16 = options.bf16
        pixels = torch.randn(options.batch, 3, self.images.side, self.images.side)
        pixels = pixels.contiguous(memory_format=layout)
        labels = torch.randint(self.images.classes, (options.batch,))
        on_gpu = self.device.type == "cuda"
        self.batch = (pixels.pin_memory(), labels.pin_memory()) if on_gpu else (pixels, labels)

    def precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext()

    def train_step(self) -> Tensor:
        """One step, and its loss: still a tensor, so that nothing waits for the GPU here."""
        self.model.train()
        pixels, labels = (host.to(self.device, non_blocking=True) for host in self.batch)
        with self.precision():
            loss = nn.functional.cross_entropy(self.model(pixels), labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    @torch.no_grad()
    def predict(self) -> Tensor:
        """The share of labels that the model gets right."""
        self.model.eval()
        pixels, labels = (host.to(self.device, non_blocking=True) for host in self.batch)
        with self.precision():
            return (self.model(pixels).argmax(dim=-1) == labels).float().mean()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train ResNet-34 on made-up images.")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1...")
    parser.add_argument("--images", choices=SIZES, default="cifar", help="their size and number of classes")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--predict", action="store_true", help="run the model without training it")
    parser.add_argument("--bf16", action="store_true", help="under autocast to bfloat16")
    parser.add_argument("--channels-last", action="store_true", help="images and weights in NHWC")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    work = Work(options)
    run, what = (work.predict, "right") if options.predict else (work.train_step, "loss")
    for step in range(1, options.steps + 1):
        began = time.perf_counter()
        figure = run().item()
        print(f"step {step}: {what} {figure:.3f}, {(time.perf_counter() - began) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
