"""Programs that write their own Python stacks, to compare with what is read of them from outside."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

COMMON = r"""
import _thread, contextlib, ctypes, functools, importlib.util, json, os, signal, sys, threading, types


def load(path):
    path = os.path.join(sys.argv[1], path)
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Memory:
    def __init__(self):
        self.file = os.open("/proc/self/mem", os.O_RDONLY)

    def read(self, address, size):
        return os.pread(self.file, size, address)


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)
"""

# Runs in each Python. Every scenario stops once or more, and writes what sys._getframe says there.
PROGRAM = (
    COMMON
    + r"""
MODE, OUT = sys.argv[2:4]


def write(**record):
    with open(OUT, "a") as out:
        out.write(json.dumps(record) + "\n")


def running(frame):
    found = []
    while frame is not None:
        found.append([frame.f_code.co_filename, name_of(frame.f_code), frame.f_lineno or 0])
        frame = frame.f_back
    return found


asked, answered = _thread.allocate_lock(), _thread.allocate_lock()
asked.acquire(), answered.acquire()
request, answer = [], []


def watch(stack):
    while asked.acquire():
        answer[:] = stack.frames(request[0], limit=200)
        answered.release()


def stop_for_thread():
    request[:] = [threading.get_ident()]
    expected = running(sys._getframe()); asked.release(); answered.acquire()
    write(scenario=scenario, expected=expected, found=list(answer))


def stop_for_gdb():
    me, trap = threading.get_ident(), signal.SIGTRAP
    write(scenario=scenario, expected=running(sys._getframe())); signal.pthread_kill(me, trap)


SCENARIOS = []


def case(function):
    SCENARIOS.append(function)
    return function


@case
def nested():
    def inner():
        def innermost():
            stop()

        innermost()

    inner()


@case
def methods():
    class Outer:
        class Inner:
            def __init__(self, depth):
                self.depth = depth
                if depth:
                    Outer.Inner(depth - 1)
                else:
                    stop()

            def __call__(self):
                stop()

            @property
            def value(self):
                return stop()

            def __getattr__(self, name):
                stop()

            def __enter__(self):
                stop()

            def __exit__(self, *error):
                stop()

            @classmethod
            def make(cls):
                return cls(1)

    for _ in range(20):  # enough for the interpreter to specialise the calls
        inner = Outer.Inner.make()
    inner()
    inner.value
    inner.missing
    with inner:
        pass
    [inner.make() for _ in range(2)]


@case
def lambdas():
    (lambda: [stop() for _ in (1,)])()


@case
def comprehensions():
    [stop() for _ in (1,)]
    {stop(): 1 for _ in (1,)}
    {
        _: [
            stop()
            for _ in (1,)
        ]
        for _ in (2,)
    }
    list(stop() for _ in (1,))


@case
def generators():
    def inner():
        yield 1
        stop()
        received = yield 2
        stop()

    def outer():
        yield from inner()

    generator = outer()
    for value in generator:
        if value == 2:
            break
    with contextlib.suppress(StopIteration):
        generator.send(3)

    async def leaf():
        stop()

    async def trunk():
        await leaf()
        return [await leaf() for _ in (1,)]

    with contextlib.suppress(StopIteration):
        trunk().send(None)


@case
def called_from_c():
    sorted([3, 2], key=lambda value: stop() or value)
    functools.partial(functools.partial(lambda a, b: stop(), 1), 2)()
    list(map(lambda value: stop(), (1,)))
    functools.reduce(lambda a, b: stop(), (1, 2))
    sorted([1], key=lambda value: sorted([2], key=lambda value: stop()))


@case
def multi_line_calls():
    dict(
        a=1,
        b=[
            2,
            stop(),
        ],
        c=(lambda:
           stop())(),
    )
    (stop
     (
     )
    )
    text = (
        f"{stop()}"
        f"{stop()}"
    )


def decorated(*arguments):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    stop()
    return decorate


@case
def decorators():
    @decorated(
        1,
        2,
    )
    @decorated(
        stop(),
    )
    def function():
        stop()

    function()


@case
def handlers():
    try:
        try:
            raise KeyError
        except KeyError:
            stop()
            raise
        finally:
            stop()
    except KeyError:
        stop()


@case
def recursion(depth=100):
    if depth:
        return recursion(depth - 1)
    stop()


def run_source(source, file, **names):
    names["stop"] = stop
    exec(compile(source, file, "exec"), names)


@case
def foreign_names():
    for name in ("caf\xe9", "\u0436\u0443\u043a", "\U00010330\U00010331", "a" * 300):
        for file in ("/tmp/plain", "/tmp/\xe9t\xe9", "/tmp/\u0436", "/tmp/\U0001f40d", "/tmp/bad\udce9", ""):
            run_source("def %s():\n stop()\n%s()" % (name, name), file)


@case
def far_lines():
    gap = "\n" * 1000
    run_source(gap * 70 + "def f(a):" + gap + " stop()\n return f" + gap + "f(" + gap + "stop()\n)", "<far>")
    long = "\n".join(" x = %d" % i for i in range(3000))
    run_source("def g(x):\n" + long + "\n stop()\n" + long + "\ng(1)", "<long>")


@case
def class_bodies():
    class Body:
        stop()

        class Inner(metaclass=lambda *args: stop()):
            pass


@case
def cells_and_stars():
    def function(*args, **kwargs):
        def inner():
            return args, kwargs, stop()

        return inner()

    function(*[1, 2], **{"a": 1})


@case
def address_reused():
    # The same shape again and again: CPython gives the next one the addresses of the one before.
    for i in range(30):
        blank = "\n" * (i % 3)
        run_source("def name_%d():\n%s stop()\nname_%d()" % (i % 5, blank, i % 5), "<reused>")


@case
def imported():
    path = os.path.join(os.path.dirname(OUT), "imported_module.py")
    with open(path, "w") as out:
        out.write("import builtins\n\nbuiltins.stop_here()")
    import builtins

    builtins.stop_here = stop
    sys.path.insert(0, os.path.dirname(OUT))
    import imported_module


@case
def traced():
    old = sys.gettrace()
    sys.settrace(lambda *args: None)
    try:
        nested()
    finally:
        sys.settrace(old)


@case
def other_thread():
    waiting = threading.Event()
    others = [threading.Thread(target=waiting.wait) for _ in range(3)]
    [other.start() for other in others]
    thread = threading.Thread(target=lambda: nested())
    thread.start()
    thread.join()
    waiting.set()
    [other.join() for other in others]
    nested()


layout = load("gdb/inferior/python_layout.py").measure()
write(layout=layout)
if MODE == "gdb":
    stop = stop_for_gdb
else:
    stop = stop_for_thread
    _thread.start_new_thread(watch, (load("gdb/inside/python_stack.py").PythonStack(layout, Memory()),))

for function in SCENARIOS:
    scenario = function.__name__
    function()
"""
)

# Compares the lines of every instruction of many functions with PyCode_Addr2Line's.
LINE_CHECK = (
    COMMON
    + r"""
import ast, argparse, inspect, re, typing

module = load("gdb/inside/python_stack.py")
stack = module.PythonStack(load("gdb/inferior/python_layout.py").measure(), Memory())
prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_int)
line_of = prototype(("PyCode_Addr2Line", ctypes.pythonapi))
codes, waiting = [], []
for library in (ast, argparse, inspect, os, re, threading, typing, module):
    with open(library.__file__) as source:
        waiting.append(compile(source.read(), library.__file__, "exec"))
while waiting:
    codes.append(waiting.pop())
    waiting += [const for const in codes[-1].co_consts if isinstance(const, types.CodeType)]
compared = different = 0
for code in codes:
    read = stack.codes.read(module.Window(stack.memory), id(code))
    different += (read.file, read.function) != (code.co_filename, name_of(code))
    for offset in range(-2, len(code.co_code), 2):
        compared += 1
        different += read.line(offset) != max(0, line_of(code, max(offset, -1)))
print(compared, different)
"""
)

GDB_SCRIPT = """
import json, os, sys, time
import gdb

ROOT, OUT = os.environ["STACK_ROOT"], os.environ["STACK_OUT"]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "gdb", "inside"))
from python_stack import PythonStack


class Memory:
    reads = 0

    def read(self, address, size):
        self.reads += 1
        return gdb.selected_inferior().read_memory(address, size).tobytes()


def step(command):
    gdb.execute(command, to_string=True)
    return gdb.selected_inferior().pid


for command in ("set pagination off", "set startup-with-shell off", "handle SIGTRAP nopass"):
    gdb.execute(command, to_string=True)
alive, stack, memory = step("run"), None, Memory()
while alive:
    with open(OUT) as records:
        lines = records.readlines()
    if stack is None:
        stack = PythonStack(json.loads(lines[0])["layout"], memory)
    thread = int(gdb.parse_and_eval("(unsigned long)$fs_base"))
    frames = stack.frames(thread, 200)
    memory.reads, start = 0, time.perf_counter()
    warm = stack.frames(thread, 10)
    us, reads = (time.perf_counter() - start) * 1e6, memory.reads
    with open(OUT + ".found", "a") as out:
        record = {"found": frames, "warm": warm, "us": us, "reads": reads, "none": stack.frames(thread + 64)}
        out.write(json.dumps(record) + "\\n")
    alive = step("continue")
"""
