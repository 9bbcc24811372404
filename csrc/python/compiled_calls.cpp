#include "compiled_calls.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../torch_abi/python_names.h"
#include "../trace/definition.h"
#include "../trace/lane.h"
#include "../trace/recording.h"
#include "function_entry.h"
#include "own_range.h"

namespace tracer::python {
namespace {

// Everything below is touched with the GIL held, and leaked.
struct Replaced {
  PyObject* function;
  vectorcallfunc original, ours;
};
struct Kernel {
  PyCFunctionObject* function;
  PyMethodDef* original;
  PyMethodDef ours;
  OwnName name;
};
std::vector<Replaced>& replaced = *new std::vector<Replaced>;
// By the module that a kernel is in, which is what it is called with: Inductor makes a module for each.
std::unordered_map<PyObject*, Kernel>& kernels = *new std::unordered_map<PyObject*, Kernel>;
// Of the objects that were called in this recording.
std::unordered_map<PyObject*, OwnName>& names_of_code = *new std::unordered_map<PyObject*, OwnName>;
CompiledCode& described = *new CompiledCode{};
uint32_t counted_in = 0;  // the recording that `calls` are of
uint64_t calls = 0;
thread_local int imports_around = 0;  // that this thread is in
thread_local PyObject* called_in_pause = nullptr;  // what was called last while nothing was recorded, and has not returned

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
  trace::define_for_process(trace::DefinitionBuilder(trace::kJson).put_string("compiled").put_string(described.note));
} catch (...) {  // no memory: the certificate has the count
}

// What the range of a call of this object is called. Asks Python where it is not known: then the name has no number if
// that fails.
const OwnName& name_of(PyObject* code) {
  auto known = names_of_code.find(code);
  if (known != names_of_code.end()) return known->second;
  Py_INCREF(code);
  PyObject* number = described.describe ? PyObject_CallOneArg(described.describe, code) : nullptr;
  long value = number && PyLong_Check(number) ? PyLong_AsLong(number) : 0;
  Py_XDECREF(number);
  Py_DECREF(code);
  PyErr_Clear();
  return names_of_code.insert_or_assign(code, OwnName("call:" + std::to_string(value))).first->second;
}

PyObject* call_compiled(PyObject* function, PyObject* const* arguments, size_t flags, PyObject* names) {
  vectorcallfunc original = original_of(function);
  uint32_t epoch = trace::recording_epoch.load(std::memory_order_relaxed);
  if (!epoch) {
    PyObject* outer = std::exchange(called_in_pause, PyVectorcall_NARGS(flags) > 0 ? arguments[0] : nullptr);
    PyObject* result = original(function, arguments, flags, names);
    called_in_pause = outer;
    return result;
  }
  count(epoch);
  OwnRange range;
  try {
    if (PyVectorcall_NARGS(flags) > 0) range.enter(name_of(arguments[0]));
  } catch (...) {  // no memory
  }
  return original(function, arguments, flags, names);
}

// What replaces a kernel while it is followed: Python calls the function of its method definition, either by its way
// for all callables or, in code that has run often, past it. Up to torch 2.14 kernels take a tuple, since then an array.
template <class... Arguments>
PyObject* call_kernel(PyObject* module, Arguments... arguments) {
  Kernel& kernel = kernels.find(module)->second;  // there as long as anything leads here
  PyCFunction original = kernel.original->ml_meth;
  OwnRange range;
  if (trace::recording_epoch.load(std::memory_order_relaxed)) range.enter(kernel.name);
  return reinterpret_cast<PyObject* (*)(PyObject*, Arguments...)>(reinterpret_cast<void (*)()>(original))(module, arguments...);
}

PyCFunction entry_of_kernel(int flags) {
  switch (flags & (METH_VARARGS | METH_FASTCALL | METH_KEYWORDS | METH_NOARGS | METH_O | METH_METHOD)) {
    case METH_VARARGS:
      return call_kernel<PyObject*>;
    case METH_FASTCALL:
      return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_kernel<PyObject* const*, Py_ssize_t>));
    default:
      return nullptr;
  }
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

// Begins the range of an import, in a thread that has recorded something: a forked child that only imports writes nothing.
void enter_import(OwnRange& range, PyObject* name) noexcept try {
  uint32_t epoch = trace::recording_epoch.load(std::memory_order_relaxed);
  if (!epoch || trace::thread_lane->epoch != epoch) return;
  if (const char* text = PyUnicode_AsUTF8(name)) range.enter(OwnName(std::string("import:") + text));
  PyErr_Clear();
} catch (...) {  // no memory
}

// Whether sys.modules has it. Runs no code of the program.
bool is_loaded(PyObject* name) noexcept {
  PyObject* modules = PyImport_GetModuleDict();
  if (!modules || !PyDict_CheckExact(modules) || !PyUnicode_CheckExact(name)) return false;
  bool found = PyDict_GetItemWithError(modules, name) != nullptr;
  PyErr_Clear();
  return found;
}

// importlib's _find_and_load: `import` calls it for a module that is not loaded, importlib.import_module for any.
// The outermost import of one that is not loaded is a range.
PyObject* import_module(PyObject* function, PyObject* const* arguments, size_t flags, PyObject* names) {
  PyObject* name = PyVectorcall_NARGS(flags) > 0 ? arguments[0] : nullptr;
  if (name && !PyUnicode_Check(name)) name = nullptr;
  if (name && is_loaded(name)) return original_of(function)(function, arguments, flags, names);
  OwnRange range;
  if (imports_around++ == 0 && name) enter_import(range, name);
  PyObject* module = original_of(function)(function, arguments, flags, names);
  --imports_around;
  range.leave();
  if (!module || !name) return module;
  for (const torch_abi::PythonClass& compiled : torch_abi::kCompiled)
    if (PyUnicode_CompareWithASCIIString(name, compiled.module) == 0) look_at(compiled);
  for (const std::string& watched : described.modules) {
    if (PyUnicode_CompareWithASCIIString(name, watched.c_str()) != 0) continue;
    PyObject* nothing = PyObject_CallOneArg(described.imported, name);
    Py_XDECREF(nothing);
    PyErr_Clear();
  }
  return module;
}

}  // namespace

void follow_compiled(const CompiledCode& code) {
  described = code;
  Py_XINCREF(code.describe);
  Py_XINCREF(code.imported);
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
  for (auto kernel = kernels.begin(); kernel != kernels.end();) {
    Kernel& followed = kernel->second;
    if (followed.function->m_ml != &followed.ours) {
      ++kernel;
      continue;
    }
    followed.function->m_ml = followed.original;
    Py_DECREF(followed.function);
    kernel = kernels.erase(kernel);
  }
  names_of_code.clear();
  Py_CLEAR(described.describe);
  Py_CLEAR(described.imported);
  described.modules.clear();
}

void forget_compiled(uint64_t address) { names_of_code.erase(reinterpret_cast<PyObject*>(address)); }

bool follow_kernel(PyObject* kernel, const std::string& name) {
  if (!PyCFunction_CheckExact(kernel)) return false;
  auto* function = reinterpret_cast<PyCFunctionObject*>(kernel);
  PyObject* module = PyCFunction_GET_SELF(kernel);
  PyCFunction entry = entry_of_kernel(PyCFunction_GET_FLAGS(kernel));
  auto known = kernels.find(module);
  if (known != kernels.end()) return known->second.function == function;
  if (!module || !entry) return false;
  Kernel& followed = kernels.emplace(module, Kernel{function, function->m_ml, *function->m_ml, OwnName("kernel:" + name)}).first->second;
  followed.ours.ml_meth = entry;
  Py_INCREF(kernel);
  function->m_ml = &followed.ours;
  return true;
}

uint64_t enter_paused_call() noexcept try {
  uint32_t epoch = trace::recording_epoch.load(std::memory_order_relaxed);
  if (!epoch || !called_in_pause) return 0;
  count(epoch);
  return enter_own_range(name_of(called_in_pause));
} catch (...) {  // no memory
  return 0;
}

uint64_t compiled_calls() { return counted_in == trace::epoch_of_recording() ? calls : 0; }

}  // namespace tracer::python
