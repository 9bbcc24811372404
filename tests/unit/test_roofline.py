"""The roofline names its points, has every roof of the device, and fits what it draws."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import gpu_trace
import pytest

from tracer.report.kernel_tables import KernelTables
from tracer.report.reading import Peaks, Reading
from tracer.report.roofline import Label, Roofline, rooflines
from tracer.report.svg.roofline import roofline_body
from tracer.trace import Trace, load

RESNET = Path(__file__).parents[2] / "reports" / "traces" / "resnet34.trace.xz"
LETTER, ABOVE, BELOW = 6.9, 9, 2  # pixels, of DejaVu Sans at 11 pixels


def roofline_of(trace: Trace, peaks: Peaks | None = None) -> Roofline:
    (drawn,) = rooflines(KernelTables.of(Reading(trace, "t", peaks=peaks or Peaks())))
    return drawn


@pytest.fixture(scope="module")
def resnet() -> Trace:
    return load(RESNET)


@pytest.fixture(scope="module", params=["resnet", "gpu"])
def drawn(request: pytest.FixtureRequest, resnet: Trace) -> Roofline:
    return roofline_of(resnet if request.param == "resnet" else load(gpu_trace.PATH))


def box(label: Label) -> tuple[float, float, float, float]:
    width = LETTER * len(label.text)
    left = label.x - width * {"start": 0, "middle": 0.5, "end": 1}[label.anchor]
    return left, label.y - ABOVE, left + width, label.y + BELOW


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def through(label: Label, line: tuple[float, float, float, float]) -> bool:
    """Whether a line passes through a label: at one of a thousand places on it."""
    left, top, right, bottom = box(label)
    x1, y1, x2, y2 = line
    places = [(x1 + (x2 - x1) * part / 1000, y1 + (y2 - y1) * part / 1000) for part in range(1001)]
    return any(left < x < right and top < y < bottom for x, y in places)


def test_points_with_the_most_time_have_names_that_nothing_covers(drawn: Roofline) -> None:
    assert len(drawn.labels) >= 10
    names = [label.text for label in drawn.labels]
    assert len(set(names)) == len(names)
    assert {drawn.points[0].short, drawn.points[1].short} & set(names)
    for one, other in combinations(drawn.labels, 2):
        assert not overlap(box(one), box(other)), (one.text, other.text)
    roofs = [(roof.x1, roof.y1, roof.x2, roof.y2) for roof in drawn.roofs]
    for label in drawn.labels:
        left, top, right, bottom = box(label)
        assert drawn.left <= left
        assert right <= drawn.right
        assert drawn.top <= top
        assert bottom <= drawn.bottom
        assert not any(overlap(box(label), (p.x, p.y, p.x, p.y)) for p in drawn.points), label.text
        leaders = [other.leader for other in drawn.labels if other.far and other is not label]
        assert not any(through(label, line) for line in [*roofs, *leaders]), label.text


def test_every_roof_of_the_device_is_drawn_and_said(drawn: Roofline) -> None:
    (limits,) = KernelTables.of(Reading(load(gpu_trace.PATH), "t")).survey.limits.values()
    texts = [roof.text for roof in drawn.roofs]
    assert texts[0] == "memory 4.81 TB/s"
    assert {text.rsplit(" ", 2)[0] for text in texts[1:]} == set(limits.flops_per_s)
    places = sorted(roof.text_y for roof in drawn.roofs[1:])
    assert min(later - earlier for earlier, later in pairwise(places)) >= 11
    slope = drawn.roofs[0]
    assert slope.y2 == min(roof.y1 for roof in drawn.roofs[1:]), "up to the highest roof"
    body = roofline_body(drawn)
    assert all(text in body for text in texts)


def test_roofs_that_no_kernel_computes_under_are_dashed(resnet: Trace) -> None:
    used = {roof.text.rsplit(" ", 2)[0]: roof.used for roof in roofline_of(resnet).roofs[1:]}
    assert used["TF32 tensor"]
    assert not used["8-bit tensor"]
    assert 'class="roof unused"' in roofline_body(roofline_of(resnet))


def test_what_the_user_measured_is_one_roof(resnet: Trace) -> None:
    drawn = roofline_of(resnet, Peaks(bandwidth=4e12, flops=4e14))
    assert [roof.text for roof in drawn.roofs] == ["memory 4 TB/s", "measured 400 TFLOP/s"]
    assert drawn.roofs[1].used


def test_the_axes_end_where_points_and_roofs_do(drawn: Roofline) -> None:
    ends = [point.x for point in drawn.points] + [roof.x1 for roof in drawn.roofs[1:]]
    whole = drawn.right - drawn.left
    assert min(ends) - drawn.left < 0.1 * whole
    assert drawn.right - max(ends) < 0.1 * whole
    heights = [point.y for point in drawn.points] + [roof.y1 for roof in drawn.roofs[1:]]
    assert min(heights) - drawn.top < 0.1 * (drawn.bottom - drawn.top)
    assert drawn.bottom - max(heights) < 0.1 * (drawn.bottom - drawn.top)
    assert whole > 0.75 * drawn.width
    assert len(drawn.x_ticks) >= 3
