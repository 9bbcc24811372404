"""What each sanitizer needs: options, the tests that run with it, and the fault that it must find.

A test is left out only for a reason that is the sanitizer's. The reason is beside its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plant:
    """A fault that is compiled into a copy of the extension.

    file      the file of csrc that is changed
    before    its text, which is there once
    after     what replaces it
    source    the file that is compiled again
    script    a Python program that meets the fault
    function  whose name the report must have
    """

    file: str
    before: str
    after: str
    source: str
    script: str
    function: str


@dataclass(frozen=True)
class Sanitizer:
    """What is loaded and set before Python starts.

    libraries   are loaded first, in this order
    options     environment variables; {log} is where reports go
    tests       files of tests/cpu
    left_out    a test, or the beginning of several tests' names, and why it cannot hold
    """

    libraries: tuple[str, ...]
    options: dict[str, str]
    tests: tuple[str, ...]
    plant: Plant
    left_out: dict[str, str] = field(default_factory=dict)
    fixed_addresses: bool = False


# A signal of the script's stays the script's, and so does its exit status.
_HANDS_OFF = "halt_on_error=0:exitcode=0:handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigfpe=0"

ADDRESS = Sanitizer(
    libraries=("libasan.so", "libstdc++.so.6"),
    options={
        # Python and torch keep memory to the end on purpose: leaks are not looked for.
        "ASAN_OPTIONS": f"{_HANDS_OFF}:detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=0:"
        "quarantine_size_mb=64:malloc_context_size=12:log_path={log}",
        "UBSAN_OPTIONS": f"{_HANDS_OFF}:print_stacktrace=1:log_path={{log}}",
        "PYTHONMALLOC": "malloc",  # so that the ends of Python's objects are watched too
    },
    tests=(
        "test_stop.py",
        "test_crash.py",
        "test_hostile.py",
        "test_file_taken.py",
        "test_ring.py",
        "test_processes.py",
        "test_modules.py",
        "test_module_calls.py",
        "test_capture.py",
        "test_programs_autograd.py",
        "test_steps_option.py",
        "test_python_stack_option.py",
    ),
    plant=Plant(
        file="dispatch/registrations.cpp",
        before="if (dispatch_key == c10::DispatchKey::EndOfFunctionalityKeys) continue;",
        after="",
        source="dispatch/registrations.cpp",
        script=("import torch, tracer\nwith tracer.record('planted.trace'):\n    torch.ones(2)\n"),
        function="keys_of_entries",
    ),
    left_out={
        "test_hostile.py::test_memory_that_cannot_be_mapped": "the sanitizer maps memory itself",
        "test_processes.py::test_fork": "a child may have the lock of the sanitizer itself",
        "test_file_taken.py::test_children_that_are_forked": (
            "the same: the child waits in SizeClassAllocator64; one of the scripts hangs without tracer too"
        ),
        "test_modules.py::test_a_new_module_at_an_old_address_has_its_own_name": "it keeps freed addresses",
        "test_ring.py::test_new_shapes_without_end_take_no_memory": "it keeps freed memory",
        "test_hostile.py::test_no_memory_to_the_end": "its own memory counts towards the limit",
        "test_hostile.py::test_without_proc": "it reads /proc itself",
    },
)

THREAD = Sanitizer(
    libraries=("libtsan.so",),
    options={
        # polars holds all locks of its allocator while it forks: more than the search for deadlocks takes.
        "TSAN_OPTIONS": f"{_HANDS_OFF}:report_signal_unsafe=0:history_size=4:die_after_fork=0:"
        "detect_deadlocks=0:ignore_noninstrumented_modules=1:log_path={log}",
        "_RJEM_MALLOC_CONF": "background_thread:false",  # its thread begins past the sanitizer
    },
    tests=("test_stop.py", "test_ring.py", "test_capture.py", "test_steps_option.py"),
    plant=Plant(
        file="trace/lane.h",
        before="operator T() const { return value_.load(std::memory_order_relaxed); }",
        after="operator T() const { return *reinterpret_cast<const T*>(&value_); }",
        source="trace/lane.cpp",  # which reads how far the other threads have written
        script=(
            "import threading, time, torch, tracer\n"
            "ended = False\n"
            "def work():\n"
            "    rows = torch.ones(200, 200)\n"
            "    while not ended:\n        rows @ rows\n"
            "threads = [threading.Thread(target=work) for _ in range(3)]\n"
            "for thread in threads: thread.start()\n"
            "for turn in range(5):\n"
            "    with tracer.record(f'planted.{turn}.trace'):\n        time.sleep(0.3)\n"
            "ended = True\n"
            "for thread in threads: thread.join()\n"
        ),
        function="finish_lane",
    ),
    fixed_addresses=True,
)

SANITIZERS = {"address": ADDRESS, "thread": THREAD}
