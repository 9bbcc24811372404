#include "python_kernel.h"

#include <unordered_map>

#include "../torch_abi/functors.h"

namespace tracer::python {
namespace {

std::string text_of(PyObject* object, const char* attribute) {
  PyObject* value = PyObject_GetAttrString(object, attribute);
  const char* text = value && PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  std::string result = text ? text : "";
  Py_XDECREF(value);
  PyErr_Clear();
  return result;
}

// " (file:line)" of the function that the decorators of a function wrap.
std::string place_of(PyObject* function) {
  constexpr int kMostDecorators = 32;
  std::string place;
  Py_INCREF(function);
  for (int i = 0; i < kMostDecorators; ++i) {
    PyObject* wrapped = PyObject_GetAttrString(function, "__wrapped__");
    if (!wrapped) break;
    Py_DECREF(function);
    function = wrapped;
  }
  PyErr_Clear();
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

}  // namespace tracer::python
