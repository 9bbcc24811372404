// Autograd nodes that a torch.autograd.Function made.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_function.h>

#include <cstring>
#include <typeinfo>

namespace tracer::torch_abi {

// By name: libtorch_python does not export the class's type information.
inline bool is_python_node(const torch::autograd::Node& node) { return strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0; }

// torch 2.11 and older keep the Python object in a field, newer ones behind a function.
template <class Node>
PyObject* python_object(const Node& node) {
  if constexpr (requires { node.obj; })
    return node.obj;
  else
    return node.pyobj();
}

// The Python class of such a node, nullptr of others: a live node's type cannot go away.
inline const PyTypeObject* python_class(const torch::autograd::Node& node) {
  PyObject* object = is_python_node(node) ? python_object(static_cast<const torch::autograd::PyNode&>(node)) : nullptr;
  return object ? Py_TYPE(object) : nullptr;
}

}  // namespace tracer::torch_abi
