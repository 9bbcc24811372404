#include "arguments.h"

#include <Python.h>

#include <algorithm>
#include <vector>

#include "../torch_abi/tensor.h"
#include "identities.h"
#include "scalars.h"

namespace tracer::dispatch {

namespace {

using torch_abi::requires_grad;
using trace::mix;

constexpr size_t kMostDimensions = 64;

// What may be read of a tensor without running Python.
struct View {
  c10::DispatchKeySet keys;
  int8_t dtype = -1;
  uint8_t device_type = trace::kUnknownDevice;
  int8_t device_index = -1;
  uint8_t layout = trace::kUnknownLayout;
  uint8_t flags = 0;
  bool sized = false;
  c10::IntArrayRef sizes, strides;
};

View look(const at::Tensor& tensor) {
  View view;
  if (!tensor.defined()) {
    view.flags = trace::kUndefined;
    return view;
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto& by_python = torch_abi::AnsweredByPython::of(*impl);
  view.keys = impl->key_set();
  view.dtype = int8_t(c10::typeMetaToScalarType(impl->dtype()));
  try {
    if (requires_grad(*impl)) view.flags |= trace::kRequiresGrad;
    if (!by_python.layout()) view.layout = uint8_t(impl->layout());
    if (!by_python.device()) {
      c10::Device device = impl->device();
      view.device_type = uint8_t(device.type());
      view.device_index = int8_t(device.index());
    }
    // The tensors of a nested one have sizes of their own; symbolic ones are expressions in Python.
    if (by_python.sizes() || impl->has_symbolic_sizes_strides() || view.keys.has(c10::DispatchKey::NestedTensor)) return view;
    view.sizes = impl->sizes();
    view.sized = view.sizes.size() <= kMostDimensions;
    if (view.layout == uint8_t(c10::kStrided)) {
      view.strides = impl->strides();
      if (view.strides.size() == view.sizes.size()) view.flags |= trace::kHasStrides;
    }
  } catch (...) {
    view.sized = false;
    view.flags &= uint8_t(~trace::kHasStrides);
  }
  return view;
}

// Nearly all tensors have no other keys than these. Before they are initialised no tensor has them.
const uint64_t plain_keys = (c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::Meta}) |
                             c10::DispatchKeySet({c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutogradFunctionality,
                                                  c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}))
                                .raw_repr();
const uint64_t dense_key = c10::DispatchKeySet(c10::DispatchKey::Dense).raw_repr();

// Both halves of a product take part.
inline uint64_t fold(uint64_t a, uint64_t b) {
  auto product = static_cast<unsigned __int128>(a) * b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

// What an id of the signature means. A size and its stride are folded into what came before in one multiplication;
// tensors do not wait for each other but for the last step.
struct Hasher {
  uint64_t hash = 0x2545F4914F6CDD1Dull;
  size_t tensors = 0;

  // Inlined, with what is rare taken by value and given back, so that both numbers stay in registers.
  __attribute__((always_inline)) void tensor(uint16_t position, const at::Tensor& value) {
    if (__builtin_expect(++tensors > kMostTensors, 0)) {
      hash = mix(hash, position);
      return;
    }
    if (!plain_tensor(position, value)) *this = with_any_tensor(*this, position, value);
  }

 private:
  // What with_any_tensor() would add. False: not known without asking the tensor, and nothing is added.
  __attribute__((always_inline)) bool plain_tensor(uint16_t position, const at::Tensor& value) try {
    const c10::TensorImpl* impl = value.unsafeGetTensorImpl();
    uint64_t keys = impl->key_set().raw_repr();
    if (__builtin_expect((keys & ~plain_keys) || !(keys & dense_key) || impl->has_symbolic_sizes_strides(), 0)) return false;
    c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    if (__builtin_expect(impl->layout() != c10::kStrided || strides.size() != sizes.size() || sizes.size() > kMostDimensions, 0))
      return false;
    c10::Device device = impl->device();
    uint8_t flags = trace::kHasStrides | (requires_grad(*impl) ? trace::kRequiresGrad : 0);
    add(keys,
        facts(position, int8_t(c10::typeMetaToScalarType(impl->dtype())), uint8_t(device.type()), device.index(), uint8_t(c10::kStrided),
              flags, sizes.size()),
        sizes, strides);
    return true;
  } catch (...) {
    return false;  // a class of tensors that has these keys and answers in a way of its own
  }

  __attribute__((noinline, cold)) static Hasher with_any_tensor(Hasher hasher, uint16_t position, const at::Tensor& value) {
    View view = look(value);
    c10::IntArrayRef sizes, strides;
    if (view.sized) sizes = view.sizes, strides = view.strides;
    hasher.add(view.keys.raw_repr(),
               facts(position, view.dtype, view.device_type, view.device_index, view.layout, view.flags,
                     view.sized ? sizes.size() : trace::kUnknownDimensions),
               sizes, strides.size() == sizes.size() ? strides : sizes);
    return hasher;
  }

  static uint64_t facts(uint16_t position, int8_t dtype, uint8_t device_type, int8_t device_index, uint8_t layout, uint8_t flags,
                        size_t dimensions) {
    return uint64_t(position) << 48 | uint64_t(uint8_t(dtype)) << 40 | uint64_t(device_type) << 32 | uint64_t(uint8_t(device_index)) << 24 |
           uint64_t(layout) << 16 | uint64_t(flags) << 8 | dimensions;
  }

  void add(uint64_t keys, uint64_t facts, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    uint64_t tensor = fold(keys ^ 0x8bb84b93962eacc9ull, facts ^ 0x2d358dccaa6c78a5ull);
    for (size_t i = 0; i < sizes.size(); ++i) {
      // Added once more: a stride of just this number makes the product 0.
      uint64_t sized = tensor ^ uint64_t(sizes[i]);
      tensor = sized + fold(sized, uint64_t(strides[i]) ^ 0x4b33a62ed433d4a3ull);
    }
    hash = mix(hash, tensor);
  }
};

// The same for arguments of all kinds.
struct HashVisitor {
  Hasher hasher;

  __attribute__((noinline)) void tensor(uint16_t position, const at::Tensor& value) { hasher.tensor(position, value); }
};

struct Writer {
  struct List {
    uint16_t position;
    uint32_t length;
    bool cut;
  };
  std::string tensors_bytes;
  uint32_t tensors = 0;
  std::vector<List> lists;  // by argument; a tensor that is no element of a list is a list of one here

  template <class T>
  void put(T value) {
    tensors_bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void tensor(uint16_t position, const at::Tensor& value) {
    if (lists.empty() || lists.back().position != position) lists.push_back({position, 0, false});
    ++lists.back().length;
    if (tensors >= kMostTensors) {
      lists.back().cut = true;
      return;
    }
    ++tensors;
    View view = look(value);
    if (!view.sized) view.flags &= uint8_t(~trace::kHasStrides);
    put(position);
    put(view.sized ? uint8_t(view.sizes.size()) : trace::kUnknownDimensions);
    put(view.dtype);
    put(view.device_type);
    put(view.device_index);
    put(view.layout);
    put(view.flags);
    put(view.keys.raw_repr());
    if (!view.sized) return;
    for (int64_t size : view.sizes) put(size);
    if (view.flags & trace::kHasStrides)
      for (int64_t stride : view.strides) put(stride);
  }
};

template <class Visitor>
void visit(const TensorArguments& arguments, Visitor& visitor) {
  for (size_t i = 0; i < arguments.size; ++i) {
    const TensorArgument& argument = arguments.list[i];
    switch (argument.kind) {
      case ArgumentKind::kTensor:
        visitor.tensor(argument.position, *static_cast<const at::Tensor*>(argument.address));
        break;
      case ArgumentKind::kOptionalTensor: {
        auto& value = *static_cast<const std::optional<at::Tensor>*>(argument.address);
        if (value) visitor.tensor(argument.position, *value);
        break;
      }
      case ArgumentKind::kTensorList:
        for (auto& tensor : *static_cast<const at::TensorList*>(argument.address)) visitor.tensor(argument.position, tensor);
        break;
      case ArgumentKind::kITensorList:
        for (const auto& tensor : *static_cast<const at::ITensorListRef*>(argument.address)) visitor.tensor(argument.position, tensor);
        break;
      case ArgumentKind::kOptionalTensorList:
        for (const std::optional<at::Tensor> tensor : *static_cast<const c10::List<std::optional<at::Tensor>>*>(argument.address))
          if (tensor) visitor.tensor(argument.position, *tensor);
        break;
    }
  }
}

template <class Visitor>
__attribute__((always_inline)) inline void visit(const BoxedArguments& arguments, Visitor& visitor) {
  for (size_t i = 0; i < arguments.size; ++i) {
    const c10::IValue& value = arguments.first[i];
    auto position = uint16_t(i);
    if (value.isTensor()) {
      visitor.tensor(position, value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) visitor.tensor(position, element.toTensor());
    }
  }
}

// `scalars`: what follows the tensors.
template <class Arguments>
__attribute__((noinline, cold)) uint32_t define(trace::Lane* lane, const Arguments& arguments, uint64_t hash,
                                                const std::string& scalars = {}) {
  if (lane->leave_out_definition()) return trace::kOther;
  Writer writer;
  visit(arguments, writer);
  uint32_t id = lane->signatures.add(hash);
  trace::DefinitionBuilder definition(trace::kSignature);
  auto cut = uint32_t(std::count_if(writer.lists.begin(), writer.lists.end(), [](const Writer::List& list) { return list.cut; }));
  definition.put(id).put(writer.tensors | (cut ? trace::kCutLists : 0)).put_bytes(writer.tensors_bytes);
  if (cut) definition.put(cut);
  for (const Writer::List& list : writer.lists)
    if (list.cut) definition.put(list.position).put(list.length);
  definition.put_bytes(scalars);
  lane->define(definition);
  return id;
}

bool has_object(const BoxedArguments& arguments) {
  for (size_t i = 0; i < arguments.size; ++i)
    if (arguments.first[i].isObject()) return true;
  return false;
}

template <class Arguments>
__attribute__((always_inline)) inline uint32_t id_of(trace::Lane* lane, const Arguments& arguments, const Hasher& hasher) {
  if (!hasher.tensors) return 0;
  if (uint32_t id = lane->signatures.find(hasher.hash)) return id;
  return define(lane, arguments, hasher.hash);
}

__attribute__((noinline)) Hasher hash_other(Hasher hasher, const TensorArgument& argument) {
  HashVisitor visitor{hasher};
  visit(TensorArguments{&argument, 1}, visitor);
  return visitor.hasher;
}

// Which tensors they are that a signature names.
struct IdentityVisitor {
  Identities identities;

  void tensor(uint16_t, const at::Tensor& value) { identities.add(value); }
};

// Of the kEnter that comes next, for which there must be room whatever is written before it.
__attribute__((noinline, cold)) void write_identities(trace::Lane* lane, const BoxedArguments& arguments) {
  IdentityVisitor visitor;
  visit(arguments, visitor);
  visitor.identities.write(lane, trace::kRoomWords);
}

struct ClassVisitor {
  PyTypeObject* found = nullptr;

  void tensor(uint16_t, const at::Tensor& value) {
    const c10::TensorImpl* impl = value.unsafeGetTensorImpl();
    PyObject* object = impl->key_set().has(c10::DispatchKey::Python) ? torch_abi::python_object(*impl) : nullptr;
    if (object && (!found || PyType_IsSubtype(Py_TYPE(object), found))) found = Py_TYPE(object);
  }
};

template <class Arguments>
PyTypeObject* find_class(const Arguments& arguments) noexcept try {
  ClassVisitor visitor;
  visit(arguments, visitor);
  return visitor.found;
} catch (...) {
  return nullptr;
}

}  // namespace

PyTypeObject* class_of(const TensorArguments& arguments) noexcept { return find_class(arguments); }
PyTypeObject* class_of(const BoxedArguments& arguments) noexcept { return find_class(arguments); }

uint32_t signature_of(trace::Lane* lane, const TensorArguments& arguments) noexcept try {
  Hasher hasher;
  for (size_t i = 0; i < arguments.size; ++i) {
    const TensorArgument& argument = arguments.list[i];
    if (__builtin_expect(argument.kind == ArgumentKind::kTensor, 1))
      hasher.tensor(argument.position, *static_cast<const at::Tensor*>(argument.address));
    else
      hasher = hash_other(hasher, argument);
  }
  return id_of(lane, arguments, hasher);
} catch (...) {
  return 0;
}

uint32_t signature_of(trace::Lane* lane, const BoxedArguments& boxed) noexcept try {
  HashVisitor visitor;
  visit(boxed, visitor);
  std::string scalars;
  if (lane->scalars || has_object(boxed)) scalars = scalars_of(boxed.first, boxed.size, !lane->scalars);
  if (scalars.empty()) return id_of(lane, boxed, visitor.hasher);
  if (lane->scalars) write_identities(lane, boxed);
  uint64_t hash = mix(visitor.hasher.hash, trace::hash_bytes(scalars.data(), scalars.size()));
  if (uint32_t id = lane->signatures.find(hash)) return id;
  return define(lane, boxed, hash, scalars);
} catch (...) {
  return 0;
}

void write_results(trace::Lane* lane, const BoxedArguments& results) noexcept try {
  HashVisitor hashes;
  visit(results, hashes);
  if (!hashes.hasher.tensors) return;
  uint32_t signature = id_of(lane, results, hashes.hasher);
  IdentityVisitor visitor;
  visit(results, visitor);
  visitor.identities.write_results(lane, signature);
} catch (...) {
}

}  // namespace tracer::dispatch
