#include "custom_ops.h"

#include "../python/python_kernel.h"
#include "../torch_abi/dispatch_table.h"
#include "class_hops.h"
#include "pointer_map.h"

namespace tracer::dispatch {
namespace {

// One hop for the function of the device, and one for the function that runs while that is disabled.
struct BothHops {
  const python::KernelSwitch* kernel_switch;
  Hop *on, *off;
};
PointerMap<BothHops>& both_hops = *new PointerMap<BothHops>;  // by the entry's hop and by each of the two; changes under the GIL

c10::OperatorKernel* functor_of(const Hop* hop) { return torch_abi::TableEntry(const_cast<c10::KernelFunction&>(hop->original)).functor(); }

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// nullptr if the kernel is of no custom operator.
BothHops* make_both(Hop* hop) {
  Gil gil;
  if (BothHops* there = both_hops.find(hop)) return there;
  const auto* found = python::KernelSwitch::of(functor_of(hop));
  if (!found) return nullptr;
  std::string* name = python::kernel_name(functor_of(hop));
  auto* made = new BothHops{found, another_hop(hop, name), another_hop(hop, name)};
  for (Hop* key : {made->on, made->off, hop}) both_hops.set(key, made);
  return made;
}

}  // namespace

Hop* hop_of_function(Hop* hop) {
  BothHops* both = both_hops.find(hop);
  if (!both) both = make_both(hop);
  if (!both) return hop;
  return both->kernel_switch->is_off() ? both->off : both->on;
}

void name_after_user(Hop* hop) {
  const BothHops* both = both_hops.find(hop);
  Gil gil;  // the kernel takes it next: here, it is no further wait
  if (auto* name = python::name_of_custom_op(functor_of(hop), both && hop == both->off)) set_python_name(hop, name);
}

}  // namespace tracer::dispatch
