"""ResNet-18 and ResNet-34, as they are for images of ImageNet, on the CPU and on a GPU if there is one.

    python examples/gallery/resnets.py
    tracer record examples/gallery/resnets.py

The two differ in how many blocks each of four stages has, and in nothing else. Numbers of parameters are
those of the paper's nets: 11,689,512 and 21,797,672. If there is a GPU, the answers of both devices agree,
up to the TF32 products of the GPU.

Look at the two tables of one answer's ops (if the report has a section Ops, that also counts the making of
the nets): 20 and 36 convolutions (16 or 32 in the blocks, 3 in the shortcuts that halve the image, and the
first), and as many batch normalisations. All convolutions take one path: `aten::conv2d`, `aten::convolution`,
`aten::_convolution`, and below that `aten::mkldnn_convolution` on a CPU or `aten::cudnn_convolution` on a
GPU. On a CPU most of an answer's time is in that one op. ResNet-18 answers first, so its table includes the
cost of first calls.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

import tracer

sys.path.append(str(Path(__file__).resolve().parent.parent))
from resnet34 import SIZES, ResNet

BLOCKS = {"ResNet-18": (2, 2, 2, 2), "ResNet-34": (3, 4, 6, 3)}  # of each stage
CHANNELS = (64, 128, 256, 512)


def answer(model: ResNet, images: Tensor, device: str) -> Tensor:
    model, images = model.to(device), images.to(device)
    with torch.inference_mode():
        return model(images).softmax(dim=-1).cpu()


def main() -> None:
    torch.manual_seed(0)
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    images = torch.randn(1, 3, 224, 224)
    for name, blocks in BLOCKS.items():
        model = ResNet(SIZES["imagenet"], tuple(zip(CHANNELS, blocks, strict=True))).eval()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        convolutions = sum(isinstance(module, torch.nn.Conv2d) for module in model.modules())
        print(f"{name}: {convolutions} convolutions, {parameters:,} parameters")
        tracer.step()  # ends what came before: making the net, step 0 and 2
        answers = [answer(model, images, device) for device in devices]
        tracer.step()  # ends the answers: step 1 and 3
        for device, probabilities in zip(devices, answers, strict=True):
            best = probabilities.max(dim=-1)
            print(f"  {device}: class {best.indices.item()} with probability {best.values.item():.4f}")
        assert all(torch.allclose(each, answers[0], atol=0.05) for each in answers)


if __name__ == "__main__":
    main()
