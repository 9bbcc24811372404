// A libtorch_cpu.so of a few functions: those that tell calls from redispatches by their names, and one that is
// called through the procedure linkage table.
#include "operators.h"

namespace c10 {

// torch's own code between an operator with SymInt arguments and its kernel.
template <class Return, class... Args>
__attribute__((noinline)) Return callUnboxedKernelFunction(Kernel kernel, Args... args) {
  volatile long between[sizeof...(Args) * 5] = {};  // frames of several sizes
  Return result = kernel(args...);
  return result + between[0];
}

}  // namespace c10

namespace at::_ops {

long mm::call(Kernel kernel, long a) { return kernel(a, 0, 0) + 1; }
long mm::redispatch(Kernel kernel, long a) { return kernel(a, 0, 0) + 2; }
long view::call(Kernel kernel, long a) { return c10::callUnboxedKernelFunction<long>(kernel, a, 0l, 0l) + 1; }
long view::redispatch(Kernel kernel, long a) { return c10::callUnboxedKernelFunction<long>(kernel, a, 0l, 0l) + 2; }
long expand::call(Kernel kernel, long a) { return c10::callUnboxedKernelFunction<long>(kernel, a, 0, 0l) + 1; }
long expand::redispatch(Kernel kernel, long a) { return c10::callUnboxedKernelFunction<long>(kernel, a, 0, 0l) + 2; }

}  // namespace at::_ops

long run(Kernel kernel, long a) { return kernel(a, 0, 0) + 3; }

extern "C" {
__attribute__((noinline)) long registered(long a) {
  asm volatile("");
  return a + 10;
}
long register_one(long a) { return registered(a) + 1; }
}
