"""Colours of phases, and of what became slower or faster, can be told apart, also by the colour-blind."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from tracer.report.html.document import asset

PHASES = ("forward", "backward", "optimizer", "data", "communication", "compile", "waiting", "outside")
CHANGES = ("slower", "faster", "longer", "shorter", "same")
# What is seen of linear RGB without one kind of cone: Machado, Oliveira and Fernandes, 2009.
SEEN = {
    "all cones": np.eye(3),
    "no long waves": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no middle waves": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no short waves": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(axis=1)
LEAST = 12
"""CIE76; about 2 is a difference that is just seen"""


def colours(scheme: str) -> dict[str, str]:
    """Of the light page, or of the dark one: what its rules set last."""
    rules = re.findall(r"--(\w+): (#\w{6})", asset("page.css"))
    found: dict[str, list[str]] = {}
    for name, colour in rules:
        found.setdefault(name, []).append(colour)
    return {name: of_both[0 if scheme == "light" else -1] for name, of_both in found.items()}


def lab(colour: str, seen: object) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(TO_XYZ @ np.clip(np.asarray(seen) @ linear, 0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("names", [PHASES, CHANGES], ids=["phases", "changes"])
def test_any_two_differ(names: tuple[str, ...], scheme: str, eyes: str) -> None:
    places = {name: lab(colour, SEEN[eyes]) for name, colour in colours(scheme).items()}
    for one, other in combinations(names, 2):
        assert np.linalg.norm(places[one] - places[other]) > LEAST, (one, other)
