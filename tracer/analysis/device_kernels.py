"""Short names of device kernels: what they compute and which instance ran, without the noise."""

from __future__ import annotations

import re
from functools import cache

from tracer.base.numerals import number_of
from tracer.trace.names.demangle import demangle
from tracer.trace.names.kernels import ANONYMOUS, arguments, closing, is_deep

_LAMBDA = re.compile(r"\{lambda|\{unnamed|'lambda")
_LITERAL = re.compile(r"(?:\([\w: ]+\))?(-?\d+|true|false)(?:u?l?l?|ul)?")
_FLOATS = {
    "float": "float",
    "double": "double",
    "__half": "half",
    "half": "half",
    "c10::Half": "half",
    "__nv_bfloat16": "bf16",
    "c10::BFloat16": "bf16",
    "c10::complex<float>": "complex<float>",
    "c10::complex<double>": "complex<double>",
    "c10::Float8_e4m3fn": "e4m3",
    "c10::Float8_e5m2": "e5m2",
}
_INTEGERS = {"bool", "char", "signed char", "unsigned char", "short", "int", "unsigned int", "long"}
_FUNCTOR = re.compile(
    r"^(?:plus|minus|multiplies|divides|maximum|minimum|Abs|Exp|Log\w*|Neg|Reciprocal|Sigmoid|Sign|Sqrt|Tanh)$"
    r"|[Ff]unctor|Ops?$|_op$|OpaqueType|[Pp]olicy|[Tt]raits|gemm|conv|fprop|dgrad|wgrad|[Ff]lash|[Ff]mha"
)
_TRANSPARENT = {
    *("ReduceOp", "func_wrapper_t", "Kernel", "Kernel2", "device_kernel", "enable_sm90_or_later"),
    *("gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "BinaryFunctor", "opmath_symmetric"),
    *("distribution_nullary_kernel", "distribution_unary_kernel", "distribution_binary_kernel"),
}
"""Templates whose own name says less than the function or functor in their arguments."""
_BARE = {"kernel", "Kernel", "run", "launch"}
_ABI_TAG = re.compile(r"\[abi:[^\]]*\]")
_MANGLED = re.compile(r"S[0-9A-Z]*_|T\d*_|L[a-z]n?(?P<literal>\d+)E|(?P<length>[1-9]\d*)|(?P<open>I)|.", re.S)
_PASSES = ("fprop", "dgrad", "wgrad")
_LIBRARY_TYPES = {"tfloat32_t": "tf32", "half_t": "half", "bfloat16_t": "bf16", "float_e4m3_t": "e4m3"}
_TYPES = "tf32|f32|f16|bf16|f64|i8|i32|s8|s32|e4m3|e5m2"
_TYPE_RUN = re.compile(rf"^({_TYPES})(?:{_TYPES})*$")
_NOISE = re.compile(
    r"^(?:stage\d+|warpsize[\dx]+|warpgroupsize[\dx]+|g1|align[a-c]?\d+|execute|kernel|5x|cudnn|cublas|gemm"
    r"|implicit|tensor\d+x\d+x\d+|n[cdhw]+k[cdrs]+|)$"
)


@cache
def short_device_kernel(name: str) -> str:
    """`vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>` of a device kernel's symbol.

    Namespaces, parameters, index types and iterators are taken away. Of template arguments stay
    numbers, functors (a lambda shows as the function around it) and floating-point types,
    each once; a name that is not C++ stays as it is.
    """
    if name.startswith(("memcpy ", "memset")):
        return name
    text = demangle(name).replace(f"{ANONYMOUS}::", "").replace("<unnamed>::", "")
    text = _ABI_TAG.sub("", text).strip()
    if text.startswith("_Z"):
        return _short_mangled(text) or name
    if is_deep(text):
        return name
    return _short(_without_return_type(_until_parameters(text)), outermost=True) or name


def table_name(short: str | None) -> str:
    """A short name for a table: what tells kernels of cuBLAS, cuDNN and CUTLASS apart comes first.

    `sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warp...`
    reads `sm90_xmma_wgrad_indexed tf32 nhwc 128x64x32 segment-k on`: its pass, the type that it multiplies
    in, layout, tile and how the sum is split. Kernels over lists of tensors name each type once. Names
    of other kinds stay. None, as a damaged trace has it, is `?`.
    """
    if short is None:
        return "?"
    if short.startswith("multi_tensor_apply_kernel<"):
        return re.sub(r"(?<=\w)<(?:float|double|half|bf16)>|, (?:float|double)(?=>$)", "", short)
    if "<" in short or "_xmma_" not in short:
        return short
    words = short.replace("segment_k", "segment-k").replace("split_k", "split-k").split("_")
    head: list[str] = []
    types: list[str] = []
    rest: list[str] = []
    for number, word in enumerate(words):
        if run := _TYPE_RUN.match(word):
            types.append(run[1])
        elif word.startswith("tilesize"):
            rest.append(word.removeprefix("tilesize"))
        elif word in ("off", "on") and rest and rest[-1].startswith("segment-k"):
            rest[-1] += f" {word}"
        elif types or rest:
            rest += [word] * (not _NOISE.match(word))
        elif number < 2 or not _NOISE.match(word):
            head.append(word)
    gemm = "_gemm" if "gemm" in words and "implicit" not in words else ""
    computed = types[1:2] or types  # inputs, what is multiplied, output
    return " ".join(filter(None, ["_".join(head) + gemm, *computed[:1], *rest]))


def _short_mangled(symbol: str) -> str:
    """Of a name that no demangler reads (libstdc++'s gives up beyond 1,024 characters).

    The function, or the class in a template that says nothing by itself; of a convolution also its
    pass, of a matrix product the tile and the type: `ImplicitGemmConvolution<wgrad, 64x128x16, tf32>`.
    """
    words, numbers = _pieces(symbol)
    names = [word for word in words if word != "<"]
    opened = words.index("<") if "<" in words else len(words)
    head = words[opened - 1] if opened else symbol
    if head in _TRANSPARENT:
        inner = words[opened + 1 :]
        head = inner[inner.index("<") - 1] if "<" in inner[1:] else head
    kept = [word for word in _PASSES if any(word in name.lower() for name in names)][:1]
    if shape := numbers.get("GemmShape"):
        kept.append("x".join(shape))
    kept += [short for name, short in _LIBRARY_TYPES.items() if name in names][:1]
    return f"{head}<{', '.join(kept)}>" if kept else head


def _pieces(symbol: str) -> tuple[list[str], dict[str, list[str]]]:
    """The names in a mangled symbol in order ("<" where template arguments begin).

    And of each name the literals in its template arguments, where it comes first.
    """
    words: list[str] = []
    numbers: dict[str, list[str]] = {}
    position, filling = symbol.find("N") + 1 if symbol.startswith("_ZN") else 2, ""
    while position < len(symbol):
        piece = _MANGLED.match(symbol, position)
        assert piece is not None
        position = piece.end()
        if piece["length"]:
            length = number_of(piece["length"]) or len(symbol)
            words.append(symbol[position : position + length])
            position += length
            filling = ""
        elif piece["open"] and words:
            filling = "" if words[-1] in numbers else words[-1]
            words.append("<")
        elif piece["literal"]:
            if filling:
                numbers.setdefault(filling, []).append(piece["literal"])
        else:
            filling = ""
    return words, numbers


def _short(text: str, *, outermost: bool = False) -> str:
    """The last part of a qualified name with those of its template arguments that matter."""
    start = text.find("<")
    head = _last(text if start < 0 else text[:start])
    if start < 0:
        return head
    found = arguments(text, start)
    kept: list[str] = []
    for shown in filter(None, map(_argument, found)):
        if shown not in kept or _LITERAL.fullmatch(shown):
            kept.append(shown)
    if head in _TRANSPARENT:
        inner = [word for word in kept if not _plain_word(word)] or [
            _short(word) for word in found if "::" in word and word not in _FLOATS
        ]
        return inner[0] if inner else head
    if not outermost:
        kept = [word for word in kept if word not in ("true", "false")][:2]
    return f"{head}<{', '.join(kept)}>" if kept else head


def _argument(text: str) -> str:
    """How a template argument reads; "" where it does not matter."""
    if literal := _LITERAL.fullmatch(text):
        return literal[1]
    if text in _FLOATS:
        return _FLOATS[text]
    if text in _INTEGERS or text.endswith(("*", "&")):
        return ""
    if _LAMBDA.search(text):
        # f(...)::{lambda} and g<f(...)::{lambda}>(...)::{lambda}: the function that it is in
        return _short(_class_of_operator(_until_parameters(text)))
    head = _last(text.partition("<")[0])
    return _short(text) if head in _TRANSPARENT or _FUNCTOR.search(head) else ""


def _class_of_operator(text: str) -> str:
    return text.removesuffix("::operator")


def _plain_word(word: str) -> bool:
    return bool(_LITERAL.fullmatch(word)) or word in _FLOATS.values()


def _last(qualified: str) -> str:
    """The name without its namespaces; with the last of them where the name alone says nothing."""
    space, _, name = qualified.strip().rpartition("::")
    return f"{space.rpartition('::')[2]}::{name}" if space and name in _BARE - _TRANSPARENT else name


def _until_parameters(text: str) -> str:
    """Cuts the list of parameters off: the bracket that closes at the end of the name."""
    position = 0
    while position < len(text):
        if text[position] == "<":
            position = closing(text, position)
        elif text[position] == "(":
            return text[:position]
        position += 1
    return text


def _without_return_type(text: str) -> str:
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += (text[position] in ">)}") - (text[position] in "<({")
        if text[position] == " " and depth == 0:
            return text[position + 1 :]
    return text
