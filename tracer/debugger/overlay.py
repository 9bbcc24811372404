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
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracer.base import interrupts
from tracer.base.elf import Elf
from tracer.debugger import overlay_sources, trampolines
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.overlay_sources import Source
from tracer.debugger.target import Target

_LIBRARY = "overlay.so"
_GENERATED = "generated"
_BUILDING = ".building-"
_MISSING = re.compile(r"undefined (?:reference to|symbol:) [`']?([\w.$]+)")
# The CPU capabilities that native kernels were compiled for: the layout of DispatchStub depends on them.
_CAPABILITY = re.compile(r"^_ZN2at6native12DispatchStubI.*E\d(AVX2|AVX512)E$")
_ONEDNN = "third_party/ideep/mkl-dnn/include"
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
    replaces `~/.cache`. `say` gets lines of progress. Raises DebuggerError.
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
        final = base / _key(target, names, sources, source, program)
        built = False
        if not (final / _LIBRARY).exists():
            with _locked(base, say), _temporary(base) as folder:
                # Another process may have built it meanwhile.
                if not (final / _LIBRARY).exists():
                    log = base / f"{final.name}.log"
                    _Build(target, generated, source, program, folder, log, say).run(sources, final)
                    built = True
    except OSError as error:
        raise DebuggerError(f"cannot build the overlay in {base}: {error}") from None
    seconds = time.monotonic() - start
    if built:
        say(f"linked {_LIBRARY} for {', '.join(names)} in {seconds:.0f} s")
    return Overlay(
        libraries=(final / _LIBRARY,),
        operators=tuple(f"aten::{name}" for name in names),
        sources=generated,
        seconds=seconds,
        cached=not built,
    )


def _compiler(wanted: str | None) -> str:
    name = wanted or os.environ.get("CXX") or "g++"
    found = shutil.which(name)
    if found is None:
        raise DebuggerError(f"no C++ compiler {name}; install the package g++")
    return found


def _base(target: Target, cache: Path | None) -> Path:
    """The folder of this torch in the cache."""
    root = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    library = target.libtorch_cpu
    try:
        identity = Elf(library).build_id
        if not identity:
            facts = library.stat()
            identity = hashlib.sha256(f"{library} {facts.st_size} {facts.st_mtime_ns}".encode()).hexdigest()
    except (OSError, ValueError) as error:
        raise DebuggerError(f"cannot read {library} ({error}); reinstall torch") from None
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


def _key(
    target: Target, names: Sequence[str], sources: Sequence[Source], checkout: Path | None, program: str
) -> str:
    """What else an overlay of this torch depends on: operators, compiler, native code, and this recipe.

    And where the torch is: an overlay names the folder of its libraries, and two copies of the same
    torch must not both be loaded into one process.
    """
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    parts = [str(target.libraries.resolve()), *names, program, version, str(checkout)]
    for source in sources:
        content = source.text if source.text is not None else source.path.read_text("utf-8", "replace")
        parts += [str(source.path), content]
    for module in (__file__, overlay_sources.__file__, trampolines.__file__):
        parts.append(Path(module).read_text(encoding="utf-8"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Build:
    """One build in a temporary folder. `kept_log` gets what the compiler says when it fails."""

    target: Target
    generated: Path
    checkout: Path | None
    compiler: str
    folder: Path
    kept_log: Path
    say: Callable[[str], None]

    def run(self, sources: Sequence[Source], final: Path) -> None:
        """Compiles and links `sources`. The folder `final` is made whole, by renaming, or not at all."""
        # The order of the objects is that in which their initialisers run.
        units: dict[str, list[Source]] = {}
        first, last = (
            Source(Path("first.cpp"), _FIRST, "first.cpp"),
            Source(Path("last.cpp"), _LAST, "last.cpp"),
        )
        for source in (first, *sources, last):
            units.setdefault(source.unit, []).append(source)
        options = self._options()
        objects, commands = [], {}
        for unit, files in units.items():
            objects.append(self.folder / f"{unit}.o")
            # DWARF names no file that is gone when the build is over.
            debug = ["-g0"] if unit in (first.unit, last.unit) else []
            path = self._write(unit, files)
            command = [self.compiler, *options, *debug, "-c", str(path), "-o", str(objects[-1])]
            commands[", ".join(source.path.name for source in files)] = command
        # The autograd files take the longest, and come last.
        self._run_parallel("compiling", dict(reversed(commands.items())))
        made = self.folder / "made"
        made.mkdir()
        self._link(objects, made / _LIBRARY)
        shutil.rmtree(final, ignore_errors=True)
        made.rename(final)

    def _options(self) -> list[str]:
        """Those of the wheel's own code, as far as they change what it does, and -O0 -g."""
        facts = overlay_sources.facts(self.generated)
        options = ["-O0", "-g", "-fPIC", "-fno-omit-frame-pointer", "-fvisibility-inlines-hidden", "-w"]
        options += [f"-std=c++{facts['standard'] % 100}", f"-D_GLIBCXX_USE_CXX11_ABI={facts['abi']}"]
        # Without -fno-plt a breakpoint by name stops in the stubs of the overlay too.
        options += ["-fno-plt", *facts["definitions"]]
        options += ["-DAT_PER_OPERATOR_HEADERS", "-DCAFFE2_BUILD_MAIN_LIB"]
        if facts["openmp"]:
            options.append("-fopenmp")
        stubs = map(_CAPABILITY.search, trampolines.exported(self.target.libtorch_cpu))
        options += sorted({f"-DHAVE_{stub[1]}_CPU_DEFINITION" for stub in stubs if stub})
        headers = self.target.torch / "include"
        folders = [headers, headers / "torch/csrc/api/include", self.generated]
        if self.checkout is not None:
            folders += [self.checkout / "aten/src", self.checkout]
        for folder in folders:
            options += ["-isystem", str(folder)]
        if self.checkout is not None:
            third_party = [*self.checkout.glob("third_party/*/include"), *self.checkout.glob(_ONEDNN)]
            for folder in sorted(third_party):
                options += ["-idirafter", str(folder)]
        # The full files have the same line numbers, and gdb shows what is around a line.
        return [*options, f"-fdebug-prefix-map={self.folder}={self.generated}"]

    def _write(self, unit: str, files: Sequence[Source]) -> Path:
        """Writes the blanked copies; what the compiler gets for them."""
        paths = []
        for source in files:
            paths.append(source.path if source.text is None else self.folder / source.path.name)
            if source.text is not None:
                paths[-1].write_text(source.text, encoding="utf-8")
        if len(paths) == 1:
            return paths[0]
        joined = self.folder / unit
        joined.write_text("".join(f'#include "{path}"\n' for path in paths), encoding="utf-8")
        return joined

    def _link(self, objects: Sequence[Path], library: Path) -> None:
        """Links against the libraries of torch; where names are missing, again with trampolines."""
        libtorch_cpu, folder = self.target.libtorch_cpu, self.target.libraries
        interposed = trampolines.strong_definitions(objects) & trampolines.exported(libtorch_cpu)
        script = self.folder / "interposed.map"
        # Inline functions and templates stay local: nothing but what the operators' files define is replaced.
        names = "".join(f"{name}; " for name in sorted(interposed))
        script.write_text(f"{{ {f'global: {names}' if names else ''}local: *; }};\n", encoding="utf-8")
        inputs = [*objects, libtorch_cpu, folder / "libc10.so", *folder.glob("libgomp*.so*")]
        linker = f"-Wl,--as-needed,--no-undefined,--no-demangle,-rpath,{folder},--version-script={script}"
        command = [self.compiler, "-shared", "-o", str(library), linker, *map(str, inputs), "-ldl"]
        first = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        missing = set(_MISSING.findall(first.stderr)) if first.returncode else set()
        if missing:
            source = self.folder / "trampolines.s"
            source.write_text(trampolines.assembly(self.target, missing, interposed), encoding="utf-8")
            command.append(str(source))
        if first.returncode:
            self._run_parallel("linking", {library.name: command})

    def _run_parallel(self, verb: str, commands: dict[str, list[str]]) -> None:
        """Runs the commands over all cores. The first that fails ends the others and raises DebuggerError."""
        waiting = list(commands.items())
        running: dict[str, tuple[subprocess.Popen, Path]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < len(os.sched_getaffinity(0)):
                    name, command = waiting.pop(0)
                    self.say(f"{verb} {name}")
                    log = self.folder / f"{verb}{len(waiting)}.log"
                    with log.open("wb") as stream, interrupts.waiting():
                        # A compiler has children; the group ends them too.
                        process = subprocess.Popen(
                            command, cwd=self.folder, stdout=stream, stderr=stream, start_new_session=True
                        )
                        running[name] = process, log
                time.sleep(_POLL)
                for name, (process, log) in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        if process.returncode:
                            raise self._failure(name, log)
        finally:
            for process, _ in running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _failure(self, name: str, log: Path) -> DebuggerError:
        text = log.read_text(encoding="utf-8", errors="replace").replace(f"{self.folder}/", "")
        self.kept_log.write_text(text, encoding="utf-8")
        lines = text.splitlines()
        telling = [line for line in lines if "error:" in line or "undefined reference" in line]
        first = (telling or lines or ["the compiler printed nothing"])[0].strip()
        return DebuggerError(f"cannot build {name}: {first} (full log: {self.kept_log})")


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
