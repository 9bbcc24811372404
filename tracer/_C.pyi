"""Capture of dispatcher hops into a trace file."""

from collections.abc import Callable, Sequence
from typing import TypedDict

class Entry(TypedDict):
    op: str
    key: str
    why: str

class Arming(TypedDict):
    entries: int
    hooked: int
    operators: int
    seconds: float

class Certificate(TypedDict):
    entries: int
    hooked: int
    not_hooked: list[Entry]
    rearmed: int
    lost_entries: list[Entry]
    other_signatures: list[str]
    lost_hops: int
    call_sites: bool
    compiled_calls: int
    memory: dict[str, bool]
    source_lines: bool
    modules: bool
    greenlets_lost: bool
    guards: dict[str, bool]
    out_of_space: str | None
    full: bool

class Enums(TypedDict):
    num_backends: int
    included_by_default: int
    excluded_by_default: int
    keys: list[str | list[str]]
    dtypes: dict[str, str]
    device_types: dict[str, str]
    layouts: dict[str, str]

class Library(TypedDict):
    path: str
    base: int
    end: int
    build_id: str

class Closed(TypedDict):
    path: str
    gone: str
    damaged: bool
    """`moved or removed`, `replaced by another recording`... : why nothing was counted; empty: it was"""
    bytes: int
    hops: int
    op_calls: int
    threads: int
    processes: int
    open_hops: int
    api_calls: int
    activities: int
    full: bool
    max_size: int
    lost_hops: int
    overwritten_hops: int
    overwritten_calls: int
    overwritten_activities: int
    other_definitions: int
    damaged_chunks: int
    compiled_code: bool
    not_joined: bool
    replaced: int
    still_running: int
    not_stopped: int
    error: str | None

def create(
    path: str,
    session: int,
    shapes: bool,
    source: bool,
    max_bytes: int = 0,
    ring: bool = False,
    replace: bool = False,
    why: bool = False,
    values: bool = False,
    scalars: bool = False,
) -> None:
    """Begin the file of a recording, which is empty or not there.

    With `replace` the file that is there stays as it is until `take_place`. Raises RuntimeError if this
    process is recording, BlockingIOError if another recording writes the file, and other OSErrors.

    `max_bytes`: the largest size, 0: none; at it the newest hops take the place of the oldest (`ring`), or
    the recording stops. `why`: record what threads add to dispatch keys; `values`: hashes of results;
    `scalars`: arguments that are no tensors.
    """

def take_place() -> None:
    """The recording has begun: from now on its file is at its path. Raises OSError."""

def join(path: str, session: int, closes: bool = False) -> bool:
    """Open the file of another process's recording; False where that has ended.

    `closes`: this process began that recording, as another program, and ends it.
    """

def arm(operators: Sequence[str] = ...) -> Arming:
    """Hook every table entry of the operators that one of the patterns matches; no pattern: of all."""

def start(runs_ops: bool = True) -> None:
    """Begin to write. Raises RuntimeError where no recording is open, as all that write do.

    `runs_ops`: the calling thread will run ops, so its first chunk is made ready now.
    """

def pause() -> None: ...
def resume() -> None:
    """Go on writing after a pause."""

def stop() -> None:
    """Write no more; close the chunks of all threads."""

def restore() -> None:
    """Put every table entry back as it was found."""

def certificate() -> Certificate:
    """Compare all entries with what `arm` left there."""

def enums() -> Enums:
    """Numbers of this torch: dispatch keys by bit, dtypes, device types, layouts."""

def libraries() -> list[Library]:
    """The shared libraries that are loaded, with their addresses."""

def runs_code_of(file: str) -> bool | None:
    """Whether a thread is in a function of the file, or in one that it called. None: unknown."""

def forget_lines() -> None:
    """Begin to note lines anew."""

def seen_lines() -> list[tuple[str, int]]:
    """File and number of each Python line that the recording has named; at most some thousands."""

def write_json(kind: str, compressed: bytes) -> None:
    """Put a document into the trace, JSON compressed with zlib."""

def hide_sources(folders: Sequence[str], library: str) -> None:
    """Code in these folders is never named as the source line."""

def set_stack_lines(lines: int, of_torch: bool) -> None:
    """How many lines of Python are recorded for an outermost op call: 1 to 64."""

def follow_modules(module_class: type | None) -> None:
    """Record in which module (`torch.nn.Module`) op calls run, until `stop`. None: do not."""

def follow_compiled(
    note: bytes,
    describe: Callable[[object], int] | None,
    imported: Callable[[str], object] | None,
    modules: Sequence[str],
) -> None:
    """Record the calls of code that torch.compile and AOTInductor made, until `stop`.

    The first call of a recording writes `note`, a compressed document, into the trace.
    `describe` gets what is called, once a recording, and returns its number in the trace (0: none).
    `imported` gets the name of each of `modules` when it has been imported. Their errors are dropped.
    """

def forget_compiled(address: int) -> None:
    """Compiled code at this address is gone: what is there next has another number."""

def follow_kernel(kernel: object, name: str) -> bool:
    """Record the calls of a function of C that Inductor made, until `stop`. False: it cannot be followed."""

def enter_range(name: str) -> int:
    """Begin a range of tracer's own; returns what `leave_range` needs (0: nothing is recorded)."""

def enter_paused_call() -> int:
    """Begin a range for the call of compiled code that this thread entered in a pause; as `enter_range`."""

def leave_range(entered: int) -> None:
    """End a range of tracer's own."""

def follow_allocations(wanted: bool) -> None:
    """Record the blocks of memory that torch's allocators give out and take back, or no longer."""

def follow_starts(libraries: Sequence[str]) -> None:
    """Count from now on the Pythons that cannot join: that Python itself or these libraries' files start."""

def starts_not_joined() -> int:
    """How many of them this process and its forked children have started."""

def own_cost() -> dict[str, object]:
    """What recording hops costs: as timed in the program, and in a loop that runs now. Once, after `stop`."""

def close(process_ends: bool = False) -> Closed:
    """Close the file; in the process that made it also trim it.

    If the process ends, SIGUSR2 does nothing from now on.
    """

def dump(path: str) -> str:
    """Copy the running recording to `path`, where nothing is yet; "": beside it, numbered. Returns the path.

    Raises OSError; RuntimeError where nothing is recorded.
    """

def keep_dumps(most: int) -> None:
    """How many numbered dumps this process keeps, the first and the newest ones; 0: all."""

def dump_on_signal() -> bool:
    """Let SIGUSR2 dump, until the recording is closed. False: somebody else has claimed the signal."""

def recording() -> str | None:
    """The path of the recording that is open."""

def cuda_is_built() -> bool: ...
def begin_cuda(wanted: bool, driver: str, queries: str, injection: str, unusable: str, quiet: bool) -> None:
    """Record CUDA from its initialisation on, or now; `injection` is the library that CUDA loads then.

    `quiet`: why it cannot be recorded is not written to stderr, only into `cuda_statement()`.
    """

def end_cuda() -> None: ...
def cuda_statement() -> dict[str, object]:
    """What was captured of CUDA, or why nothing: the key `cuda` of the certificate."""

def step(steps: int) -> None:
    """Say that step number `steps` has ended."""
