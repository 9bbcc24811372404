"""The list of what stays in a redacted trace: fields of documents and forms of names. All else goes.

A name stays if it has the form of one, as `Net.forward`: then it is noted, and the command prints it. Any
other text is replaced by a number, or goes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tracer.base.paths import in_standard_library, short_path

LEFT_OUT = "left out"
GONE = object()
"""In the place of a field that goes"""

_PART = r"(?:\w+|<(?:module|lambda|locals|string|unknown|(?:gen|list|dict|set)(?:expr|comp))>)"
_NAME = re.compile(rf"{_PART}(?:(?:\.|::){_PART})*")
_SYMBOL = re.compile(r"[\w.$@]+")
_PSEUDO_FILE = re.compile(
    r"<(?:string|stdin|unknown|unknown source|eval_with_key|frozen [\w.]+|ipython-input-\d+-[0-9a-f]+)>"
    r"(?:\.\d+)?"
)
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)", re.DOTALL)
_REGISTERED = re.compile(
    r"(?P<how>(?:fallthrough |registered at )*)(?P<file>.+?)(?P<line>:\d+)?( \(in (?P<library>.+)\))?",
    re.DOTALL,
)
_PYTHON_KERNEL = re.compile(r"(?P<name>.+) \((?P<file>.+):(?P<line>\d+)\)", re.DOTALL)
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.dev|\.post)\d+)?(\+(cpu|cu\d+|xpu|rocm[\d.]+|git[0-9a-f]+))?")
_THREAD = re.compile(r"python[\d.]*|pt_autograd_\d+|pt_[a-z]+_[a-z]+|cuda\d*")
_SHORT_PATH = re.compile(r"[\w.@+=,~ -]+(?:/[\w.@+=,~ -]+)*")
_NOT_CHOSEN = re.compile(r"[0-9a-z]{20,}\.py|(lib)?python3[\w.]*")
_OWN_RANGE = re.compile("(?P<kind>\x1f(?:kernel|bench):)(?P<name>[^#]*)(?P<number>#\\d+)?", re.DOTALL)
_RANGE_OF_CLASS = re.compile(r"(?:Optimizer\.(?:step|zero_grad)|enumerate\(DataLoader\))#(?P<name>[\w.]+)")
_RANGE_OF_TORCH = re.compile(
    "\x1f(?:call:\\d+|phase:[\\w. ()<>-]+:[\\d/_!]*)"
    r"|ProfilerStep#\d+|(?:nccl|gloo|mpi|ucc|xccl):\w+|(?:DistributedDataParallel|DataParallel)\.\w+"
    r"|FSDP::\w+|Torch-Compiled Region: [\d/_]+|TorchDynamo Cache Lookup|Pregraph bytecode"
    r"|AOTDispatcher Runtime Wrapper Prologue|## Call CompiledFxGraph \w+ ##|CompiledFunction\w*"
)
_OPS_OF_TORCH = ("aten::", "prim", "profiler::")
_KERNELS_OF_TORCH = ("cpp_fused", "triton_", "extern_kernels.")
_KERNELS_OF_LIBRARIES = ("_ZN2at6native", "_ZN7cutlass", "_ZN5cudnn", "sm80_", "sm90_", "ncclDevKernel_")
_PYTHON_NODE = "torch::autograd::PyNode"
_SYSTEM = (
    "/__w/pytorch/",
    "/usr/lib/",
    "/usr/lib64/",
    "/usr/bin/",
    "/usr/local/cuda",
    "/lib/",
    "/lib64/",
    "/pytorch/",
)
_PACKAGES = ("torch/", "nvidia/", "triton/", "tracer/", "numpy/", "polars/")
_ARGUMENTS = frozenset(
    (
        *("none", "mean", "sum", "batchmean", "constant", "reflect", "reflection", "replicate", "circular"),
        *("zeros", "border", "nearest", "linear", "bilinear", "bicubic", "trunc", "floor", "tanh"),
        *("left", "right", "ij", "xy"),
    )
)
"""Texts that torch's own operators take"""
RULES = ("kernel", "math kernel", "autograd kernel", "default backend kernel", "backend fallback", "missing")
_WHY_OF_CUDA = (
    "",
    "--cuda off",
    "this machine has no NVIDIA driver (libcuda.so.1)",
    "tracer was built with a torch that has no CUDA",
)
_WHY_OF_ENTRY = ("it holds the hop of another entry", "registered without being seen")
_WHY_HIDDEN = (
    "AOTInductor calls its kernels from C++",
    "cpp_wrapper calls its kernels from C++",
    "the generated module was not found",
    "the C++ kernels of this torch take their arguments another way",
    "this torch launches its Triton kernels another way",
)
_REASONS = ("another reason", "called by the override itself")


@dataclass
class Redaction:
    """What was taken out, by kind -> how many, and names of the user that are left, by kind."""

    removed: Counter[str] = field(default_factory=Counter)
    left: dict[str, dict[str, None]] = field(default_factory=dict)

    def keep(self, kind: str, name: str) -> None:
        if name:
            self.left.setdefault(kind, {})[name] = None


class Names:
    """Decides of each name and path what stays."""

    def __init__(self) -> None:
        self.done = Redaction()
        self.folder = ""
        """Of the script"""
        self.cwd = ""
        """Where it ran; "": unknown"""
        self._files: dict[str, str] = {}
        self._taken: Counter[str] = Counter()
        self._replaced: dict[tuple[str, str], int] = {}
        self._counts: Counter[str] = Counter()
        self._numbered: set[str] = set()

    def chosen(self, kind: str, text: str, *torchs: str) -> str:
        """A name of the form of one; it is noted, unless it begins as those of torch do."""
        if not _NAME.fullmatch(text):
            return self.instead("name", text) if text else ""
        if not text.startswith(torchs or ("\0",)):
            self.done.keep(kind, text)
        return text

    def instead(self, word: str, text: str) -> str:
        """`name 3`: the same for the same text."""
        key = word, text
        if key not in self._replaced:
            self._counts[word] += 1
            self._replaced[key] = self._counts[word]
            self.done.removed["texts that are no names"] += word != "text"
        number = self._replaced[key]
        new = f"{word} {number}" if len(f"{word} {number}") <= max(len(text), 8) else f"{word[0]}{number}"
        self._numbered.add(new)
        return new

    def node(self, text: str) -> str:
        """A class of C++, or `torch::autograd::PyNode MyFunctionBackward`."""
        begin, blank, name = text.partition(" ")
        if begin == _PYTHON_NODE and blank:
            return f"{begin} {self.chosen('autograd functions', name)}"
        return self.chosen("autograd functions", text, "torch::")

    def op(self, text: str) -> str:
        return self.chosen("operators outside of ATen", text, *_OPS_OF_TORCH)

    def modules(self, names: str, root: str) -> tuple[str, str]:
        parts = [root, *names.split(".")] if names else [root]
        kept = [part if not part or _NAME.fullmatch(part) else self.instead("name", part) for part in parts]
        if kept == parts:
            self.done.keep("modules", ".".join(filter(None, parts)))
        else:  # those that stay, one by one
            for part in set(kept) & set(parts):
                self.done.keep("modules", part)
        return ".".join(kept[1:]), kept[0]

    def thread(self, text: str) -> str:
        if _THREAD.fullmatch(text):
            return text
        self.done.removed["names of threads"] += 1
        return ""

    def device_kernel(self, text: str) -> str:
        if not _SYMBOL.fullmatch(text):
            return self.instead("kernel", text)
        if not text.startswith(_KERNELS_OF_LIBRARIES):
            self.done.keep("device kernels", text)
        return text

    def range(self, text: str) -> str:
        """Torch's ranges and tracer's own; the program's become numbers."""
        if _RANGE_OF_TORCH.fullmatch(text):
            self.done.keep("ranges of torch", "" if text.startswith("\x1f") else text)
            return text
        if known := _RANGE_OF_CLASS.fullmatch(text):
            self.done.keep("optimizers and loaders", known["name"])
            return text
        if known := _OWN_RANGE.fullmatch(text):
            return f"{known['kind']}{self.compiled_kernel(known['name'])}{known['number'] or ''}"
        return self.instead("\x1frange" if text.startswith("\x1f") else "range", text)

    def compiled_kernel(self, text: str) -> str:
        return self.chosen("kernels of compiled code", text, *_KERNELS_OF_TORCH)

    def symbol(self, text: str, library: str) -> tuple[str, str]:
        short = self.library(library)
        if text and not _SYMBOL.fullmatch(text):
            return self.instead("function", text), short
        if self._is_own(library, short):
            self.done.keep("functions of own libraries", text)
        return text, short

    def python_kernel(self, text: str) -> str:
        """`__main__.impl (main.py:3)`"""
        if known := _PYTHON_KERNEL.fullmatch(text):
            return (
                f"{self.chosen('Python kernels', known['name'])} ({self.file(known['file'])}:{known['line']})"
            )
        return self.chosen("Python kernels", text)

    def registered_at(self, text: str) -> str:
        """`RegisterCPU.cpp:12 (in libmine.so)`"""
        known = _REGISTERED.fullmatch(text)
        if not known:
            return ""
        library = f" (in {self.library(known['library'])})" if known["library"] else ""
        return f"{known['how']}{self.library(known['file'])}{known['line'] or ''}{library}"

    def place(self, text: str) -> str:
        """`file:line` in Python"""
        known = _LINE.fullmatch(text)
        return f"{self.file(known['file'])}:{known['line']}" if known else self.file(text)

    def file(self, file: str) -> str:
        """The short name of a file in Python. Two files with one short name get different ones."""
        if file not in self._files:
            short = self._short(file, self.folder)
            self._taken[short] += 1
            if self._taken[short] > 1 and len(short) + 4 < len(file):
                short = f"{self._taken[short]}/{short}"
            self._files[file] = short
            self._note(file, short)
        return self._files[file]

    def library(self, path: str) -> str:
        """The short name of a library, or of a file in C++."""
        short = self._short(path, "") if path else ""
        self._note(path, short)
        return short

    def _note(self, path: str, short: str) -> None:
        self.done.removed["paths"] += short != path
        if self._is_own(path, short) and short not in self._numbered:
            self.done.keep("files", short)

    def _is_own(self, path: str, short: str) -> bool:
        known = _PSEUDO_FILE.fullmatch(short) or _NOT_CHOSEN.fullmatch(short)
        return not known and not self._is_of_torch(path, short)

    def _is_of_torch(self, path: str, short: str) -> bool:
        """Or of Python, or of the system"""
        if path.startswith((*_SYSTEM, "linux-vdso")) or in_standard_library(path):
            return True
        return "/site-packages/" in path and short.startswith(_PACKAGES)

    def function(self, text: str, file: str) -> str:
        """A function in Python"""
        is_of_torch = self._is_of_torch(file, self.file(file))
        return self.chosen("Python functions", text, *([""] * is_of_torch))

    def _short(self, path: str, folder: str) -> str:
        if _PSEUDO_FILE.fullmatch(path):
            return path
        path = re.sub(r"^[A-Za-z]:(?=/)", "", path.replace("\\", "/"))
        if not path.startswith("/"):
            path = posixpath.normpath(posixpath.join(self.cwd or "/", path))
        short = short_path(path, folder, self.cwd if folder else "")
        return short if _SHORT_PATH.fullmatch(short) else self.instead("file", short)

    def scalar(self, text: str) -> str:
        """The JSON of an argument that is no tensor. Numbers stay, and texts that torch's operators take."""
        value = json.loads(text)
        kept = self._scalar(value)
        return text if kept == value else json.dumps(kept, separators=(",", ":"))

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, str) and value not in _ARGUMENTS:
            self.done.removed["texts among arguments"] += 1
            return self.instead("text", value) if value else ""  # other texts stay other ones
        if isinstance(value, list):
            return [self._scalar(element) for element in value]
        if isinstance(value, dict):
            return {name: self._named(name, element) for name, element in value.items() if name in _NAMED}
        return value

    def _named(self, name: str, value: Any) -> Any:
        if name == "process_group" and isinstance(value, str) and not value.isdigit():
            return hashlib.sha256(value.encode()).hexdigest()[: len(value)]  # the same in all ranks
        form = _NAMED[name]
        return value if form is None else value if isinstance(value, str) and form.fullmatch(value) else ""


_NAMED = {
    "complex": None,
    "tensors": None,
    "device": re.compile(r"[a-z]+(:\d+)?"),
    "process_group": re.compile(r".*", re.DOTALL),
    "unknown": re.compile(r"\w+|(list|text) of \d+ (elements|bytes)"),
}

Keep = Callable[[Names, Any], Any]
"""What stays of a field; GONE: nothing"""


def plain(_: Names, value: Any) -> Any:
    return value if isinstance(value, (bool, int, float)) else GONE


def figures(names: Names, value: Any) -> Any:
    """Numbers and flags, at any depth."""
    if isinstance(value, dict):
        found = {key: figures(names, each) for key, each in value.items() if _NAME.fullmatch(key)}
        return {key: each for key, each in found.items() if each is not GONE}
    if isinstance(value, list):
        return [each for each in (figures(names, each) for each in value) if each is not GONE]
    return value if value is None else plain(names, value)


def gone(what: str) -> Keep:
    def count(names: Names, value: Any) -> Any:
        names.done.removed[what] += len(value) if isinstance(value, (list, dict)) else 1
        return GONE

    return count


def one_of(*words: str) -> Keep:
    return lambda names, value: value if value in words else names_left_out(names)


def names_left_out(names: Names) -> str:
    names.done.removed["texts"] += 1
    return LEFT_OUT


def matching(pattern: str) -> Keep:
    """Texts of a form that says nothing of the user"""
    form = re.compile(pattern)
    return lambda _, value: value if isinstance(value, str) and form.fullmatch(value) else GONE


def told(what: str, begin: str = "") -> Keep:
    """`left out` in the place of a text; of what begins with the pattern, that stays."""
    form = re.compile(begin)

    def replace(names: Names, value: Any) -> Any:
        names.done.removed[what] += 1
        known = form.match(value) if begin and isinstance(value, str) else None
        return f"{known[0]} {LEFT_OUT}" if known else LEFT_OUT

    return replace


def by(change: Callable[[Names, str], str]) -> Keep:
    return lambda names, value: change(names, value) if isinstance(value, str) else GONE


def _version(_: Names, text: str) -> Any:
    known = _VERSION.match(text)
    return known[0] if known else GONE


def _error(names: Names, text: str) -> Any:
    names.done.removed["texts of errors"] += 1
    kind = text.partition(":")[0]
    return kind if re.fullmatch(r"\w+", kind) else LEFT_OUT


def _function(names: Names, text: str) -> str:
    return names.chosen("Python functions", text)


def _override(names: Names, text: str) -> str:
    """`mm`, `package.module:function` or `path/of/file.py:function`"""
    file, colon, function = text.rpartition(":")
    begin = (
        (names.file(file) if file.endswith(".py") else names.chosen("overrides", file)) + colon
        if colon
        else ""
    )
    return begin + names.chosen("overrides", function)


def _no_space(_: Names, text: str) -> str:
    return text if text in map(os.strerror, errno.errorcode) else LEFT_OUT


def _boot(_: Names, text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]  # equal for the ranks of one host, as it was


def _source_lines(names: Names, value: Any) -> Any:
    lines = (known.get("lines") or {} for known in value.values() if isinstance(known, dict))
    names.done.removed["texts of source lines"] += sum(map(len, lines))
    return {}


def _keys(names: Names, value: Any) -> Any:
    """Dispatch keys, whose places count."""
    if isinstance(value, list):
        return [_keys(names, each) for each in value]
    return value if isinstance(value, str) and re.fullmatch(r"\w+", value) else LEFT_OUT


@dataclass(frozen=True)
class Each:
    """A dictionary whose keys are no fields."""

    key: Keep
    value: Any


_WORD = matching(r"\w+")
_ENTRY = {"op": by(Names.op), "key": _WORD, "why": one_of(*_WHY_OF_ENTRY)}
_NODE = {
    "op": by(Names.op),
    "source": by(Names.place),
    "dynamo": gone("names of variables"),
    "name": gone("names of nodes"),
}
_COUNTS_OF_CUDA = (
    *("cupti", "driver_version", "api_calls", "launches", "graph_launches", "kernels", "memcpys", "memsets"),
    *("graph_kernels", "dropped_activities", "stacks_not_taken", "buffers", "buffer_bytes"),
)
DOCUMENTS: dict[str, Any] = {
    "environment": {
        **dict.fromkeys(("tracer", "python", "torch", "torch_cuda"), by(_version)),
        **dict.fromkeys(
            ("platform", "cpu", "cores", "argv", "command", "cwd", "started_at"),
            lambda names, _: gone("facts of the environment")(names, ""),
        ),
        "attached": plain,
        "options": {
            **dict.fromkeys(("shapes", "source", "stack", "torch_frames", "modules", "why", "memory"), plain),
            **dict.fromkeys(("then_stop", "max_size", "max_dumps"), plain),
            "steps": figures,
            "cuda": one_of("auto", "on", "off"),
            "driver": one_of("launches", "all", "none"),
            "values": one_of("none", "hash", "scalars", "all"),
            "ops": gone("options"),
            "override": gone("options"),
        },
    },
    "settings": {
        **dict.fromkeys(("threads", "interop_threads", "deterministic"), plain),
        **dict.fromkeys(("cudnn_allow_tf32", "cudnn_benchmark", "cudnn_deterministic"), plain),
        "float32_matmul_precision": one_of("highest", "high", "medium"),
        "variables": gone("environment variables"),
    },
    "source_lines": _source_lines,
    "rank": {"rank": plain, "ranks": plain, "boot": by(_boot), "host": gone("names of hosts")},
    "libraries": [
        {"path": by(Names.library), "base": plain, "end": plain, "build_id": matching("[0-9a-f]*")}
    ],
    "enums": {
        **dict.fromkeys(("num_backends", "included_by_default", "excluded_by_default"), plain),
        "keys": _keys,
        "dtypes": Each(matching(r"\d+"), matching(r"(torch\.)?\w+")),
        "device_types": Each(matching(r"\d+"), _WORD),
        "layouts": Each(matching(r"\d+"), matching(r"(torch\.)?\w+")),
    },
    "certificate": {
        **dict.fromkeys(("entries", "hooked", "rearmed", "lost_hops", "ns_per_hop", "compiled_calls"), plain),
        **dict.fromkeys(("call_sites", "source_lines", "modules", "full", "outlived"), plain),
        **dict.fromkeys(("guards", "memory", "own_cost"), figures),
        "not_hooked": [_ENTRY],
        "lost_entries": [_ENTRY],
        "out_of_space": by(_no_space),
        "steps": {
            "wanted": figures,
            "ended": plain,
            "counted_by": one_of("tracer.step()", "optimizer.step()"),
        },
        "compiled": {
            "breaks": [
                {
                    "reason": told("reasons of graph breaks"),
                    "source": by(Names.place),
                    "not_compiled": by(_function),
                    "times": plain,
                }
            ],
            "missing": [by(lambda names, text: names.chosen("functions of torch that are missing", text))],
            "errors": [by(_error)],
        },
        "cuda": {
            **dict.fromkeys(_COUNTS_OF_CUDA, plain),
            "state": one_of("recorded", "failed", "held", "no driver", "not built", "off", "not used"),
            "why": one_of(*_WHY_OF_CUDA),
            "driver_calls": one_of("launches", "all", "none"),
            "library_hooks": Each(_WORD, lambda names, value: value if value is True else False),
            "torch_profiler": told("texts"),
            "lost": [told("texts")],
        },
    },
    "compiled": {
        "called": plain,
        "function": by(_function),
        "defined_at": by(Names.place),
        "direction": one_of("forward", "backward", "inference"),
        "compile_id": matching(r"[\d/_!]*"),
        "cache": one_of("hit", "miss", "bypass"),
        "recompiled": told("reasons of recompilations", r"\d+/\d+:"),
        "generated": by(Names.library),
        "artifact": matching(r"\w*"),
        "kind": _WORD,
        "how": one_of("compiled", "kept"),
        "hidden": one_of(*_WHY_HIDDEN),
        "graph_id": plain,
        "process": plain,
        "cpp_wrapper": plain,
        "kernels": Each(
            by(Names.compiled_kernel),
            {"language": one_of("C++", "Triton"), "line": plain, "threads": plain},
        ),
        "uses": Each(by(Names.compiled_kernel), [{"nodes": [_NODE], "bytes": plain}]),
    },
    "compiled_hidden": {},
    "launch": {
        "file": by(Names.library),
        "defined_at": by(Names.place),
        **dict.fromkeys(("configs", "registers", "spills", "num_warps", "num_stages"), plain),
    },
    "overrides": {
        "compiled_frames": plain,
        "overrides": [
            {
                "name": by(_override),
                "mode": _WORD,
                "operator": by(Names.op),
                "key": _WORD,
                "kernel": by(lambda names, text: names.chosen("kernels of overrides", text)),
                "registered_at": by(Names.registered_at),
                **dict.fromkeys(("from_ns", "to_ns", "times", "ran"), plain),
                "handed_over": Each(
                    by(lambda names, text: text if text in _REASONS else names.instead("reason", text)), plain
                ),
            }
        ],
    },
}
"""By the kind of the document, which ends at a colon: its fields, and what stays of each"""


def document(names: Names, kind: str, content: Any) -> Any:
    """What stays of a document; GONE: nothing."""
    form = DOCUMENTS.get(kind.partition(":")[0])
    if form is None or kind.count(":") > 1 or not re.fullmatch(r"\w+(:\d+)?", kind):
        names.done.removed["documents that are not known"] += 1
        return GONE
    return _fitted(names, content, form)


def _fitted(names: Names, value: Any, form: Any) -> Any:
    if isinstance(form, list):
        if not isinstance(value, list):
            return GONE
        return [kept for each in value if (kept := _fitted(names, each, form[0])) is not GONE]
    if isinstance(form, (dict, Each)):
        if not isinstance(value, dict):
            return GONE
        return _mapped(names, value, form) if isinstance(form, Each) else _fields(names, value, form)
    return form(names, value)


def _fields(names: Names, value: dict[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in value.items():
        if name not in form:
            names.done.removed["fields that are not known"] += 1
        elif each is None:
            found[name] = None
        elif (kept := _fitted(names, each, form[name])) is not GONE:
            found[name] = kept
    return found


def _mapped(names: Names, value: dict[str, Any], form: Each) -> dict[str, Any]:
    pairs = ((form.key(names, name), _fitted(names, each, form.value)) for name, each in value.items())
    return {name: each for name, each in pairs if GONE not in (name, each)}
