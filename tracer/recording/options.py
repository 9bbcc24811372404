"""What a recording records."""

from __future__ import annotations

from tracer.recording.errors import RecordingError

CUDA = ("auto", "on", "off")
DRIVER = ("launches", "all", "none")

TYPE_CHECKING = False  # `dataclasses` would be imported before the script is
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


class Options:
    """Checked options; the fields are those of `tracer.record`.

    shapes  record shapes, strides, dtypes and devices of tensor arguments
    source  record the Python source line of op calls
    cuda    record CUDA calls and GPU activities: "auto" where it can be done, "on" (else an error),
            "off"
    driver  CUDA driver calls that no runtime call encloses: "launches" (those that run, copy, fill,
            allocate, load or wait), "all" (and the enclosed ones too), "none"
    ops     patterns of operators, as `aten::*mm*`; only those are hooked. Empty: all

    Raises RecordingError for any other value.
    """

    def __init__(
        self,
        *,
        shapes: bool = True,
        source: bool = True,
        cuda: str = "auto",
        driver: str = "launches",
        ops: Iterable[str] = (),
    ) -> None:
        for name, value, known in (("cuda", cuda, CUDA), ("driver", driver, DRIVER)):
            if value not in known:
                raise RecordingError(f"{name} is one of {', '.join(known)}, not {value!r}")
        self.shapes = shapes
        self.source = source
        self.cuda = cuda
        self.driver = driver
        self.ops = [ops] if isinstance(ops, str) else list(ops)
        for pattern in self.ops:
            if not isinstance(pattern, str) or not pattern:
                raise RecordingError(f"{pattern!r} is no pattern of operators; give one such as 'aten::*mm*'")

    def document(self) -> dict[str, object]:
        """As they stand in a request and in the environment of a trace."""
        return dict(vars(self))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Options:
        """The options in a request to record or to join."""
        return cls(**{name: document[name] for name in vars(cls()) if name in document})
