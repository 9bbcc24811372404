#include "compiled_calls.h"

#include <algorithm>
#include <vector>

#include "../torch_abi/python_names.h"
#include "../trace/definition.h"
#include "../trace/lane.h"
#include "../trace/recording.h"
#include "function_entry.h"

namespace tracer::python {
namespace {

// Everything below is touched with the GIL held, and leaked.
struct Replaced {
  PyObject* function;
  vectorcallfunc original, ours;
};
std::vector<Replaced>& replaced = *new std::vector<Replaced>;
std::string& first_note = *new std::string;
uint32_t counted_in = 0;  // the recording that `calls` are of
uint64_t calls = 0;

vectorcallfunc original_of(PyObject* function) {
  for (const Replaced& one : replaced)
    if (one.function == function) return one.original;
  return nullptr;  // of a function whose entry is not ours
}

void replace_entry(PyObject* function, vectorcallfunc entry) {
  if (!PyFunction_Check(function) || original_of(function)) return;
  auto* changed = reinterpret_cast<PyFunctionObject*>(function);
  replaced.push_back({function, changed->vectorcall, entry});
  Py_INCREF(function);
  set_entry(changed, entry);
}

void count(uint32_t epoch) noexcept try {
  if (counted_in == epoch) {
    ++calls;
    return;
  }
  counted_in = epoch;
  calls = 1;
  trace::current_lane();  // a forked child defines nothing before it has recorded something
  trace::define_for_process(trace::DefinitionBuilder(trace::kJson).put_string("compiled").put_string(first_note));
} catch (...) {  // no memory: the certificate has the count
}

PyObject* call_compiled(PyObject* function, PyObject* const* arguments, size_t flags, PyObject* names) {
  vectorcallfunc original = original_of(function);
  if (uint32_t epoch = trace::recording_epoch.load(std::memory_order_relaxed)) count(epoch);
  return original(function, arguments, flags, names);
}

void look_at(const torch_abi::PythonClass& compiled) {
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = modules ? PyDict_GetItemString(modules, compiled.module) : nullptr;
  PyObject* type = module ? PyObject_GetAttrString(module, compiled.type) : nullptr;
  PyObject* function = type ? PyObject_GetAttrString(type, "__call__") : nullptr;
  if (function) replace_entry(function, call_compiled);
  Py_XDECREF(function);
  Py_XDECREF(type);
  PyErr_Clear();
}

// importlib's _find_and_load, which Python calls for a module that is not loaded.
PyObject* import_module(PyObject* function, PyObject* const* arguments, size_t flags, PyObject* names) {
  PyObject* name = PyVectorcall_NARGS(flags) > 0 ? arguments[0] : nullptr;
  PyObject* module = original_of(function)(function, arguments, flags, names);
  if (!module || !name || !PyUnicode_Check(name)) return module;
  for (const torch_abi::PythonClass& compiled : torch_abi::kCompiled)
    if (PyUnicode_CompareWithASCIIString(name, compiled.module) == 0) look_at(compiled);
  return module;
}

}  // namespace

void follow_compiled(const std::string& note) {
  first_note = note;
  for (const torch_abi::PythonClass& compiled : torch_abi::kCompiled) look_at(compiled);
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* importlib = modules ? PyDict_GetItemString(modules, "_frozen_importlib") : nullptr;
  PyObject* import = importlib ? PyObject_GetAttrString(importlib, "_find_and_load") : nullptr;
  if (import) replace_entry(import, import_module);
  Py_XDECREF(import);
  PyErr_Clear();
}

void leave_compiled() {
  std::erase_if(replaced, [](const Replaced& one) {
    auto* function = reinterpret_cast<PyFunctionObject*>(one.function);
    // Where another tool has put its own entry over ours, ours stays: it does nothing without a recording.
    if (function->vectorcall != one.ours) return false;
    set_entry(function, one.original);
    Py_DECREF(one.function);
    return true;
  });
}

uint64_t compiled_calls() { return counted_in == trace::epoch_of_recording() ? calls : 0; }

}  // namespace tracer::python
