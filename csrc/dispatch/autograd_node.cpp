#include "autograd_node.h"

#include <cxxabi.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_function.h>

#include <cstring>

namespace tracer::dispatch {
namespace {

using torch::autograd::PyNode;

// torch 2.11 and older keep the Python object in a field, newer ones behind a function.
template <class Node>
PyObject* python_object(const Node& node) {
  if constexpr (requires { node.obj; })
    return node.obj;
  else
    return node.pyobj();
}

// Whether torch.autograd.Function made the node. By name: libtorch_python does not export the class's type information.
bool is_python_node(const torch::autograd::Node& node) { return strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0; }

// The Python class of such a node: a live node's type cannot go away.
const PyTypeObject* python_class(const torch::autograd::Node& node) {
  PyObject* object = python_object(static_cast<const PyNode&>(node));
  return object ? Py_TYPE(object) : nullptr;
}

std::string node_name(const torch::autograd::Node& node) {
  const char* mangled = typeid(node).name();
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = demangled ? demangled : mangled;
  free(demangled);
  const PyTypeObject* type = is_python_node(node) ? python_class(node) : nullptr;
  if (type) name += std::string(" ") + type->tp_name;
  return name;
}

// The id of a node's name. Of all but Python's nodes the C++ class says everything: they are found by it alone. A Python
// class is found by its name: a later one may have its address.
uint32_t name_id(trace::Lane* lane, const torch::autograd::Node& node) {
  uint64_t hash = trace::mix(1, uint64_t(&typeid(node)));
  if (uint32_t id = lane->strings.find(hash)) return id;
  const PyTypeObject* type = is_python_node(node) ? python_class(node) : nullptr;
  if (type) hash = trace::mix(hash, trace::hash_bytes(type->tp_name, strlen(type->tp_name)));
  return lane->intern_string(hash, [&] { return node_name(node); });
}

}  // namespace

bool autograd_node_changed(trace::Lane* lane, NodeWords& words) {
  auto node = torch::autograd::get_current_node();
  uint64_t sequence = node ? node->sequence_nr() : 0, thread = node ? node->thread_id() : 0;
  // Each thread counts its own nodes, and a node may lie where another thread's was.
  uint64_t number = node ? trace::mix(sequence, thread) : 0;
  if (node.get() == lane->node && number == lane->node_sequence) return false;
  lane->node = node.get();
  lane->node_sequence = number;
  words = {};
  if (node) words = {sequence & ~trace::kEventBit, trace::two_numbers(name_id(lane, *node), thread & trace::kHigh31)};
  return true;
}

}  // namespace tracer::dispatch
