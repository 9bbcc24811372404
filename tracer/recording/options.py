"""The options of a recording."""

from __future__ import annotations

from tracer.base.errors import RecordingError

CUDA = ("auto", "on", "off")
DRIVER = ("launches", "all", "none")
VALUES = ("none", "hash", "scalars", "all")
MOST_LINES = 64  # of a Python stack
MOST_DUMPS = 1000  # that a process keeps, as kMostKept in csrc/trace/kept_dumps.h
DUMPS = 5

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
    torch_frames   with stack, keep the lines of torch itself in the stack
    memory  record each block of memory that torch's allocators give out and take back
    values  "hash": record a hash of the values that each op call returns, on the CPU, and whether there is a
            NaN; "scalars": record arguments that are no tensors (numbers, lists, flags); "all": both
    why     record the dispatch keys that threads include and exclude, and who asked for them
    modules record which nn.Module was being called
    cuda    record CUDA calls and GPU activities: "auto" (if possible), "on" (an error if not), "off"
    driver  CUDA driver calls to record: "launches" (those that run, copy, fill, allocate, load or wait,
            and that no runtime call encloses), "all" (every one), "none"
    ops     patterns of operators, e.g. `aten::*mm*`; only these are hooked. Empty: all
    override   overrides to enable during the recording, as tracer.overrides.use takes them
    steps   only these steps, as a slice: "3:6" (3, 4 and 5), "3:", ":6", "3"; counted from 0. None: all
    max_size   limit of the file, in bytes or as "256M": new hops overwrite the oldest (a ring).
            None: no limit
    then_stop  stop when max_size is reached, and keep the oldest hops
    max_dumps  how many dumps a process keeps: its first one and the newest ones. 0: all

    Raises RecordingError for any other value.
    """

    def __init__(
        self,
        *,
        shapes: bool = True,
        source: bool = True,
        stack: int = 1,
        torch_frames: bool = False,
        modules: bool = True,
        memory: bool = False,
        why: bool = False,
        values: str = "none",
        cuda: str = "auto",
        driver: str = "launches",
        ops: Iterable[str] = (),
        override: Iterable[str] = (),
        steps: str | Sequence[int | None] | None = None,
        max_size: int | str | None = None,
        then_stop: bool = False,
        max_dumps: int = DUMPS,
    ) -> None:
        for name, value, known in (
            ("cuda", cuda, CUDA),
            ("driver", driver, DRIVER),
            ("values", values, VALUES),
        ):
            if value not in known:
                raise RecordingError(f"{name}={value!r}: choose {', '.join(known[:-1])} or {known[-1]}")
        if not isinstance(stack, int) or not 1 <= stack <= MOST_LINES:
            raise RecordingError(f"stack={stack!r}: give a number of lines from 1 to {MOST_LINES}")
        if stack > 1 and not source:
            raise RecordingError("--stack needs source lines; remove --no-source or --stack")
        if torch_frames and stack == 1:
            raise RecordingError("--torch-frames needs stacks; add --stack N, e.g. --stack 16")
        if isinstance(max_dumps, bool) or not isinstance(max_dumps, int) or not 0 <= max_dumps <= MOST_DUMPS:
            raise RecordingError(
                f"max_dumps={max_dumps!r}: give a number from 1 to {MOST_DUMPS}, or 0 for all"
            )
        self.shapes = shapes
        self.source = source
        self.stack = stack
        self.torch_frames = torch_frames
        self.modules = modules
        self.memory = memory
        self.why = why
        self.values = values
        self.cuda = cuda
        self.driver = driver
        self.ops = [ops] if isinstance(ops, str) else list(ops)
        for pattern in self.ops:
            if not isinstance(pattern, str) or not pattern:
                raise RecordingError(f"ops={pattern!r}: give a pattern of operator names, e.g. 'aten::*mm*'")
        self.override = [override] if isinstance(override, str) else list(override)
        self.steps = _steps(steps)
        self.max_size = _bytes(max_size)
        self.then_stop = then_stop
        self.max_dumps = max_dumps
        if then_stop and self.max_size is None:
            raise RecordingError("then-stop needs a max-size; give one, e.g. 256M")
        smallest = SMALLEST_FILE if then_stop else SMALLEST_RING
        if self.max_size is not None and self.max_size < smallest:
            raise RecordingError(f"max-size {max_size} is too small; give at least {smallest >> 20}M")

    @property
    def is_ring(self) -> bool:
        """Whether new hops overwrite the oldest ones."""
        return self.max_size is not None and not self.then_stop

    def document(self) -> dict[str, object]:
        """The options as a request and the environment of a trace hold them."""
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
        raise RecordingError(f"steps={given!r}: give 3:6 (that is 3, 4 and 5), 3:, :6 or 3")
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
        raise RecordingError(f"max-size {given!r} is not a size; give e.g. 256M or 1G") from None
