"""The names and paths that stay in a redacted trace.

A name stays if it has the form of one, as `Net.forward`. It is noted, and the command prints it, unless
KnownNames has it. Any other text is replaced by a number, or goes.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tracer.base.boundary import DEVICES
from tracer.base.known_names import KnownNames
from tracer.base.paths import short_path

_PART = r"(?:\w+|<(?:module|lambda|locals|string|unknown|(?:gen|list|dict|set)(?:expr|comp))>)"
NAME = re.compile(rf"{_PART}(?:(?:\.|::){_PART})*")
_SYMBOL = re.compile(r"[\w.$@]+")
_PSEUDO_FILE = re.compile(
    r"<(?:string|stdin|unknown|unknown source|eval_with_key|frozen [\w.]+|ipython-input-\d+-[0-9a-f]+)>"
    r"(?:\.\d+)?"
)
_PSEUDO_FILE_OF_PYTHON = re.compile(r"<(?:string|stdin|unknown|unknown source|eval_with_key)>(?:\.\d+)?")
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)", re.DOTALL)
_REGISTERED = re.compile(r"(?P<how>(?:fallthrough |registered at )*)(?P<file>.+?)(?P<line>:\d+)?", re.DOTALL)
# The file has no ` (`: each of many would be tried to the end of the text.
_PYTHON_KERNEL = re.compile(r"(?P<name>.+) \((?P<file>(?:(?! \().)+):(?P<line>\d+)\)", re.DOTALL)
_COMPILED_KERNELS = "kernels of compiled code"
_THREAD = re.compile(
    r"python[\d.]*|pt_autograd_\d+|cuda\d*|"
    r"pt_(?:main_thread|data_pin|data_worker|dist_engine|gloo_runloop|nccl_watchdg|nccl_heartbt|tcpstore_uv)"
)
_SHORT_PATH = re.compile(r"[\w.@+=,~ -]+(?:/[\w.@+=,~ -]+)*")
_MODULE_CALL = "\x1fmodule:"
_REASONS = ("another reason", "called by the override itself")
_LEFT_TO_STOCK = "\x1fhanded over:"
_OWN_RANGE = re.compile("(?P<kind>\x1f(?:kernel|bench|import):)(?P<name>[^#]*)(?P<number>#\\d+)?", re.DOTALL)
_RANGE_OF_CLASS = re.compile(r"(?:Optimizer\.(?:step|zero_grad)|enumerate\(DataLoader\))#(?P<name>[\w.]+)")
_RANGE_OF_TORCH = re.compile(
    "\x1f(?:call:\\d+|phase:(?P<phase>[\\w. ()<>-]+):[\\d/_!]*)"
    r"|ProfilerStep#\d+|(?:nccl|gloo|mpi|ucc|xccl):\w+|(?:DistributedDataParallel|DataParallel)\.\w+"
    r"|FSDP::\w+|Torch-Compiled Region: [\d/_]+|TorchDynamo Cache Lookup|Pregraph bytecode"
    r"|AOTDispatcher Runtime Wrapper Prologue|## Call CompiledFxGraph \w+ ##|CompiledFunction\w*"
)
_NOT_CHOSEN = frozenset(("torch", "tracer", *sys.stdlib_module_names))
"""Packages whose modules no user names"""
_PYTHON_NODE = "torch::autograd::PyNode"
_ARGUMENTS = frozenset(
    (
        *("none", "mean", "sum", "batchmean", "constant", "reflect", "reflection", "replicate", "circular"),
        *("zeros", "border", "nearest", "linear", "bilinear", "bicubic", "trunc", "floor", "tanh"),
        *("left", "right", "ij", "xy"),
    )
)
"""Texts that torch's own operators take"""
RULES = ("kernel", "math kernel", "autograd kernel", "default backend kernel", "backend fallback", "missing")


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

    def __init__(self, known: KnownNames) -> None:
        self.known = known
        self.done = Redaction()
        self.folder = ""
        """The folder of the script"""
        self.cwd = ""
        """Where it ran; "": unknown"""
        self._files: dict[str, str] = {}
        self._taken: Counter[str] = Counter()
        self._replaced: dict[tuple[str, str], int] = {}
        self._counts: Counter[str] = Counter()
        self._numbered: set[str] = set()

    def chosen(self, kind: str, text: str, *, known: bool = False) -> str:
        """A name of the form of one; it is noted, unless it is known."""
        if not NAME.fullmatch(text):
            return self.instead("name", text) if text else ""
        if not known:
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
        new = f"{word} {number}" if len(f"{word} {number}") <= len(text) else f"{word[0]}{number}"
        self._numbered.add(new)
        return new

    def node(self, text: str) -> str:
        """A class of C++, or `torch::autograd::PyNode MyFunctionBackward`."""
        begin, blank, name = text.partition(" ")
        if begin == _PYTHON_NODE and blank:
            return f"{begin} {self.chosen('autograd functions', name)}"
        return self.chosen("autograd functions", text, known=text in self.known.nodes)

    def op(self, text: str) -> str:
        return self.chosen("operators", text, known=text in self.known.operators)

    def key(self, text: str) -> str:
        """A dispatch key: one of a backend may have the name that its user gave it."""
        return self.chosen("dispatch keys", text, known=text in self.known.keys)

    def type(self, text: str) -> str:
        """Of elements, of devices, of layouts"""
        return self.chosen("types", text, known=text in self.known.types)

    def modules(self, names: str, root: str) -> tuple[str, str]:
        parts = [root, *names.split(".")] if names else [root]
        kept = [part if not part or NAME.fullmatch(part) else self.instead("name", part) for part in parts]
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
        self.done.keep("device kernels", text)
        return text

    def range(self, text: str) -> str:
        """Torch's ranges and tracer's own; the program's become numbers."""
        if known := _RANGE_OF_TORCH.fullmatch(text):
            self.done.keep("ranges of torch", (known["phase"] or "") if text.startswith("\x1f") else text)
            return text
        if known := _RANGE_OF_CLASS.fullmatch(text):
            self.done.keep("optimizers and loaders", known["name"])
            return text
        if text.startswith(_MODULE_CALL):
            root, _, names = text.removeprefix(_MODULE_CALL).partition(".")
            names, root = self.modules(names, root)
            return _MODULE_CALL + ".".join(filter(None, (root, names)))
        if text.startswith(_LEFT_TO_STOCK):
            return _LEFT_TO_STOCK + self.reason(text.removeprefix(_LEFT_TO_STOCK))
        if known := _OWN_RANGE.fullmatch(text):
            is_import = "import" in known["kind"]
            of = "imported modules" if is_import else _COMPILED_KERNELS
            nobodys = is_import and known["name"].partition(".")[0] in _NOT_CHOSEN
            return f"{known['kind']}{self.chosen(of, known['name'], known=nobodys)}{known['number'] or ''}"
        return self.instead("\x1frange" if text.startswith("\x1f") else "range", text)

    def reason(self, text: str) -> str:
        """Why an override left a call to stock."""
        return text if text in _REASONS else self.instead("reason", text)

    def cuda_function(self, text: str) -> str:
        return self.chosen("functions of CUDA", text)

    def compiled_kernel(self, text: str) -> str:
        return self.chosen(_COMPILED_KERNELS, text)

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
        place, inside = text, ""
        if text.endswith(")") and " (in " in text:
            place, _, inside = text[:-1].partition(" (in ")
        known = _REGISTERED.fullmatch(place)
        if not known:
            return ""
        library = f" (in {self.library(inside)})" if inside else ""
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
        return not _PSEUDO_FILE_OF_PYTHON.fullmatch(short) and not self.known.has_file(path, short)

    def function(self, text: str, file: str) -> str:
        """A function in Python"""
        known = self.known.has_function(text, self.file(file))
        return self.chosen("Python functions", text, known=known)

    def _short(self, path: str, folder: str) -> str:
        if _PSEUDO_FILE.fullmatch(path):
            return path
        path = re.sub(r"^[A-Za-z]:(?=/)", "", path.replace("\\", "/"))
        whole = path
        if not path.startswith("/"):
            whole = posixpath.normpath(posixpath.join(self.cwd or "/", path))
        short = short_path(whole, folder, self.cwd if folder else "")
        # It is written in the place of the path, which `../../` may make longer.
        fits = len(short) <= len(path) and _SHORT_PATH.fullmatch(short)
        return short if fits else self.instead("file", path)

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

    def group(self, name: str) -> str:
        """Of a process group: the same in all ranks."""
        hashed = hashlib.sha256(name.encode()).hexdigest()[: len(name)]
        return name if name.isdigit() else hashed

    def _named(self, name: str, value: Any) -> Any:
        if name == "process_group" and isinstance(value, str):
            return self.group(value)
        if name == "device" and isinstance(value, str) and (known := _DEVICE.fullmatch(value)):
            return f"{self.chosen('types', known['type'], known=known['type'] in DEVICES)}{known['number']}"
        if name == "unknown" and isinstance(value, str) and _UNKNOWN.fullmatch(value):
            return value
        return _numbers(value)


_NAMED = frozenset(("complex", "tensors", "device", "process_group", "unknown"))
_DEVICE = re.compile(r"(?P<type>[a-z]+)(?P<number>(?::\d+)?)")
_UNKNOWN = re.compile(
    r"(?:list|text) of \d+ (?:elements|bytes)|Storage|SymInt|SymFloat|SymBool|Tuple|Blob|GenericDict|Future|"
    r"Await|Stream|Object|PyObject|Uninitialized|Capsule|RRef|Quantizer|Generator|Enum"
)
"""Kinds of torch's IValue for which JSON has no type"""


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return value if isinstance(value, (bool, int, float)) else ""
