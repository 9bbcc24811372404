"""Which hits of a breakpoint count: condition, n-th hit, limit; a whole op call counts as one hit."""

_FUNCTIONS = {"len": len, "any": any, "all": all, "min": min, "max": max, "sum": sum, "range": range}
_KERNELS = ("kernel", "boxed kernel")
_CALLS = ("call", "boxed call")
_BEGINS = (*_CALLS, "function", "line")  # kinds of points at which an op call or a hit begins


class Group:
    """The points of one breakpoint that the user set.

    Of an operator the condition is asked where an op call begins; the stops further down its dispatch
    path belong to it and are recorded with it. With a key only the kernel functions at that key count.
    Op calls nest, so each thread has a stack of those that are running, by the stack pointer at which
    they began. `limit` is of op calls, and of hits where there is no op call.
    """

    def __init__(self, spec, at=None, when=None, limit=None, halt=False, key=None, counting=None):
        self.spec = spec
        self.counting = counting  # the breakpoint for whose sake this one counts and records nothing
        self.halt = halt
        self.hits = 0
        self.recorded = 0
        self.taken = 0  # op calls and hits that were recorded
        self.left_out = 0  # and those beyond the limit
        self.errors = []
        self._at = at
        self._when = compile(when, "--when", "eval") if when is not None else None
        self._limit = limit
        self.key = key
        self._running = {}  # thread: [(stack pointer, wanted)]

    def wants(self, kind, thread, stack_pointer, seen):
        """Whether this hit is recorded."""
        running = self._running.setdefault(thread, [])
        while running and running[-1][0] <= stack_pointer:
            running.pop()
        if self.key is not None:
            wanted = (
                kind in _KERNELS
                and seen.key == self.key
                and self._holds(seen)
                and self._count()
                and self._take()
            )
        elif kind in _BEGINS:
            wanted = self._holds(seen) and self._count() and self._take()
            if kind in _CALLS:
                running.append((stack_pointer, wanted))
        elif running:
            wanted = running[-1][1]
        else:  # called without the operator's function, from boxed code
            wanted = self._at is None and self._holds(seen) and self._take()
        self.recorded += wanted
        return wanted

    def _take(self):
        if self._limit is not None and self.taken >= self._limit:
            self.left_out += 1
            return False
        self.taken += 1
        return True

    def _count(self):
        self.hits += 1
        return self._at is None or self.hits == self._at

    def _holds(self, seen):
        if self._when is None:
            return True
        try:
            return bool(eval(self._when, names(seen)))
        except Exception as error:  # whatever the user's expression raises
            text = "%s: %s" % (type(error).__name__, error)
            if text not in self.errors:
                self.errors.append(text)
            return False


def names(seen):
    """What `--when` may use: shape(i), stride(i), dtype(i), device(i), keys(i), dim(i) of the i-th tensor
    among the arguments, tensors (their number) and key."""

    def tensor(index):
        found = seen.tensors()
        if not -len(found) <= index < len(found):
            raise IndexError("the arguments hold %d tensors, none is number %d" % (len(found), index))
        return found[index]

    known = {
        name: lambda index=0, name=name: tensor(index).get(name)
        for name in ("shape", "stride", "dtype", "device", "keys")
    }
    known["dim"] = lambda index=0: len(tensor(index)["shape"])
    return {**_FUNCTIONS, **known, "tensors": len(seen.tensors()), "key": seen.key, "__builtins__": {}}
