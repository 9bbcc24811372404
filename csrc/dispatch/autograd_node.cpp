#include "autograd_node.h"

#include <cxxabi.h>

#include <ATen/core/Tensor.h>

#include <cstring>

#include "../torch_abi/python_node.h"

namespace tracer::dispatch {
namespace {

std::string node_name(const torch::autograd::Node& node) {
  const char* mangled = typeid(node).name();
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = demangled ? demangled : mangled;
  free(demangled);
  const PyTypeObject* type = torch_abi::python_class(node);
  if (type) name += std::string(" ") + type->tp_name;
  return name;
}

// The id of a node's name. Of all but Python's nodes the C++ class says everything: they are found by it alone. A Python
// class is found by its name: a later one may have its address.
uint32_t name_id(trace::Lane* lane, const torch::autograd::Node& node) {
  uint64_t hash = trace::mix(1, uint64_t(&typeid(node)));
  if (uint32_t id = lane->strings.find(hash)) return id;
  const PyTypeObject* type = torch_abi::python_class(node);
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
