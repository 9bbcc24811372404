"""The generated dispatch code of an installed torch, and the part of it that belongs to a few operators.

torchgen, which ships in the wheel, writes the C++ that the wheel was compiled from. An overlay needs only
the functions and registrations of its operators; everything else is blanked line by line, so that line
numbers stay those of the full file, which is what DWARF names and gdb shows.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracer.base.interpreter import ask
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.target import Target

_FACTS_FILE = "build.json"
_KEPT = re.compile(
    r"(Operators|RegisterCPU|RegisterCompositeImplicitAutograd|RegisterCompositeExplicitAutograd"
    r"|RegisterCompositeExplicitAutogradNonFunctional|VariableType|ADInplaceOrViewType)_\d+\.cpp"
    r"|RegisterSchema\.cpp|ViewFuncs\.cpp|UfuncCPU_\w+\.cpp"
)
# Runs in the target's Python. What the wheel was compiled with decides the ABI and branches of native code.
_FACTS = """
import json, re, torch
text = torch.__config__.show()
flags = re.search(r"CXX_FLAGS=(.*?)(?:, [A-Z_]+=|$)", text, re.S)
standard = re.search(r"C\\+\\+ Version: (\\d{4})", text)
print(json.dumps({"abi": int(torch._C._GLIBCXX_USE_CXX11_ABI),
                  "openmp": bool(re.search(r"OpenMP \\d", text)),
                  "standard": int(standard.group(1)) if standard else 2017,
                  "definitions": re.findall(r"(?<=\\s)-D\\S+", flags.group(1)) if flags else []}))
"""
_SCHEMA = re.compile(r'm\.def\("([\w.]+)\(')
_OPERATOR = re.compile(r"// aten::([\w.]+)\(")
_INCLUDE = re.compile(r"#include <ATen/ops/(\w+?)(_native|_ops|_[a-z]+_dispatch)?\.h>")
_REGISTRATION = re.compile(r'\s*m\.impl\("([\w.]+)",')
_KERNEL = re.compile(r"TORCH_FN\((?:\w+::)*(\w+)\)")
_FUNCTION = re.compile(r"(?!TORCH_LIBRARY)\S.*\(.*\) \{$")
_AUTOGRAD_FUNCTION = re.compile(r"\S.*?\b(\w+)\(c10::DispatchKeySet ks\b.*\{$")
_WRAPPER = re.compile(r"\S.*?\b(wrapper_\w+)\(.*\{$")
_NATIVE_CALL = re.compile(r"\bat::native::(\w+)\(")
_STRUCTURED_CALL = re.compile(r"structured_(\w+)(?<!_default_backend)_(?:functional|out|inplace) op\b")


@dataclass(frozen=True)
class Source:
    """One file to compile: `text` is the blanked copy of `path`, None where `path` is compiled as it is.

    Files of the same `unit` are compiled as one.
    """

    path: Path
    text: str | None
    unit: str


def generate(target: Target, folder: Path, say: Callable[[str], None]) -> None:
    """Writes the generated dispatch code of `target` into `folder`, and how the wheel was compiled.

    Headers that the wheel lacks go into `folder/ATen`.
    Raises DebuggerError if the wheel has no torchgen, or torchgen or torch does not run.
    """
    packaged = _packaged(target)
    say(f"generating the dispatch code of torch {target.torch_version}")
    yaml = [str(packaged / "ATen/native" / name) for name in ("native_functions.yaml", "tags.yaml")]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        out = Path(scratch, "out")
        out.mkdir()
        environment = _torchgen_environment(target, Path(scratch, "modules"))
        aten = ["-s", str(packaged / "ATen"), "-d", str(out), "--per-operator-headers"]
        autograd = [*yaml, str(out), str(packaged / "autograd")]
        commands = {
            "torchgen.gen": ["-m", "torchgen.gen", *aten, "--generate", "sources"],
            "gen_autograd": ["-m", "torchgen.packaged.autograd.gen_autograd", *autograd],
            "import torch": ["-c", _FACTS],
        }
        written = _run_all(target, commands, environment, scratch)
        headers = folder / "ATen"
        headers.mkdir()
        wheel = [target.torch / "include" / name for name in ("ATen", "torch/csrc/autograd/generated")]
        for path in sorted(out.iterdir()):
            if _KEPT.fullmatch(path.name):
                path.rename(folder / path.name)
            elif path.suffix == ".h" and not any((known / path.name).exists() for known in wheel):
                path.rename(headers / path.name)
    (folder / _FACTS_FILE).write_text(written["import torch"], encoding="utf-8")


def resolve(names: Iterable[str], generated: Path) -> tuple[str, ...]:
    """Full operator names without namespace ("mm", "add.Tensor") for what the user wrote, sorted.

    A name without overload is the default overload if there is one, else all overloads. Raises DebuggerError
    for a name that no operator has, with near ones.
    """
    known = _SCHEMA.findall((generated / "RegisterSchema.cpp").read_text(encoding="utf-8"))
    found: set[str] = set()
    for name in names:
        bare = name.removeprefix("aten::")
        overloads = [bare] if bare in known else [one for one in known if one.partition(".")[0] == bare]
        if not overloads:
            near = difflib.get_close_matches(bare, {*known, *(one.partition(".")[0] for one in known)}, 4)
            hint = f"near names: {', '.join(near)}" if near else "no operator has a similar name"
            raise DebuggerError(f"torch has no operator {name}; {hint}")
        found.update(overloads)
    if not found:
        raise DebuggerError("an overlay needs an operator, e.g. mm or add.Tensor")
    return tuple(sorted(found))


def select(target: Target, generated: Path, operators: Sequence[str]) -> list[Source]:
    """The generated files that hold `operators`, with everything of other operators blanked."""
    wanted = set(operators)
    stems = _header_stems(target, {operator.replace(".", "_") for operator in wanted})
    sources: list[Source] = []
    composite_wanted = set(wanted)
    for path in _in_order(generated, "Operators_*.cpp"):
        _add(sources, path, _blank_operators(_lines(path), wanted, stems))
    for path in _in_order(generated, "RegisterCPU_*.cpp"):
        lines = _lines(path)
        composite_wanted -= set(_registered(lines))
        _add(sources, path, _blank_registrations(lines, wanted, stems))
    # The composite kernel of an operator that has one for the CPU is never reached there.
    for path in _in_order(generated, "RegisterComposite*.cpp"):
        _add(sources, path, _blank_registrations(_lines(path), composite_wanted, stems))
    for path in _in_order(generated, "ADInplaceOrViewType_*.cpp"):
        _add(sources, path, _blank_autograd(_lines(path), wanted, stems, helpers=True))
    if any(source.text and "ViewFunc>(" in source.text for source in sources):
        sources.append(Source(generated / "ViewFuncs.cpp", None, "ViewFuncs.cpp"))
    # Nearly all the time goes into the headers, which these share; what they define for themselves too.
    unit = "VariableType.cpp"
    for path in _in_order(generated, "VariableType_*.cpp"):
        helpers = all(source.unit != unit for source in sources)
        _add(sources, path, _blank_autograd(_lines(path), wanted, stems, helpers), unit)
    return sources


def native_functions(sources: Sequence[Source]) -> dict[str, bool]:
    """The native functions that the kernels of the wanted operators call: name, and whether it is structured.

    Raises DebuggerError where they call none.
    """
    found: dict[str, bool] = {}
    for source in sources:
        if source.text and source.path.name.startswith("Register"):
            kernels = set(_KERNEL.findall(source.text))
            inside = False
            for line in source.text.split("\n"):
                wrapper = _WRAPPER.match(line)
                if wrapper:
                    inside = wrapper[1] in kernels
                elif inside:
                    found |= dict.fromkeys(_NATIVE_CALL.findall(line), False)
                    found |= dict.fromkeys(_STRUCTURED_CALL.findall(line), True)
                    inside = line != "}"
    if not found:
        raise DebuggerError("the operator has no native function for the CPU; build without --source")
    return found


def native_sources(checkout: Path, generated: Path, functions: dict[str, bool]) -> list[Source]:
    """The files that define the native functions. Raises DebuggerError for one that is defined nowhere."""
    native = checkout / "aten/src/ATen/native"
    other_devices = {"cuda", "hip", "mps", "xpu", "vulkan"}
    files = sorted(native.rglob("*.cpp"), key=lambda path: (len(path.parts), path))
    files = [path for path in files if other_devices.isdisjoint(path.relative_to(native).parts)]
    files += _in_order(generated, "UfuncCPU_*.cpp")
    missing = dict(functions)
    found: list[Path] = []
    # Written out, or else by a macro that takes the name first.
    for pattern in (_written_definition, _macro_definition):
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace")
            here = [name for name in missing if name in text and pattern(name, missing[name]).search(text)]
            found += [path] if here and path not in found else []
            missing = {name: structured for name, structured in missing.items() if name not in here}
    if missing:
        raise DebuggerError(
            f"no file under {native} defines the native function {min(missing)}; build without --source"
        )
    return [Source(path, None, path.name) for path in found]


def check_checkout(target: Target, checkout: Path) -> None:
    """Raises DebuggerError unless `checkout` is the PyTorch source of the installed version."""
    try:
        version = (checkout / "version.txt").read_text(encoding="utf-8").strip()
    except OSError:
        raise DebuggerError(f"{checkout} is not a PyTorch checkout: it has no version.txt") from None
    if not (checkout / "aten/src/ATen/native").is_dir():
        raise DebuggerError(f"{checkout} is not a PyTorch checkout: it has no aten/src/ATen/native")
    release = _release(target.torch_version)
    if _release(version) != release:
        raise DebuggerError(
            f"{checkout} is PyTorch {version}, the installed torch is {target.torch_version}; "
            f"check out v{release}"
        )
    theirs = checkout / "aten/src/ATen/native/native_functions.yaml"
    if theirs.exists() and theirs.read_bytes() != (
        (_packaged(target) / "ATen/native/native_functions.yaml").read_bytes()
    ):
        raise DebuggerError(
            f"{theirs} differs from the source of torch {target.torch_version}; check out v{release}"
        )


def facts(generated: Path) -> dict:
    """How the wheel was compiled: `abi` (0 or 1), `openmp`, `standard` (a year), `definitions` (-D...)."""
    return json.loads((generated / _FACTS_FILE).read_text(encoding="utf-8"))


def _packaged(target: Target) -> Path:
    packaged = target.torchgen / "packaged" if target.torchgen else None
    if packaged is None or not (packaged / "autograd/gen_autograd.py").exists():
        raise DebuggerError(
            f"the torch {target.torch_version} of {target.executable} has no torchgen with templates, "
            "so there is no code to overlay; install a release wheel of torch 2.0 or newer"
        )
    return packaged


def _torchgen_environment(target: Target, modules: Path) -> dict[str, str]:
    """The environment for torchgen. It needs PyYAML, which torch does not ask for: else ours is lent."""
    environment = dict(os.environ)
    if ask(target.executable, "import yaml").returncode:
        spec = importlib.util.find_spec("yaml")
        if spec is None or not spec.submodule_search_locations:
            raise DebuggerError(f"torchgen needs PyYAML; run {target.executable} -m pip install pyyaml")
        modules.mkdir()
        (modules / "yaml").symlink_to(spec.submodule_search_locations[0])
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(modules), *([inherited] if inherited else [])])
    return environment


def _run_all(
    target: Target, commands: dict[str, list[str]], environment: dict[str, str], folder: str
) -> dict[str, str]:
    """Runs the target's Python with each list of arguments, all at once; what each wrote to stdout."""
    running = {}
    for name, arguments in commands.items():
        with Path(folder, f"{name}.log").open("wb") as errors:
            running[name] = subprocess.Popen(
                [target.executable, *arguments],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
    try:
        texts = {name: process.communicate()[0] for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
    for name, process in running.items():
        if process.returncode:
            lines = Path(folder, f"{name}.log").read_text("utf-8", "replace").strip().splitlines()
            raise DebuggerError(
                f"the code of torch {target.torch_version} cannot be generated: {name}: "
                f"{lines[-1] if lines else f'exit status {process.returncode}'}"
            )
    return texts


def _blank_operators(lines: list[str], wanted: set[str], stems: set[str]) -> list[str] | None:
    """Operators_N.cpp: one comment `// aten::SCHEMA` heads each function."""
    blanked, keep, hit = [], True, False
    for line in lines:
        heading = _OPERATOR.match(line)
        if heading:
            keep = heading[1] in wanted
            hit |= keep
        elif line.startswith("}}"):
            keep = True
        include = _INCLUDE.match(line)
        foreign = include is not None and include[1] not in stems
        blanked.append(line if keep and not foreign else "")
    return blanked if hit else None


def _blank_registrations(lines: list[str], wanted: set[str], stems: set[str]) -> list[str] | None:
    """Register*_N.cpp: a block `namespace at {` .. `} // namespace at` for each group of operators."""
    if not wanted.intersection(_registered(lines)):
        return None
    blanked = [_without_foreign_header(line, stems) for line in lines]
    start = 0
    for number, line in enumerate(lines):
        if line == "namespace at {":
            start = number
        elif line == "} // namespace at":
            names = _registered(lines[start : number + 1])
            if names and not wanted.intersection(names):
                blanked[start : number + 1] = [""] * (number + 1 - start)
    return _blank_other_calls(blanked, wanted)


def _blank_autograd(lines: list[str], wanted: set[str], stems: set[str], helpers: bool) -> list[str] | None:
    """VariableType_N.cpp, ADInplaceOrViewType_N.cpp: functions first, their registrations at the end.

    `helpers` keeps the functions that are kernels of no operator.
    """
    registrations = _blank_other_calls(lines, wanted)
    kernels = set(_KERNEL.findall("\n".join(registrations)))
    if not kernels:
        return None
    blanked, keep = [], True
    for line in registrations:
        kernel = _AUTOGRAD_FUNCTION.match(line)
        if kernel:
            keep = kernel[1] in kernels
        elif _FUNCTION.match(line):
            keep = helpers
        blanked.append(_without_foreign_header(line, stems) if keep else "")
        if line == "}":
            keep = True
    return blanked


def _blank_other_calls(lines: list[str], wanted: set[str]) -> list[str]:
    """Blanks `m.impl("NAME", ...);` of operators that are not wanted; a call ends at the end of a line."""
    blanked, keep = [], True
    for line in lines:
        registration = _REGISTRATION.match(line)
        if registration:
            keep = registration[1] in wanted
        blanked.append(line if keep else "")
        if line.endswith((");", ");;")):
            keep = True
    return blanked


def _registered(lines: list[str]) -> list[str]:
    return [found[1] for found in map(_REGISTRATION.match, lines) if found]


def _without_foreign_header(line: str, stems: set[str]) -> str:
    """Blanks a header that declares kernels of another operator; a shard includes hundreds of them."""
    include = _INCLUDE.match(line)
    return "" if include and include[2] and include[1] not in stems else line


def _header_stems(target: Target, structs: set[str]) -> set[str]:
    """Names of the headers in ATen/ops that declare the operators: "mm" for `mm_out`."""
    declaration = re.compile(rf"struct TORCH_API (?:{'|'.join(map(re.escape, structs))}) ")
    headers = (target.torch / "include/ATen/ops").glob("*_ops.h")
    found = [path.name for path in headers if declaration.search(path.read_text(encoding="utf-8"))]
    return {name.removesuffix("_ops.h") for name in found}


def _written_definition(name: str, structured: bool) -> re.Pattern[str]:
    if structured:
        return re.compile(rf"\bTORCH_IMPL_FUNC\(\s*{name}\s*\)")
    return re.compile(rf"^[A-Za-z_:][\w:<>,&*\s]*[\s&*>]{name}\s*\([^;{{}}]*\)\s*\{{", re.M)


def _macro_definition(name: str, structured: bool) -> re.Pattern[str]:
    return re.compile(rf"^[A-Z][A-Z0-9_]*{'IMPL_FUNC' if structured else ''}\(\s*{name}\b", re.M)


def _release(version: str) -> str:
    found = re.match(r"\d+\.\d+\.\d+", version)
    return found[0] if found else version


def _in_order(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def _add(sources: list[Source], path: Path, lines: list[str] | None, unit: str = "") -> None:
    if lines is not None:
        sources.append(Source(path, "\n".join(lines), unit or path.name))
