"""The options of a recording, in one table: `Options`, both commands and docs/record.md follow it."""

from __future__ import annotations

from tracer.base.errors import RecordingError
from tracer.base.numerals import number_of

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SMALLEST_RING = 16 << 20
SMALLEST_FILE = 4 << 20

TYPE_CHECKING = False  # `dataclasses` would be imported before the script is
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any


class Option:
    """A row of the table, which is the body of `Options`.

    default  also says the type: a flag, a number, one of `choices`, or names that can be given several times
    text     for help and for the table of docs/record.md
    metavar  the value in help; of choices, the choices
    choices  the values that it takes
    span     the least and the most of a number, and what to say of another one
    check    makes the field of what was given, or raises RecordingError
    more     what only docs/record.md has: links
    rare     whether help has it only with --help-all
    where    who takes it: `tracer record`, `tracer attach`, tracer.record
    """

    __slots__ = ("check", "choices", "default", "metavar", "more", "name", "rare", "span", "text", "where")

    def __init__(
        self,
        default: object,
        text: str,
        *,
        metavar: str = "",
        choices: Sequence[str] = (),
        span: tuple[int, int, str] | None = None,
        check: Callable[[Any], object] | None = None,
        more: str = "",
        rare: bool = False,
        where: Sequence[str] = ("record", "attach", "python"),
    ) -> None:
        self.name = ""
        self.default, self.text, self.choices, self.span = default, text, choices, span
        self.metavar = metavar or "|".join(choices)
        self.check, self.more, self.rare, self.where = check, more, rare, where

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def checked(self, value: Any) -> object:
        """The field of a value that was given. Raises RecordingError."""
        wrong = f"{self.name}={value!r}:"
        if self.choices and value not in self.choices:
            raise RecordingError(f"{wrong} choose {', '.join(self.choices[:-1])} or {self.choices[-1]}")
        if self.span is not None:
            least, most, said = self.span
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise RecordingError(f"{wrong} give {said}")
        return value if self.check is None else self.check(value)


def _names(given: Iterable[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _patterns(given: Iterable[str] | None) -> list[str]:
    for pattern in (patterns := _names(given)):
        if not isinstance(pattern, str) or not pattern:
            raise RecordingError(f"ops={pattern!r}: give a pattern of operator names, e.g. 'aten::*mm*'")
    return patterns


def _steps(given: str | Sequence[int | None] | None) -> tuple[int, int | None] | None:
    """The first step and the one after the last (None: no end), of "3:6", "3:", ":6", "3" or two numbers."""
    if given is None:
        return None
    if isinstance(given, str):
        first, colon, end = given.partition(":")
        ends = [first or "0", end or None] if colon else [first, None]
        numbers = [number if number is None else number_of(number) for number in ends]
        good = all((number is None) == (end is None) for number, end in zip(numbers, ends, strict=True))
        numbers = numbers if good else []
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


def _option(default: object, text: str, **more: Any) -> Any:
    return Option(default, text, **more)


class Options:
    """Checked options of a recording. Raises RecordingError for a value that an option does not take."""

    shapes: bool = _option(True, "Leave out shapes and dtypes.", rare=True)
    source: bool = _option(True, "Leave out Python lines.", rare=True)
    stack: int = _option(
        1,
        "Record the N innermost Python frames.",
        metavar="N",
        span=(1, 64, "a number of lines from 1 to 64"),
        more="[below](#--stack-n)",
    )
    torch_frames: bool = _option(False, "With --stack: keep frames of torch itself.", rare=True)
    modules: bool = _option(
        True,
        "Leave out the nn.Module of each op.",
        rare=True,
        more="[below](#which-module-and-whose-call-module-and---stack)",
    )
    memory: bool = _option(
        False,
        "Record each block that torch allocates or frees.",
        more="[tree.md](tree.md#which-lines-use-the-memory-tracer-memory)",
    )
    why: bool = _option(
        False,
        "Record each thread's keys, for explain --hop.",
        more="[explain.md](explain.md#why-this-kernel---hop)",
    )
    values: str = _option(
        "none",
        "hash: store a hash of each result, for tracer diff (CPU). scalars: store numbers, flags and lists, "
        "for tracer replay. all: both.",
        choices=("none", "hash", "scalars", "all"),
        more="[below](#values)",
    )
    ops: list[str] = _option(
        (),
        "Record only these operators: 'aten::*mm*'. Repeatable.",
        metavar="PATTERN",
        check=_patterns,
        more="[below](#fewer-operators)",
    )
    steps: tuple[int, int | None] | None = _option(
        None,
        "Record only these steps: 3:6 is 3, 4 and 5.",
        more="[below](#some-steps)",
        metavar="FIRST:END",
        check=_steps,
        where=("record", "python"),
    )
    max_size: int | None = _option(
        None,
        "Limit the file (256M): new hops overwrite the oldest.",
        metavar="SIZE",
        check=_bytes,
        more="[below](#a-largest-size)",
    )
    then_stop: bool = _option(False, "At --max-size stop, and keep the oldest hops.", rare=True)
    max_dumps: int = _option(  # 1000 is kMostKept in csrc/trace/kept_dumps.h
        5,
        "Keep N dumps (what kill -USR2 writes of a ring): the first and the newest. 0: all.",
        rare=True,
        metavar="N",
        span=(0, 1000, "a number from 1 to 1000, or 0 for all"),
        more="[below](#a-flight-recorder)",
    )
    override: list[str] = _option(
        (),
        "Use these kernels in place of PyTorch's: mm,gru,cat, module:function, file.py:function.",
        metavar="NAMES",
        check=_names,
        more="[overrides.md](overrides.md)",
        where=("record",),
    )
    cuda: str = _option(
        "auto",
        "Record CUDA calls and GPU work. auto: if possible. on: stop with an error if not. off: hops only.",
        choices=("auto", "on", "off"),
        more="[cuda.md](cuda.md)",
    )
    driver: str = _option(
        "launches",
        "CUDA driver calls to record. launches: those that start work and that no runtime call made. "
        "all. none.",
        rare=True,
        choices=("launches", "all", "none"),
        more="[cuda.md](cuda.md#who-writes-what)",
    )
    queries: str = _option(
        "all",
        "Calls of cudaGetDevice and cudaGetLastError to record. all: every one. "
        "torch: those that PyTorch's own libraries make, which costs less; others are missing.",
        rare=True,
        choices=("all", "torch"),
        more="[cuda.md](cuda.md#what-it-costs)",
    )

    def __init__(self, **given: Any) -> None:
        if unknown := given.keys() - TABLE.keys():
            raise TypeError(f"a recording has no option {min(unknown)}")
        for name, option in TABLE.items():
            setattr(self, name, option.checked(given.get(name, option.default)))
        if self.stack > 1 and not self.source:
            raise RecordingError("--stack needs source lines; remove --no-source or --stack")
        if self.torch_frames and self.stack == 1:
            raise RecordingError("--torch-frames needs stacks; add --stack N, e.g. --stack 16")
        if self.then_stop and self.max_size is None:
            raise RecordingError("then-stop needs a max-size; give one, e.g. 256M")
        smallest = SMALLEST_FILE if self.then_stop else SMALLEST_RING
        if self.max_size is not None and self.max_size < smallest:
            raise RecordingError(
                f"max-size {given['max_size']} is too small; give at least {smallest >> 20}M"
            )

    @property
    def is_ring(self) -> bool:
        """Whether new hops overwrite the oldest ones."""
        return self.max_size is not None and not self.then_stop

    def document(self) -> dict[str, object]:
        """The options as a request and the environment of a trace hold them."""
        return dict(vars(self))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Options:
        """The options among other values, e.g. in a request to record or to join."""
        return cls(**{name: document[name] for name in TABLE if name in document})


TABLE: dict[str, Option] = {
    name: option for name, option in vars(Options).items() if isinstance(option, Option)
}


def options_of(who: str) -> Iterator[Option]:
    """The options that `tracer record` ("record"), `tracer attach` or tracer.record ("python") takes."""
    return (option for option in TABLE.values() if who in option.where)
