// The tensor arguments of a hop, as one id for each distinct signature (shapes, strides, dtypes...).
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "../torch_abi/python_types.h"
#include "../trace/lane.h"

namespace tracer::dispatch {

enum class ArgumentKind : uint16_t { kTensor, kOptionalTensor, kTensorList, kITensorList, kOptionalTensorList };

struct TensorArgument {
  const void* address;
  ArgumentKind kind;
  uint16_t position;
};

struct TensorArguments {
  const TensorArgument* list;
  size_t size;
};

struct BoxedArguments {
  const c10::IValue* first = nullptr;
  size_t size = 0;

  const c10::IValue* begin() const { return first; }
  const c10::IValue* end() const { return first + size; }
};

// The last `count` values of a stack, if it has as many.
inline BoxedArguments last_arguments(const torch::jit::Stack& stack, size_t count) {
  return count > stack.size() ? BoxedArguments{} : BoxedArguments{stack.data() + (stack.size() - count), count};
}

template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <class T>
inline constexpr bool is_tensor_argument = std::is_same_v<Plain<T>, at::Tensor> || std::is_same_v<Plain<T>, std::optional<at::Tensor>> ||
                                           std::is_same_v<Plain<T>, at::TensorList> || std::is_same_v<Plain<T>, at::ITensorListRef> ||
                                           std::is_same_v<Plain<T>, c10::List<std::optional<at::Tensor>>>;

template <class T>
constexpr ArgumentKind kind_of_argument() {
  if (std::is_same_v<Plain<T>, at::Tensor>) return ArgumentKind::kTensor;
  if (std::is_same_v<Plain<T>, std::optional<at::Tensor>>) return ArgumentKind::kOptionalTensor;
  if (std::is_same_v<Plain<T>, at::TensorList>) return ArgumentKind::kTensorList;
  if (std::is_same_v<Plain<T>, at::ITensorListRef>) return ArgumentKind::kITensorList;
  return ArgumentKind::kOptionalTensorList;
}

template <class T, class Value>
inline void add_tensor_argument(TensorArgument* list, size_t& filled, uint16_t position, const Value& value) {
  if constexpr (is_tensor_argument<T>) list[filled++] = {&value, kind_of_argument<T>(), position};
}

// Signature ids of the lane; 0 where there is no tensor. Reads no Python, throws nothing.
uint32_t signature_of(trace::Lane* lane, const TensorArguments& arguments) noexcept;
uint32_t signature_of(trace::Lane* lane, const BoxedArguments& arguments) noexcept;

// What a hop returned, behind its kExit: a kResults and its kTensors, or nothing if there is no tensor. Reads no Python.
void write_results(trace::Lane* lane, const BoxedArguments& results) noexcept;

// The class of the tensors among these whose __torch_dispatch__ torch calls first: the first one, but a subclass of it goes
// before it. nullptr where none has one.
PyTypeObject* class_of(const TensorArguments& arguments) noexcept;
PyTypeObject* class_of(const BoxedArguments& arguments) noexcept;

}  // namespace tracer::dispatch
