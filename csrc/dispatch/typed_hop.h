// The wrapper of an unboxed kernel function, one instantiation for each distinct C++ signature
// (generate_typed_hops.py). It has the calling convention of the entry that it replaces.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/IListRef.h>

#include <string_view>
#include <unordered_map>

#include "../native/caller.h"
#include "../torch_abi/dispatch_table.h"
#include "hop.h"
#include "operator_record.h"

namespace tracer::dispatch {

template <class Signature>
struct TypedHop;

template <class Return, class... Args>
struct TypedHop<Return(Args...)> {
  static constexpr bool has_symint = std::disjunction_v<c10::has_symint<Args>...>;

  // KernelFunction::call() without the operator: only a boxed function asks which one it is.
  __attribute__((always_inline)) static Return call_original(Hop* hop, c10::DispatchKeySet keys, Args... args) {
    torch_abi::TableEntry entry(hop->original);
    if (void* function = has_symint ? entry.plain_sym_unboxed() : entry.plain_unboxed(); __builtin_expect(function != nullptr, 1)) {
      auto* typed = reinterpret_cast<torch_abi::UnboxedFunction<Return, Args...>>(function);
      return typed(entry.plain_functor(), keys, std::forward<Args>(args)...);
    }
    return convert_and_call_original(hop, keys, std::forward<Args>(args)...);
  }

  // The original is boxed, or takes integers where the entry takes symbolic ones.
  __attribute__((noinline, cold)) static Return convert_and_call_original(Hop* hop, c10::DispatchKeySet keys, Args... args) {
    return hop->original.template call<Return, Args...>(hop->op->handle, keys, std::forward<Args>(args)...);
  }

  static Return call(c10::OperatorKernel* functor, c10::DispatchKeySet keys, Args... args) {
    Hop* hop = hop_of(functor);
    HopScope scope;
    if (__builtin_expect(recording(), 1)) {
      constexpr size_t tensors = (size_t(is_tensor_argument<Args>) + ... + 0);
      TensorArgument list[tensors ? tensors : 1];
      if constexpr (tensors > 0) {
        size_t filled = 0;
        uint16_t position = 0;
        (add_tensor_argument<Args>(list, filled, position++, args), ...);
      }
      scope.enter(hop, keys, TRACER_FRAME(), TensorArguments{list, tensors});
    }
    if constexpr (std::is_void_v<Return>) {
      call_original(hop, keys, std::forward<Args>(args)...);
      scope.returned();
    } else if constexpr (std::is_reference_v<Return>) {
      Return result = call_original(hop, keys, std::forward<Args>(args)...);
      scope.returned(result);
      return result;
    } else {
      Return result = call_original(hop, keys, std::forward<Args>(args)...);
      scope.returned(result);
      return result;
    }
  }
};

// From an operator's full name (`aten::add.Tensor`) to the wrapper of its signature.
using TypedFunctions = std::unordered_map<std::string_view, TypedFunction>;

template <class Signature>
TypedFunction typed_function() {
  return {reinterpret_cast<void*>(&TypedHop<Signature>::call), TypedHop<Signature>::has_symint, c10::impl::CppSignature::make<Signature>()};
}

}  // namespace tracer::dispatch
