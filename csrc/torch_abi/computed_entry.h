// What the dispatcher would put into a table entry now. A hop that is there does not matter: the registrations are asked.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "private_member.h"

namespace tracer::torch_abi {

namespace layout {
struct ComputedEntry {
  using type = const c10::KernelFunction& (c10::impl::OperatorEntry::*)(const c10::Dispatcher&, c10::DispatchKey) const;
  friend type member(ComputedEntry);
};
template struct Access<ComputedEntry, &c10::impl::OperatorEntry::computeDispatchTableEntry>;
}  // namespace layout

// With the dispatcher's lock held.
inline const c10::KernelFunction& computed_entry(const c10::impl::OperatorEntry& entry, c10::DispatchKey key) {
  return (entry.*member(layout::ComputedEntry{}))(c10::Dispatcher::singleton(), key);
}

}  // namespace tracer::torch_abi
