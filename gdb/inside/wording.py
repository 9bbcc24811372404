"""How stops, tensors and frames are written at gdb's command line."""

import re

_OP_CALL = re.compile(r"at::_ops::\w+::(call|redispatch)\b")
# Libraries whose functions are not what an operator runs
_BENEATH = ("python", "libpython", "libc.so", "libc-", "libstdc++", "libgcc_s", "ld-linux", "libffi")


def stop(described, look):
    """Lines: what kind of stop, which operator at which key, and the tensors among its arguments."""
    words = [described["kind"]]
    if described.get("op"):
        words.append(described["op"])
    if look.key:
        words.append(f"[{look.key}]")
    if described["kind"] not in ("call", "redispatch"):
        words.append(described["name"])
    lines = [" ".join(words)]
    for argument in look.arguments():
        for name, value in tensors(argument["name"], argument["value"]):
            lines.append(f"  {name}: {tensor(value, keys=False)}")
    return "\n".join(lines)


def tensors(name, value):
    """[(name, tensor)] of an argument: itself, or the elements of a list; [] where it is no tensor."""
    if isinstance(value, list):
        numbered = [(f"{name}[{number}]", each) for number, each in enumerate(value)]
    else:
        numbered = [(name, value)]
    return [(name, each) for name, each in numbered if isinstance(each, dict) and "defined" in each]


def tensor(value, keys=True):
    """One line of a tensor, as tensors.Tensors tells it."""
    if not value["defined"]:
        return "undefined"
    shape, stride = ("unknown" if value[name] is None else str(value[name]) for name in ("shape", "stride"))
    words = ["shape " + shape, "stride " + stride, str(value["dtype"]), str(value["device"])]
    if keys:
        words.append("keys " + " ".join(value["keys"]))
    return ", ".join(words)


def value(shown):
    """One line of a value, as values.Values tells it."""
    if isinstance(shown, list):
        return "[%s%s]" % (", ".join(value(each) for each in shown[:8]), ", ..." if len(shown) > 8 else "")
    if not isinstance(shown, dict):
        return "none" if shown is None else str(shown)
    if "defined" in shown:
        return "<%s>" % tensor(shown, keys=False)
    if "keys" in shown:
        return "|".join(shown["keys"]) or "no key"
    if "count" in shown:
        return "%d elements" % shown["count"]
    return "<not read%s>" % (": " + shown["why"] if shown.get("why") else "")


def dispatch_path(frames):
    """[(number, kind, frame)]: hops and the native functions above and between them, of a backtrace."""
    kinds = [kind(frame) for frame in frames]
    hops = [number for number, each in enumerate(kinds) if each not in ("native", "")]
    return [
        (number, kinds[number], frames[number])
        for number in range(max(hops, default=-1) + 1)
        if kinds[number]
    ]


def kind(frame):
    """call, redispatch, kernel or native; "" for a frame outside the dispatch path."""
    match = _OP_CALL.match(frame.symbol)
    if match:
        return match[1]
    if frame.plumbing:
        return ""
    if frame.wrapper:
        return "kernel"
    return "" if not frame.function or frame.library.startswith(_BENEATH) else "native"


def frame(number, described, each):
    """One line of a backtrace."""
    place = f"  {each.file}:{each.line}" if each.file else ""
    return f"#{number:<3d} {described:10s} {each.function or '??'}{place}"
