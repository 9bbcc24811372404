#include "greenlets.h"

#include <utility>

namespace tracer::python {
namespace {

// Everything here is touched with the GIL held.
Switched on_switch = nullptr;
PyObject *set_trace = nullptr, *get_trace = nullptr;  // of the module, once it is loaded
bool were_lost = false;
thread_local PyObject* program_trace = nullptr;  // the program's own function, which ours calls
thread_local bool was_followed = false;

PyObject* call_switched(PyObject*, PyObject* arguments) {
  PyObject *event, *greenlets, *from, *to;
  if (!PyArg_ParseTuple(arguments, "OO", &event, &greenlets) || !PyArg_ParseTuple(greenlets, "OO", &from, &to)) return nullptr;
  on_switch(from, to);
  if (program_trace) return PyObject_CallObject(program_trace, arguments);
  Py_RETURN_NONE;
}

PyObject* our_trace() {
  static PyMethodDef definition = {"follow_greenlets", call_switched, METH_VARARGS, nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

// Whether the program has loaded the module. It is looked for again when the number of modules has changed.
bool find_module() {
  static Py_ssize_t looked_at = 0;
  PyObject* modules = PyImport_GetModuleDict();
  Py_ssize_t size = PyDict_Size(modules);
  if (size == looked_at) return false;
  looked_at = size;
  PyObject* module = PyDict_GetItemString(modules, "greenlet._greenlet");
  PyObject* get = module ? PyObject_GetAttrString(module, "gettrace") : nullptr;
  PyObject* set = get ? PyObject_GetAttrString(module, "settrace") : nullptr;
  PyErr_Clear();
  if (!set) return Py_XDECREF(get), false;
  get_trace = get;
  set_trace = set;
  return true;
}

// Returns the function before it, a new reference; nullptr: an error, which is cleared.
PyObject* call(PyObject* function, PyObject* argument) {
  PyObject* result = argument ? PyObject_CallFunctionObjArgs(function, argument, nullptr) : PyObject_CallObject(function, nullptr);
  if (!result) PyErr_Clear();
  return result;
}

}  // namespace

bool follow_greenlets(Switched switched) {
  if (!set_trace && !find_module()) return true;
  on_switch = switched;
  PyObject* ours = our_trace();
  PyObject* now = call(get_trace, nullptr);
  bool followed = now && now == ours;
  if (now && ours && !followed && !was_followed) {
    was_followed = true;
    PyObject* result = call(set_trace, ours);
    followed = result != nullptr;
    Py_XDECREF(result);
    if (followed && now != Py_None) Py_XDECREF(std::exchange(program_trace, Py_NewRef(now)));
    if (followed) switched(nullptr, nullptr);
  }
  Py_XDECREF(now);
  were_lost |= !followed;
  return followed;
}

void leave_greenlets() {
  if (!std::exchange(was_followed, false)) return;
  PyObject* now = call(get_trace, nullptr);
  if (now && now == our_trace()) Py_XDECREF(call(set_trace, program_trace ? program_trace : Py_None));
  Py_XDECREF(now);
  Py_CLEAR(program_trace);
}

bool greenlets_were_lost() { return std::exchange(were_lost, false); }

}  // namespace tracer::python
