"""What a recording records."""

from __future__ import annotations

from tracer.base.errors import RecordingError

CUDA = ("auto", "on", "off")
DRIVER = ("launches", "all", "none")
MOST_LINES = 64  # of a Python stack

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SMALLEST_RING = 16 << 20
SMALLEST_FILE = 4 << 20

TYPE_CHECKING = False  # `dataclasses` would be imported before the script is
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any


class Options:
    """Checked options; the fields are those of `tracer.record`.

    shapes  record shapes, strides, dtypes and devices of tensor arguments
    source  record the Python source line of op calls
    stack   how many lines of the Python stack are recorded, innermost first: 1 to 64
    modules record which nn.Module was being called
    cuda    record CUDA calls and GPU activities: "auto" where it can be done, "on" (else an error),
            "off"
    driver  CUDA driver calls that no runtime call encloses: "launches" (those that run, copy, fill,
            allocate, load or wait), "all" (and the enclosed ones too), "none"
    ops     patterns of operators, as `aten::*mm*`; only those are hooked. Empty: all
    override   overrides that are on while it is recorded, as tracer.overrides.use takes them
    steps   only these steps, as a slice: "3:6" (3, 4 and 5), "3:", ":6", "3"; counted from 0. None: all
    max_size   of the file, in bytes or as "256M": the newest hops then take the place of the oldest
            (a ring). None: as large as it gets
    then_stop  stop where max_size is reached; the oldest hops are kept

    Raises RecordingError for any other value.
    """

    def __init__(
        self,
        *,
        shapes: bool = True,
        source: bool = True,
        stack: int = 1,
        modules: bool = True,
        cuda: str = "auto",
        driver: str = "launches",
        ops: Iterable[str] = (),
        override: Iterable[str] = (),
        steps: str | Sequence[int | None] | None = None,
        max_size: int | str | None = None,
        then_stop: bool = False,
    ) -> None:
        for name, value, known in (("cuda", cuda, CUDA), ("driver", driver, DRIVER)):
            if value not in known:
                raise RecordingError(f"{name} is one of {', '.join(known)}, not {value!r}")
        if not isinstance(stack, int) or not 1 <= stack <= MOST_LINES:
            raise RecordingError(f"stack is a number of lines from 1 to {MOST_LINES}, not {stack!r}")
        if stack > 1 and not source:
            raise RecordingError("a stack is made of source lines; leave --no-source out, or --stack")
        self.shapes = shapes
        self.source = source
        self.stack = stack
        self.modules = modules
        self.cuda = cuda
        self.driver = driver
        self.ops = [ops] if isinstance(ops, str) else list(ops)
        for pattern in self.ops:
            if not isinstance(pattern, str) or not pattern:
                raise RecordingError(f"{pattern!r} is no pattern of operators; give one such as 'aten::*mm*'")
        self.override = [override] if isinstance(override, str) else list(override)
        self.steps = _steps(steps)
        self.max_size = _bytes(max_size)
        self.then_stop = then_stop
        if then_stop and self.max_size is None:
            raise RecordingError("then-stop says what happens at max-size; give a max-size too")
        smallest = SMALLEST_FILE if then_stop else SMALLEST_RING
        if self.max_size is not None and self.max_size < smallest:
            raise RecordingError(f"max-size {max_size} is too small: at least {smallest >> 20}M")

    @property
    def is_ring(self) -> bool:
        """Whether the newest hops take the place of the oldest."""
        return self.max_size is not None and not self.then_stop

    def document(self) -> dict[str, object]:
        """As they stand in a request and in the environment of a trace."""
        return dict(vars(self))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Options:
        """The options in a request to record or to join."""
        return cls(**{name: document[name] for name in vars(cls()) if name in document})


def _steps(given: str | Sequence[int | None] | None) -> tuple[int, int | None] | None:
    """The first step and the one after the last (None: no end), of "3:6", "3:", ":6", "3" or two numbers."""
    if given is None:
        return None
    if isinstance(given, str):
        first, colon, end = given.partition(":")
        ends = [first or "0", end or None] if colon else [first, None]
        good = all(number is None or (number.isascii() and number.isdigit()) for number in ends)
        numbers = [number if number is None else int(number) for number in ends] if good else []
        if numbers and not colon:
            numbers[1] = numbers[0] + 1  # type: ignore[operator]
    else:
        numbers = list(given)
    if len(numbers) != 2 or numbers[0] is None or (numbers[1] is not None and numbers[1] <= numbers[0]):
        raise RecordingError(f"steps are given as 3:6 (that is 3, 4 and 5), 3:, :6 or 3, not as {given!r}")
    return numbers[0], numbers[1]


def _bytes(given: int | str | None) -> int | None:
    """Bytes of "256M", "1.5G" or a number."""
    if given is None or isinstance(given, int):
        return given
    text = given.strip().upper().removesuffix("B").removesuffix("I")
    unit = _UNITS.get(text[-1:], 1)
    try:
        return int(float(text[:-1] if unit > 1 else text) * unit)
    except (ValueError, OverflowError):
        raise RecordingError(f"{given!r} is no size; give one such as 256M or 1G") from None
