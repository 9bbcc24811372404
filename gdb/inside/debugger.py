"""What the host drives inside gdb: `python tracer_debugger.NAME(...)`, each with one JSON document."""

import importlib.util
import json
import os

import finish
import printers
from arguments import Arguments
from frames import Backtraces
from here import Here
from hops import of_offsets
from kernels import Table
from memory import InferiorMemory
from plumbing import Plumbing
from python_stack import PythonStack
from stops import Forks, Leaving, Look, Place, Point, at_entry
from symbols import behind_prologue
from tensors import Tensors
from values import BOXED, SCALARS, Values
from wanted import Group

import gdb

_NO_TENSORS = {
    "offsets": {},
    "dtypes": {},
    "device_types": [],
    "undefined": 0,
    "keys": {"backends": 0, "names": []},
}


def _load(path):
    spec = importlib.util.spec_from_file_location("tracer_names", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Debugger:
    """One session. `folder` holds facts.json, which the debugged process wrote, and gets stops.jsonl."""

    def __init__(self, folder, names, options):
        with open(os.path.join(folder, "facts.json")) as file:
            facts = json.load(file)
        self.notes = []  # what cannot be seen, and why
        memory = InferiorMemory()
        measured = self._measured(facts, "tensor_layout", "tensors", _NO_TENSORS)
        tensors = Tensors(measured, memory)
        scalars, boxed = measured.get("scalars") or SCALARS, measured.get("boxed") or BOXED
        values = Values(tensors, memory, measured.get("flag_first"), scalars, boxed)
        naming = _load(names)
        schemas = self._measured(facts, "schemas", "names of arguments", {})
        self.table = self._dispatch_table(facts, memory, schemas, tensors.key_sets, naming)
        self.place = Place(
            memory,
            tensors,
            values,
            Arguments(values),
            Backtraces(naming.short_kernel_name, memory),
            self._python_stack(facts["python_layout"], memory),
            schemas,
            self.table,
            self._changed,
            options,
        )
        self._tables = {}  # breakpoint: {operator: state of its table when its kernel functions were set}
        self._late = []  # (breakpoint, operator) with a table that has changed
        # `aten::add.Tensor` by `aten::add_Tensor`, as the classes of at::_ops are named
        self.operators = {name.replace(".", "_"): name for name in self.place.schemas}
        self._leaving = self._watch_exec()
        self._forks = Forks()
        self.groups = {}
        self.points = []
        self._companions = {}  # breakpoint: the points that only count beside it
        printers.register(lambda: values)
        self.records = 0
        self.plumbing = Plumbing()
        self._folder = folder
        self._hops = self._finish = self._finished = None
        self._output = open(os.path.join(folder, "stops.jsonl"), "ab", buffering=1 << 20)  # noqa: SIM115
        for event in (gdb.events.stop, gdb.events.exited):
            event.connect(lambda _: self.flush())

    def _python_stack(self, layout, memory):
        try:
            return PythonStack(layout, memory)
        except ValueError as error:
            self.notes.append("no Python stacks: %s" % error)
            return None

    def _measured(self, facts, name, what, otherwise):
        """What the process measured of itself, or something empty where it could not."""
        found = facts[name]
        if "error" in found:
            self.notes.append("no %s: %s" % (what, found["error"]))
            return otherwise
        return found

    def _dispatch_table(self, facts, *others):
        measured = self._measured(
            facts, "dispatch_table", "kernel functions", {"operators": {}, "tables": {}}
        )
        table = Table(measured, *others)
        if measured["operators"] and not table.readable:
            self.notes.append("no kernel functions: the layout of the dispatcher's table is unknown")
        return table

    def add(self, group, points, internal=True):
        """Sets the points of a breakpoint; returns what it cannot stop at. `internal`: unseen by the user."""
        said = len(self.notes)
        made = self.groups[group["spec"]] = Group(**group)
        before = len(self.points)
        for point in points:
            self._name_operator(point)
            if point["kind"] == "operator":
                self._set_kernels(made, point["op"])
            else:
                self._set(made, point, internal)
        if made.counting:
            self._companions.setdefault(made.counting, []).extend(self.points[before:])
        return self.notes[said:]

    def _set(self, group, point, internal=True):
        location = self._location(point)
        if location is not None:
            self.points.append(Point(location, self.place, group, point, self.emit, internal))

    def _set_kernels(self, group, operator):
        """Stops at the kernel functions that an operator has now, which are none before it is registered."""
        tables = self._tables.setdefault(group.spec, {})
        known = operator in tables
        tables[operator] = self.table.state(operator)
        if tables[operator] is None:
            return
        try:
            kernels = self.table.kernels(operator)
            if group.key:
                kernels, group.key = self.table.at_key(operator, group.key)
        except gdb.GdbError as error:
            self.notes.append("%s: %s" % (group.spec, error))
            return
        placed = [point.described for point in self.points if point.group is group] if known else []
        for kernel in kernels:
            if not any(_same(kernel, each) for each in placed):
                self._set(group, dict(kernel, spec=group.spec))

    def _changed(self, spec, operator):
        """Whether an operator that is being called has other kernel functions than when they were set."""
        tables = self._tables.get(spec)
        if tables is None or tables.get(operator) == self.table.state(operator):
            return False
        self._late.append((spec, operator))
        return True

    def learn(self):
        """Sets the kernel functions for which calls were halted; whether the halt is for nothing else."""
        late, self._late = self._late, []
        wanted, self.place.halts = self.place.halts, False
        for spec, operator in late:
            self._set_kernels(self.groups[spec], operator)
        hop = self._hops is not None and self._hops.enabled and self._hops.reached
        return bool(late) and not wanted and not hop

    def flush(self):
        """Writes out the records so far."""
        self._output.flush()

    def emit(self, record):
        self.records += 1
        record["stop"] = self.records
        companions = self._companions.pop(record["spec"], None)
        if companions:  # they count for the case that nothing is recorded
            gdb.post_event(lambda: _delete(companions))
        frames = self.place.backtraces.text(record.pop("frames"))
        self._output.write(('%s, "frames": %s}\n' % (json.dumps(record)[:-1], frames)).encode())

    def begin_hop(self, offsets):
        """Watches the calls and redispatches of all operators: {library: offsets}."""
        if self._hops is None:
            self._hops = of_offsets(self, offsets, self._folder)
        self._hops.__enter__()

    def end_hop(self):
        """Records the stop that begin_hop made."""
        self._hops.__exit__()
        if self._hops.reached:
            here = Here(self)
            described = dict(here.described(), spec="next-hop")
            look = Look(self.place, described, gdb.newest_frame())
            self.emit(look.record(1, gdb.selected_thread().ptid[1]))

    def begin_finish(self):
        """Watches the end of the innermost op call; {"error"} where there is none."""
        try:
            self._finish = finish.Finish(finish.OpCall(), self._finished)
        except gdb.GdbError as error:
            return {"error": str(error)}
        operator = Here(self).operator(self._finish.call.name)
        if self._finish.at_end:
            return {"error": operator + " is at its end"}
        self._finish.__enter__()
        return {"operator": operator}

    def end_finish(self, operator):
        """Records the end of the op call with its result; {"ended"}: whether it was seen, {"raised"}."""
        end, self._finish = self._finish, None
        end.__exit__()
        if end.raised:
            return {"ended": False, "raised": finish.exception_text(self.place.memory)}
        if not end.returned:
            return {"ended": False, "raised": None}
        self._finished = finish.OpCall().end()
        name = "at::_ops::%s::call" % end.call.name
        look = Look(
            self.place, {"spec": "finish-op", "kind": "end", "op": operator, "name": name}, gdb.newest_frame()
        )
        record = look.record(1, gdb.selected_thread().ptid[1])
        shown = finish.result(self.place, operator)
        if shown is not None:
            record["arguments"].append({"name": "result", "type": "at::Tensor", "value": shown})
        self.emit(record)
        return {"ended": True, "raised": None}

    def show_plumbing(self, wanted):
        """Whether steps lead into plumbing."""
        self.plumbing.show(wanted)

    def signal_stop(self, name):
        """Records where a signal reached the process."""
        look = Look(self.place, {"spec": name, "kind": "signal", "name": ""}, gdb.newest_frame())
        self.emit(look.record(1, gdb.selected_thread().ptid[1]))

    def step_stop(self):
        """Records where stepping has led."""
        look = Look(self.place, {"spec": "step", "kind": "step", "name": ""}, gdb.newest_frame())
        self.emit(look.record(1, gdb.selected_thread().ptid[1]))

    def counts(self):
        """How often each point was reached, for what the user asks when nothing was recorded."""
        return {
            "notes": self.notes,
            "forks": self._forks.hits,
            "points": [
                {"spec": point.group.spec, "kind": point.described["kind"], "op": point.described.get("op"),
                 "name": point.described.get("name"), "hits": point.hits,
                 "pending": point.is_valid() and point.pending}
                for point in self.points
            ],
            "groups": [
                {"spec": group.spec, "hits": group.hits, "recorded": group.recorded,
                 "left_out": group.left_out, "errors": group.errors, "counting": group.counting}
                for group in self.groups.values()
            ],
        }  # fmt: skip

    def _location(self, point):
        if "location" in point:
            return point["location"]
        if "address" in point:
            point.update(at_entry(point["kind"], point["symbol"], point["op"], self.place.schemas))
            return "*%#x" % point["address"]
        base = self.place.backtraces.base(point["library"])
        if base is None:
            return None
        address = base + point["offset"]
        if point["kind"] in ("function", "body"):
            behind = behind_prologue(address)
            if behind is not None:
                return "*%#x" % behind
        point.update(at_entry(point["kind"], point["symbol"], point.get("op"), self.place.schemas))
        return "*%#x" % address

    def _name_operator(self, point):
        """Operators that torchgen makes are in no list that the host reads: their dots are known here."""
        if point.get("op") and point["op"] not in self.place.schemas:
            point["op"] = self.operators.get(point["op"].replace(".", "_"), point["op"])

    def leave(self):
        """Whether the process is about to become another program; then all breakpoints are taken away."""
        if self._leaving is None or not self._leaving.reached:
            return False
        self.remove()
        self._leaving.delete()
        self._leaving = None
        return True

    def _watch_exec(self):
        return Leaving(int(gdb.parse_and_eval("(long)&execve")), self.place.memory)

    def remove(self):
        """Takes all breakpoints away; what they counted stays."""
        _delete([*self.points, self._forks])


def _same(kernel, described):
    return all(kernel[name] == described.get(name) for name in ("kind", "address", "functor"))


def _delete(points):
    for point in points:
        if point.is_valid():
            point.delete()


def call(debugger, folder):
    """Runs the method that call.json names and prints what it returns, as JSON."""
    with open(os.path.join(folder, "call.json")) as file:
        request = json.load(file)
    result = getattr(debugger, request["method"])(**request["arguments"])
    debugger.flush()
    print("result:" + json.dumps(result))
