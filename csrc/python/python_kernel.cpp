#include "python_kernel.h"

#include <unordered_map>

#include "../torch_abi/functors.h"
#include "../torch_abi/python_names.h"

namespace tracer::python {
namespace {

// Of a str, else nothing. Takes the reference.
std::string string_of(PyObject* value) {
  const char* text = value && PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  std::string result = text ? text : "";
  Py_XDECREF(value);
  PyErr_Clear();
  return result;
}

std::string text_of(PyObject* object, const char* attribute) { return string_of(PyObject_GetAttrString(object, attribute)); }

// The function that the decorators of a function wrap. A new reference.
PyObject* undecorated(PyObject* function) {
  constexpr int kMostDecorators = 32;
  Py_INCREF(function);
  for (int i = 0; i < kMostDecorators; ++i) {
    PyObject* wrapped = PyObject_GetAttrString(function, "__wrapped__");
    if (!wrapped) break;
    Py_DECREF(function);
    function = wrapped;
  }
  PyErr_Clear();
  return function;
}

// What a function's closure has under this name. A new reference, or nullptr.
PyObject* enclosed(PyObject* function, const char* name) {
  PyObject *code = PyFunction_Check(function) ? PyFunction_GetCode(function) : nullptr, *value = nullptr;
  PyObject* names = code ? PyObject_GetAttrString(code, "co_freevars") : nullptr;
  PyObject* cells = names ? PyFunction_GetClosure(function) : nullptr;
  for (Py_ssize_t i = 0; cells && i < PyTuple_Size(names) && i < PyTuple_Size(cells); ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), name) == 0) value = PyCell_Get(PyTuple_GetItem(cells, i));
  Py_XDECREF(names);
  PyErr_Clear();
  return value;
}

// What a function that torch.library.custom_op registers has in its closure: the CustomOpDef and the device. New references,
// nullptr if it is no such function.
struct RegisteredBy {
  explicit RegisteredBy(PyObject* function) {
    if (text_of(function, "__qualname__") != torch_abi::kCustomOpKernel) return;
    op = enclosed(function, "self"), device = enclosed(function, "device_type");
  }
  ~RegisteredBy() {
    Py_XDECREF(op);
    Py_XDECREF(device);
  }
  RegisteredBy(const RegisteredBy&) = delete;
  RegisteredBy& operator=(const RegisteredBy&) = delete;

  // An attribute of the CustomOpDef; a new reference, or nullptr.
  PyObject* attribute(const char* name) const {
    PyObject* value = op && device ? PyObject_GetAttrString(op, name) : nullptr;
    PyErr_Clear();
    return value;
  }

  PyObject *op = nullptr, *device = nullptr;
};

// The user's function behind the one that torch.library.custom_op registers, which finds it in a dictionary by the device when
// it is called. A new reference, or nullptr: it is no such function, or has no such entry yet.
PyObject* function_of_custom_op(PyObject* function, bool disabled) {
  RegisteredBy by(function);
  if (disabled) return by.attribute(torch_abi::kCustomOpFirst);
  PyObject *functions = by.attribute(torch_abi::kCustomOpFunctions), *found = nullptr;
  if (functions && PyDict_Check(functions))
    if (PyObject* chosen = PyDict_GetItemWithError(functions, by.device)) {
      PyObject* chooses = undecorated(chosen);
      found = enclosed(chooses, "fn");
      Py_DECREF(chooses);
    }
  PyErr_Clear();
  Py_XDECREF(functions);
  return found;
}

// Calls `ask` with the function in a functor, without its decorators, and keeps the exception that is set. nullptr if it is
// another object: its attributes may run the user's code.
template <class Ask>
auto ask_function(c10::OperatorKernel* functor, const Ask& ask) -> decltype(ask(nullptr)) {
  PyObject* function = torch_abi::python_function(functor);
  if (!function || !PyFunction_Check(function)) return nullptr;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  function = undecorated(function);
  auto found = ask(function);
  Py_DECREF(function);
  PyErr_Restore(type, value, traceback);
  return found;
}

// " (file:line)" of the function that the decorators of a function wrap.
std::string place_of(PyObject* function) {
  std::string place;
  function = undecorated(function);
  PyObject* code = PyObject_GetAttrString(function, "__code__");
  if (code && PyCode_Check(code))
    place = " (" + text_of(code, "co_filename") + ":" + std::to_string(reinterpret_cast<PyCodeObject*>(code)->co_firstlineno) + ")";
  PyErr_Clear();
  Py_XDECREF(code);
  Py_DECREF(function);
  return place;
}

std::string describe(PyObject* function) {
  std::string module = text_of(function, "__module__"), name = text_of(function, "__qualname__");
  if (name.empty()) name = Py_TYPE(function)->tp_name;
  std::string result = module.empty() ? name : module + "." + name;
  return result + place_of(function);
}

}  // namespace

std::string* kernel_name(c10::OperatorKernel* functor) {
  PyObject* function = torch_abi::python_function(functor);
  if (!function) return new std::string("Python kernel");
  // Kept for the whole process, as their hops are.
  static auto& names = *new std::unordered_map<c10::OperatorKernel*, std::string*>;
  std::string*& name = names[functor];
  if (!name) name = new std::string(describe(function));
  return name;
}

std::string* name_of_torch_dispatch(PyTypeObject* type) {
  PyObject *error, *value, *traceback;
  PyErr_Fetch(&error, &value, &traceback);
  auto of_type = [&](const char* attribute) {  // not by way of a metaclass, which may be the user's
    PyObject* name = PyUnicode_FromString(attribute);
    PyObject* found = name ? PyType_Type.tp_getattro(reinterpret_cast<PyObject*>(type), name) : nullptr;
    Py_XDECREF(name);
    PyErr_Clear();
    return found;
  };
  auto* name = new std::string(string_of(of_type("__module__")) + "." + string_of(of_type("__qualname__")) + ".__torch_dispatch__");
  PyObject* method = of_type("__torch_dispatch__");
  PyObject* function = method && PyMethod_Check(method) ? PyMethod_GET_FUNCTION(method) : method;
  if (function && PyFunction_Check(function)) *name += place_of(function);
  Py_XDECREF(method);
  PyErr_Restore(error, value, traceback);
  return name;
}

std::string* name_of_custom_op(c10::OperatorKernel* functor, bool disabled) {
  return ask_function(functor, [&](PyObject* function) -> std::string* {
    PyObject* of_user = function_of_custom_op(function, disabled);
    if (!of_user) return nullptr;
    auto* name = new std::string(describe(of_user));
    Py_DECREF(of_user);
    return name;
  });
}

KernelSwitch* KernelSwitch::of(c10::OperatorKernel* functor) {
  return ask_function(functor, [](PyObject* function) -> KernelSwitch* {
    RegisteredBy by(function);
    PyObject* disabled = by.attribute(torch_abi::kCustomOpDisabled);
    if (disabled && PySet_Check(disabled)) return new KernelSwitch(disabled, Py_NewRef(by.device));
    Py_XDECREF(disabled);
    return nullptr;
  });
}

bool KernelSwitch::is_off() const {
  // Read without the GIL, as the caller may not have it: one aligned word of an object that is never freed.
  if (!__atomic_load_n(&reinterpret_cast<PySetObject*>(disabled_)->used, __ATOMIC_RELAXED)) return false;
  PyGILState_STATE gil = PyGILState_Ensure();
  bool off = PySet_Contains(disabled_, device_) == 1;
  PyGILState_Release(gil);
  return off;
}

}  // namespace tracer::python
