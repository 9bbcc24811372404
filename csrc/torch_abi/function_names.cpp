#include "function_names.h"

namespace tracer::torch_abi {
namespace {

// at::_ops::<operator>::call(...) and ::redispatch(c10::DispatchKeySet, ...); `rest` is what follows at::_ops.
FunctionKind kind_of_operator_function(std::string_view rest) {
  size_t length = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') length = length * 10 + size_t(rest[0] - '0'), rest.remove_prefix(1);
  if (length >= rest.size()) return FunctionKind::kOther;
  rest.remove_prefix(length);
  if (rest.starts_with("4callE")) return FunctionKind::kCalls;
  if (rest.starts_with("10redispatchE")) return FunctionKind::kRedispatches;
  return FunctionKind::kOther;
}

}  // namespace

FunctionKind kind_of_function(std::string_view name) {
  constexpr std::string_view kOperators = "_ZN2at4_ops";
  if (name.starts_with(kOperators)) return kind_of_operator_function(name.substr(kOperators.size()));
  if (name.starts_with("_ZN3c1010Dispatcher27callWithDispatchKeySlowPath") || name.starts_with("_ZNK3c1010Dispatcher9callBoxedE") ||
      name.starts_with("_ZNK3c1014OperatorHandle9callBoxedE"))
    return FunctionKind::kCalls;
  if (name.starts_with("_ZNK3c1010Dispatcher15redispatchBoxedE") || name.starts_with("_ZNK3c1014OperatorHandle15redispatchBoxedE"))
    return FunctionKind::kRedispatches;
  // Compilers inline Dispatcher::redispatchBoxed into these fallbacks.
  if (name.starts_with("_ZN2at6native12cpu_fallbackE") || name.find("25pythonTLSSnapshotFallbackE") != std::string_view::npos)
    return FunctionKind::kRedispatches;
  // And Dispatcher::callBoxed into these, which call their own operator again.
  if (name.find("21functionalizeFallbackE") != std::string_view::npos || name.starts_with("_ZL17get_local_results"))
    return FunctionKind::kCalls;
  if (name.starts_with("_ZN3c1025callUnboxedKernelFunctionI") || name.starts_with("_ZN3c104impl18BoxedKernelWrapperI"))
    return FunctionKind::kHelper;
  return FunctionKind::kOther;
}

bool asks_the_profiler(std::string_view name) {
  return name.starts_with("_ZN2at27getStepCallbacksUnlessEmptyE") || name.starts_with("_ZN3c1010Dispatcher17runRecordFunctionE");
}

}  // namespace tracer::torch_abi
