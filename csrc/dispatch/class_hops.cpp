#include "class_hops.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstring>
#include <memory>

#include "../python/python_kernel.h"
#include "../torch_abi/dispatch_table.h"
#include "pointer_map.h"

namespace tracer::dispatch {
namespace {

using c10::impl::TorchDispatchModeTLS;

// By a hash of the op's hop and of a class, or of the name of its method; changes under the GIL. Classes that are made again
// and again, as in a function, have the same name: they share a hop.
PointerMap<Hop>& hops_of_classes = *new PointerMap<Hop>;

const void* key_of(const Hop* hop, uint64_t hash) { return reinterpret_cast<void*>(trace::mix(uint64_t(hop), hash) | 1); }

// Without the GIL: a str never changes. The name is part of it, for the address may be another class's later.
uint64_t hash_of(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return trace::hash_bytes(type->tp_name, strlen(type->tp_name));
  PyObject* name = reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname;
  size_t bytes = size_t(PyUnicode_GET_LENGTH(name)) * size_t(PyUnicode_KIND(name));
  return trace::mix(uint64_t(type), trace::hash_bytes(static_cast<const char*>(PyUnicode_DATA(name)), bytes));
}

Hop* find_or_make(const Hop* hop, PyTypeObject* type, const void* key) {
  std::unique_ptr<std::string> name(python::name_of_torch_dispatch(type));
  const void* named = key_of(hop, trace::hash_bytes(name->data(), name->size()));
  Hop* found = hops_of_classes.find(named);
  if (!found) hops_of_classes.set(named, found = another_hop(hop, name.release()));
  hops_of_classes.set(key, found);
  return found;
}

}  // namespace

Hop* another_hop(const Hop* hop, std::string* name) {
  Hop* made = new Hop(hop->original, hop->op, ++hops_made, hop->table_index);
  made->flags = hop->flags | trace::kPythonHop;
  set_python_name(made, name);
  return made;
}

PyTypeObject* class_of_mode(int64_t place) {
  const auto& mode = TorchDispatchModeTLS::get_stack_at(place);
  return Py_TYPE(mode->ptr(&mode->pyinterpreter()));
}

PyTypeObject* class_of_innermost_mode() {
  int64_t modes = TorchDispatchModeTLS::stack_len();
  return modes ? class_of_mode(modes - 1) : nullptr;
}

bool is_python_fallback(const Hop& hop) {
  static const auto index = uint32_t(c10::getDispatchTableIndexForDispatchKey(c10::DispatchKey::Python));
  if (hop.table_index != index) return false;
  torch_abi::TableEntry entry(const_cast<c10::KernelFunction&>(hop.original));
  return !entry.functor() && !entry.unboxed() && !entry.sym_unboxed();
}

Hop* hop_of_class(Hop* hop, PyTypeObject* type) {
  if (!type) return hop;
  const void* key = key_of(hop, hash_of(type));
  if (Hop* found = hops_of_classes.find(key)) return found;
  PyGILState_STATE gil = PyGILState_Ensure();
  Hop* found = find_or_make(hop, type, key);
  PyGILState_Release(gil);
  return found;
}

}  // namespace tracer::dispatch
