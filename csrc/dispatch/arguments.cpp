#include "arguments.h"

namespace tracer::dispatch {
namespace {

using trace::mix;

// A signature names at most this many tensors; longer lists end there.
constexpr size_t kMostTensors = 64;
constexpr int64_t kMostDimensions = 64;

constexpr auto kNoSizes = c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::NestedTensor});

// What may be read of a tensor without running code of its own.
struct View {
  c10::DispatchKeySet keys;
  int8_t dtype = -1;
  uint8_t device_type = 0;
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
  view.keys = impl->key_set();
  view.dtype = int8_t(c10::typeMetaToScalarType(impl->dtype()));
  if (impl->has_symbolic_sizes_strides() || view.keys.has_any(kNoSizes)) return view;
  try {
    view.layout = uint8_t(impl->layout());
    c10::Device device = impl->device();
    view.device_type = uint8_t(device.type());
    view.device_index = int8_t(device.index());
    view.sizes = impl->sizes();
    view.sized = int64_t(view.sizes.size()) <= kMostDimensions;
    if (impl->layout() == c10::kStrided) {
      view.strides = impl->strides();
      view.flags |= trace::kHasStrides;
    }
    if (impl->requires_grad()) view.flags |= trace::kRequiresGrad;
  } catch (...) {
    view.sized = false;
    view.flags &= uint8_t(~trace::kHasStrides);
  }
  return view;
}

struct Hasher {
  uint64_t hash = 0x2545F4914F6CDD1Dull;
  size_t tensors = 0;

  void tensor(uint16_t position, const at::Tensor& value) {
    if (++tensors > kMostTensors) return;
    View view = look(value);
    hash = mix(hash, view.keys.raw_repr());
    hash = mix(hash, uint64_t(position) << 48 | uint64_t(uint8_t(view.dtype)) << 40 | uint64_t(view.device_type) << 32 |
                         uint64_t(uint8_t(view.device_index)) << 24 | uint64_t(view.layout) << 16 | uint64_t(view.flags) << 8 |
                         (view.sized ? view.sizes.size() : 255));
    if (!view.sized) return;
    for (int64_t size : view.sizes) hash = mix(hash, uint64_t(size));
    for (int64_t stride : view.strides) hash = mix(hash, uint64_t(stride));
  }
};

struct Writer {
  std::string tensors_bytes;
  uint32_t tensors = 0;

  template <class T>
  void put(T value) {
    tensors_bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void tensor(uint16_t position, const at::Tensor& value) {
    if (tensors >= kMostTensors) return;
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

struct BoxedArguments {
  const c10::IValue* first;
  size_t size;
};

template <class Visitor>
void visit(const BoxedArguments& arguments, Visitor& visitor) {
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

template <class Arguments>
uint32_t intern(trace::Lane* lane, const Arguments& arguments) noexcept try {
  Hasher hasher;
  visit(arguments, hasher);
  if (!hasher.tensors) return 0;
  if (uint32_t id = lane->signatures.find(hasher.hash)) return id;
  if (trace::leave_out_definition()) return trace::kOther;
  Writer writer;
  visit(arguments, writer);
  uint32_t id = lane->signatures.add(hasher.hash);
  trace::DefinitionBuilder definition(trace::kSignature);
  definition.put(id).put(writer.tensors).put_bytes(writer.tensors_bytes);
  lane->define(definition);
  return id;
} catch (...) {
  return 0;
}

}  // namespace

uint32_t signature_of(trace::Lane* lane, const TensorArguments& arguments) noexcept { return intern(lane, arguments); }

uint32_t signature_of(trace::Lane* lane, const torch::jit::Stack& stack, size_t arguments) noexcept {
  if (arguments > stack.size()) return 0;
  return intern(lane, BoxedArguments{stack.data() + (stack.size() - arguments), arguments});
}

}  // namespace tracer::dispatch
