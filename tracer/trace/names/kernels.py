"""Readable names of kernel functions, and torchgen's rule for the names of those that it makes.

gdb's own Python loads this file alone, so it imports nothing of tracer.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate

ANONYMOUS = "(anonymous namespace)"
_UNBOXED = "c10::impl::wrap_kernel_functor_unboxed_<"
_BOXED = "c10::impl::make_boxed_from_unboxed_functor<"
_FALLBACK = "c10::BoxedKernel::make_boxed_function<"
_BOXED_FUNCTORS = ("c10::BoxedKernel::makeFromFunctor<", "c10::BoxedKernel::make_boxed_functor<")
_STABLE = "torch::stable::detail::boxer<"
_COMPILE_TIME = "c10::impl::detail::WrapFunctionIntoFunctor_<"
_RUN_TIME = "c10::impl::detail::WrapFunctionIntoRuntimeFunctor_<"
_POINTER = "c10::CompileTimeFunctionPointer<"
_LITERAL = re.compile(r"-?\d+[a-z]*|true|false|\([\w:]+\)-?\d+")
_CLONE = re.compile(r"( \[clone [^\]]*\])+$")
_DEEPEST = 64
WRAPPER = "wrapper_"
"""Begins the name of a backend's kernel function: wrapper_CPU_mm. Old versions of torch give no key."""
_QUALIFIERS = (" const", " volatile", " &", " &&", "&&", "&")


@cache
def short_kernel_name(name: str) -> str:
    """What a kernel author calls the function `name` (demangled).

    The dispatcher's wrappers, types, parameters and anonymous namespaces are taken away; of
    template arguments functions and literals stay, since they tell instances apart.
    """
    name = _CLONE.sub("", name)
    if is_deep(name):
        return name
    if name.startswith(_STABLE):
        return _function(arguments(name, len(_STABLE) - 1)[-1])
    for wrapper in (_UNBOXED, _BOXED, _FALLBACK, *_BOXED_FUNCTORS):
        # A return type may precede it: names of function templates include theirs.
        start = name.find(wrapper)
        if start in (0, len("void ")):
            return _target(arguments(name, start + len(wrapper) - 1)[0])
    return _plain(name)


def wrapper_names(op: str) -> list[str]:
    """What may follow `wrapper_KEY_`, in pairs: `_mm`, and `mm` of a structured kernel; then variants."""
    base, _, overload = op.rpartition("::")[2].partition(".")
    names = [f"{base}{variant}" for variant in ("", "_out", "_symint", "_out_symint")]
    pairs = [(f"{overload}_{name}", f"{name}_{overload}" if overload else name) for name in names]
    return [each for pair in pairs for each in pair]


def method_names(op: str) -> list[str]:
    """The names in namespaces such as VariableType: `mm_out_out` for `aten::mm.out`."""
    return wrapper_names(op)[1::2]


def implements(kernel: str, op: str) -> bool:
    """Whether torchgen calls a kernel function of `op` so."""
    name = kernel.rpartition("::")[2]
    if not name.startswith(WRAPPER):
        return name in method_names(op)
    name = name.removeprefix(WRAPPER)
    # a key has no underscore in its name, so that wrapper_CPU___int_mm is not taken for one of mm
    return not {name, name.partition("_")[2]}.isdisjoint(wrapper_names(op))


def node_name(name: str) -> str:
    """The name that Python shows for an autograd node: the last part of its C++ or Python class."""
    return name.rpartition(" ")[2].rpartition("::")[2]


def _target(functor: str) -> str:
    if functor.startswith(_COMPILE_TIME):
        pointer = arguments(functor, len(_COMPILE_TIME) - 1)[0]
        if pointer.startswith(_POINTER):
            return _function(arguments(pointer, len(_POINTER) - 1)[-1])
    if functor.startswith(_RUN_TIME):
        function = arguments(functor, len(_RUN_TIME) - 1)[0]
        return f"function pointer {function}" if "(*)" in function else _plain(function)
    return _function(functor)


def _function(argument: str) -> str:
    """The name in a template argument `&name` or `&(type name<...>(...))`."""
    argument = argument.removeprefix("&")
    if argument.startswith("(") and not argument.startswith(ANONYMOUS):
        argument = argument[1:-1]
    return _plain(argument)


def _plain(name: str) -> str:
    text = name.replace(ANONYMOUS, "\0")
    while text.endswith(_QUALIFIERS):
        text = text[: max(text.rfind(" "), text.rfind(")") + 1)].rstrip()
    kept: list[str] = []
    position = 0
    while position < len(text):
        operator = re.match(r"operator\(\)|operator(<=>|<<=?|>>=?|->\*?|<=?|>=?)", text[position:])
        if operator and (position == 0 or text[position - 1] in ": "):
            kept.append(operator[0])
            position += len(operator[0])
        elif text[position] in "<(":
            end = closing(text, position)
            if text[position] == "<":
                kept.append(_template(text, position))
            position = end + 1
        else:
            kept.append(text[position])
            position += 1
    return _qualified("".join(kept)) or name


def _template(text: str, start: int) -> str:
    """The arguments that tell instances apart: functions and literals."""
    kept = []
    for argument in arguments(text, start):
        if argument.startswith("&"):
            kept.append(_function(argument.replace("\0", ANONYMOUS)))
        elif _LITERAL.fullmatch(argument):
            kept.append(argument)
    # Spaces end a return type, so they are hidden until it is cut off.
    return f"<{','.join(kept)}>".replace(" ", "\1") if kept else ""


def _qualified(text: str) -> str:
    """Cuts the return type and the anonymous namespaces off."""
    text = text.strip().rsplit(" ", 1)[-1]
    text = text.replace("\0::", "").replace("\0", "").replace("\1", " ").replace(",", ", ")
    text = text.replace(",  ", ", ")
    return text.removeprefix("at::") if text.startswith(f"at::{WRAPPER}") else text


def is_deep(text: str) -> bool:
    """Whether templates nest deeper than in any function's name; that takes long, and all of the stack."""
    return _depth(text) > _DEEPEST


def _depth(text: str) -> int:
    """The largest nesting depth of template brackets and parentheses."""
    steps = [(letter in "<(") - (letter in ">)") for letter in text if letter in "<>()"]
    return max(accumulate(steps), default=0)


def arguments(text: str, start: int) -> list[str]:
    """What the bracket that opens at `start` encloses, split at commas: `f<a<b, c>, d>` -> a<b, c>, d."""
    end = closing(text, start)
    found, begin, position = [], start + 1, start + 1
    while position < end:
        if text[position] in "<({[":
            position = closing(text, position)
        elif text[position] == ",":
            found.append(text[begin:position].strip())
            begin = position + 1
        position += 1
    found.append(text[begin:end].strip())
    return found


def closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` is closed; the end of the text if nowhere."""
    depth = 0
    for position in range(start, len(text)):
        character = text[position]
        if character in "<({[":
            depth += 1
        elif character in ">)}]" and text[position - 1] != "-":
            depth -= 1
            if depth == 0:
                return position
    return len(text)
