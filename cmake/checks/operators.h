#pragma once

using Kernel = long (*)(long, long, long);

namespace at::_ops {

struct mm {
  static long call(Kernel, long);
  static long redispatch(Kernel, long);
};
struct view {
  static long call(Kernel, long);
  static long redispatch(Kernel, long);
};
struct expand {
  static long call(Kernel, long);
  static long redispatch(Kernel, long);
};

}  // namespace at::_ops

long run(Kernel, long);                // neither call nor redispatch
extern "C" long register_one(long a);  // calls registered(), a + 10, and adds 1
