"""Builds a debug overlay: the dispatch code of a few operators at -O0 -g, to preload into a release torch.

An overlay is one shared library. Its exported functions (`at::_ops::mm::call`) take the place of those in
libtorch_cpu, and its kernels are registered again with the dispatcher; both do what the release code does.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracer.debugger import overlay_sources, trampolines
from tracer.debugger.errors import DebuggerError
from tracer.debugger.overlay_sources import Source
from tracer.debugger.target import Target
from tracer.trace.symbols import build_id

_LIBRARY = "overlay.so"
_GENERATED = "generated"
_BUILDING = ".building-"
_MISSING = re.compile(r"undefined (?:reference to|symbol:) [`']?([\w.$]+)")
_POLL = 0.05  # seconds between looks at running compilers

# The dispatcher warns of every kernel that is registered twice, as all of an overlay's are. That one message
# is dropped while the overlay registers. warnAlways keeps the dispatcher's own once-flag untouched: a script
# that overrides a kernel is warned as ever. Processes that Python starts run without the overlay, as a shell
# that starts Python does not.
_FIRST = """
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <cstdlib>
#include <cstring>
#include <string>
namespace {
class Filter final : public c10::WarningHandler {
 public:
  c10::WarningHandler* next = nullptr;
  bool always = false;
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Overriding a previously registered kernel") == std::string::npos) {
      next->process(warning);
    }
  }
};
Filter& filter() { static auto* one = new Filter; return *one; }
void leave_environment() {
  Dl_info own;
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (!preloaded || !dlsym(RTLD_DEFAULT, "Py_IsInitialized")) return;
  if (!dladdr(reinterpret_cast<void*>(&leave_environment), &own)) return;
  std::string rest;
  std::string list = preloaded;
  for (char* one = std::strtok(list.data(), ": "); one; one = std::strtok(nullptr, ": ")) {
    if (std::strcmp(one, own.dli_fname) != 0) rest += (rest.empty() ? "" : ":") + std::string(one);
  }
  rest.empty() ? unsetenv("LD_PRELOAD") : setenv("LD_PRELOAD", rest.c_str(), 1);
}
}
extern "C" __attribute__((visibility("hidden"))) void tracer_overlay_registered() {
  c10::WarningUtils::set_warning_handler(filter().next);
  c10::WarningUtils::set_warnAlways(filter().always);
}
__attribute__((constructor(101))) static void registering() {
  leave_environment();
  filter().next = c10::WarningUtils::get_warning_handler();
  filter().always = c10::WarningUtils::get_warnAlways();
  c10::WarningUtils::set_warning_handler(&filter());
  c10::WarningUtils::set_warnAlways(true);
}
"""
_LAST = """
extern "C" __attribute__((visibility("hidden"))) void tracer_overlay_registered();
__attribute__((constructor)) static void registered() { tracer_overlay_registered(); }
"""


@dataclass(frozen=True)
class Overlay:
    """`libraries` is what LD_PRELOAD gets, in order; `operators` are full names ("aten::mm").

    `sources` is the folder with the generated files that DWARF names. `seconds` is what this call took.
    """

    libraries: tuple[Path, ...]
    operators: tuple[str, ...]
    sources: Path
    seconds: float
    cached: bool


def build(
    target: Target,
    operators: Sequence[str],
    *,
    source: Path | None = None,
    cache: Path | None = None,
    compiler: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Overlay:
    """The overlay of `operators` for the torch of `target`, from the cache if it was built before.

    `source` is a PyTorch checkout of that version, whose native functions are then compiled too. `cache`
    stands for `~/.cache`. `say` gets lines of progress. Raises DebuggerError.
    """
    start = time.monotonic()
    program = _compiler(compiler)
    if source is not None:
        source = source.resolve()
        overlay_sources.check_checkout(target, source)
    base = _base(target, cache)
    try:
        base.mkdir(parents=True, exist_ok=True)
        generated = _generated(target, base, say)
        names = overlay_sources.resolve(operators, generated)
        sources = overlay_sources.select(target, generated, names)
        if source is not None:
            functions = overlay_sources.native_functions(sources)
            sources += overlay_sources.native_sources(source, generated, functions)
        final = base / _key(names, sources, source, program)
        cached = (final / _LIBRARY).exists()
        if not cached:
            with _locked(base, say):
                if not (final / _LIBRARY).exists():
                    _build(target, sources, source, program, final, say)
    except OSError as error:
        raise DebuggerError(f"the overlay cannot be built in {base}: {error}") from None
    seconds = time.monotonic() - start
    if not cached:
        say(f"linked {_LIBRARY} for {', '.join(names)} in {seconds:.0f} s")
    return Overlay(
        libraries=(final / _LIBRARY,),
        operators=tuple(f"aten::{name}" for name in names),
        sources=generated,
        seconds=seconds,
        cached=cached,
    )


def _compiler(wanted: str | None) -> str:
    name = wanted or os.environ.get("CXX") or "g++"
    found = shutil.which(name)
    if found is None:
        raise DebuggerError(f"there is no C++ compiler {name}; install the package g++")
    return found


def _base(target: Target, cache: Path | None) -> Path:
    """The folder of this torch in the cache."""
    root = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    library = target.libtorch_cpu
    try:
        identity = build_id(library)
        if not identity:
            facts = library.stat()
            identity = hashlib.sha256(f"{library} {facts.st_size} {facts.st_mtime_ns}".encode()).hexdigest()
    except (OSError, ValueError) as error:
        raise DebuggerError(f"{library} cannot be read ({error}); install torch again") from None
    base = root.absolute() / "tracer/overlay" / f"{target.torch_version}-{identity[:12]}"
    if re.search(r"[\s:]", str(base)):
        raise DebuggerError(
            f"LD_PRELOAD cannot name a file in {base}; set XDG_CACHE_HOME to a path without spaces"
        )
    return base


def _generated(target: Target, base: Path, say: Callable[[str], None]) -> Path:
    """The folder of the generated files; operators that are built later find it there."""
    final = base / _GENERATED
    if not final.exists():
        with _locked(base, say):
            if not final.exists():
                with _temporary(base) as folder:
                    overlay_sources.generate(target, folder, say)
                    folder.rename(final)
    return final


def _key(names: Sequence[str], sources: Sequence[Source], checkout: Path | None, program: str) -> str:
    """What else an overlay of this torch depends on: operators, compiler, native code, and this recipe."""
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    parts = [*names, program, version, str(checkout)]
    for source in sources:
        content = source.text if source.text is not None else source.path.read_text("utf-8", "replace")
        parts += [str(source.path), content]
    for module in (__file__, overlay_sources.__file__, trampolines.__file__):
        parts.append(Path(module).read_text(encoding="utf-8"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _build(
    target: Target,
    sources: Sequence[Source],
    checkout: Path | None,
    program: str,
    final: Path,
    say: Callable[[str], None],
) -> None:
    """Compiles and links into a temporary folder, which then gets its name: it is whole or not there."""
    generated = final.parent / _GENERATED
    with _temporary(final.parent) as folder:
        failures = final.parent / f"{final.name}.log"
        common = [program, *_options(target, generated, checkout)]
        # The full files have the same line numbers, and gdb shows what is around a line.
        common.append(f"-fdebug-prefix-map={folder}={generated}")
        objects, commands = [], []
        # The order of the objects is that in which their initialisers run.
        for source in (Source(Path("first.cpp"), _FIRST), *sources, Source(Path("last.cpp"), _LAST)):
            path = source.path if source.text is None else folder / source.path.name
            if source.text is not None:
                path.write_text(source.text, encoding="utf-8")
            objects.append(folder / f"{path.name}.o")
            commands.append((path.name, [*common, "-c", str(path), "-o", str(objects[-1])]))
        # The autograd files take the longest, and stand last.
        _run_parallel(commands[::-1], folder, failures, say)
        made = folder / "made"
        made.mkdir()
        _link(target, program, objects, folder, made / _LIBRARY, failures, say)
        if final.exists():
            shutil.rmtree(final)
        made.rename(final)


def _options(target: Target, generated: Path, checkout: Path | None) -> list[str]:
    """Compiler options: those of the wheel's own code, as far as they change what it does, and -O0 -g."""
    facts = overlay_sources.facts(generated)
    headers = target.torch / "include"
    folders = [headers, headers / "torch/csrc/api/include", generated]
    if checkout is not None:
        folders += [checkout / "aten/src", checkout]
    options = [f"-std=c++{facts['standard'] % 100}", "-O0", "-g", "-fPIC", "-fno-omit-frame-pointer", "-w"]
    # Without -fno-plt a breakpoint by name stops in the stubs of the overlay too.
    options += ["-fno-plt", "-fvisibility-inlines-hidden", f"-D_GLIBCXX_USE_CXX11_ABI={facts['abi']}"]
    options += [*facts["definitions"], "-DAT_PER_OPERATOR_HEADERS", "-DCAFFE2_BUILD_MAIN_LIB"]
    if facts["openmp"]:
        options.append("-fopenmp")
    for folder in folders:
        options += ["-isystem", str(folder)]
    return options


def _link(
    target: Target,
    program: str,
    objects: Sequence[Path],
    folder: Path,
    library: Path,
    failures: Path,
    say: Callable[[str], None],
) -> None:
    """Links the objects against the libraries of torch; where names are missing, again with trampolines."""
    torch = [target.libtorch_cpu, target.libraries / "libc10.so", *target.libraries.glob("libgomp*.so*")]
    interposed = trampolines.strong_definitions(objects) & trampolines.exported(target.libtorch_cpu)
    script = folder / "interposed.map"
    # Inline functions and templates stay local: nothing but what the operators' files define is replaced.
    names = "".join(f"{name}; " for name in sorted(interposed))
    script.write_text(f"{{ {f'global: {names}' if names else ''}local: *; }};\n", encoding="utf-8")
    command = [program, "-shared", "-o", str(library), *map(str, [*objects, *torch]), "-ldl"]
    command += [f"-Wl,-rpath,{target.libraries}", "-Wl,--no-undefined,--no-demangle"]
    command.append(f"-Wl,--version-script={script}")
    say(f"linking {library.name}")
    first = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if first.returncode:
        missing = set(_MISSING.findall(first.stderr))
        if missing:
            text = trampolines.assembly(target, missing, interposed)
            (folder / "trampolines.s").write_text(text, encoding="utf-8")
            command.append(str(folder / "trampolines.s"))
        _run_parallel([(library.name, command)], folder, failures, say)


def _run_parallel(
    commands: Sequence[tuple[str, list[str]]], folder: Path, failures: Path, say: Callable[[str], None]
) -> None:
    """Runs the commands over all cores. The first that fails ends the others and raises DebuggerError."""
    waiting = list(commands)
    running: dict[str, subprocess.Popen] = {}
    try:
        while waiting or running:
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                name, command = waiting.pop(0)
                say(f"{'compiling' if '-c' in command else 'linking'} {name}")
                with (folder / f"{name}.log").open("wb") as log:
                    running[name] = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            time.sleep(_POLL)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                if running.pop(name).returncode:
                    raise _failure(name, folder / f"{name}.log", failures)
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _failure(name: str, log: Path, kept: Path) -> DebuggerError:
    text = log.read_text(encoding="utf-8", errors="replace").replace(f"{log.parent}/", "")
    kept.write_text(text, encoding="utf-8")
    lines = text.splitlines()
    telling = [line for line in lines if "error:" in line or "undefined reference" in line]
    first = (telling or lines or ["the compiler says nothing"])[0].strip()
    return DebuggerError(f"{name} cannot be built: {first} (all of it: {kept})")


@contextlib.contextmanager
def _locked(base: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One build at a time; the leftovers of a build that was killed are removed."""
    with (base / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of an overlay")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in base.glob(f"{_BUILDING}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


@contextlib.contextmanager
def _temporary(base: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=base, prefix=_BUILDING))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
