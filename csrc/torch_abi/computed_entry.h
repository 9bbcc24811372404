// What the dispatcher would put into a table entry now. A hop that is there does not matter: the registrations are asked.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <utility>

#include "private_member.h"

namespace tracer::torch_abi {

namespace layout {
struct ComputedEntry {
  using type = const c10::KernelFunction& (c10::impl::OperatorEntry::*)(const c10::Dispatcher&, c10::DispatchKey) const;
  friend type member(ComputedEntry);
};
template struct Access<ComputedEntry, &c10::impl::OperatorEntry::computeDispatchTableEntry>;

struct ComputedEntryAndRule {
  using type = std::pair<const c10::impl::AnnotatedKernel&, const char*> (c10::impl::OperatorEntry::*)(const c10::Dispatcher&,
                                                                                                       c10::DispatchKey) const;
  friend type member(ComputedEntryAndRule);
};
template struct Access<ComputedEntryAndRule, &c10::impl::OperatorEntry::computeDispatchTableEntryWithDebug>;
}  // namespace layout

struct Registration {
  std::string where;  // FILE:LINE
  std::string rule;   // "kernel", "math kernel", "default backend kernel", "backend fallback", ...
};

// With the dispatcher's lock held, as the next.
inline const c10::KernelFunction& computed_entry(const c10::impl::OperatorEntry& entry, c10::DispatchKey key) {
  return (entry.*member(layout::ComputedEntry{}))(c10::Dispatcher::singleton(), key);
}

// The lines of OperatorHandle::dumpComputedTable() come from this; empty if an entry has no kernel.
inline Registration registration_at(const c10::impl::OperatorEntry& entry, c10::DispatchKey key) {
  auto [kernel, rule] = (entry.*member(layout::ComputedEntryAndRule{}))(c10::Dispatcher::singleton(), key);
  if (!kernel.kernel.isValid()) return {};
  constexpr std::string_view kRegisteredAt = "registered at ";
  std::string_view where = kernel.debug;
  if (where.starts_with(kRegisteredAt)) where.remove_prefix(kRegisteredAt.size());
  return {kernel.kernel.isFallthrough() ? "fallthrough " + kernel.debug : std::string(where), rule};
}

}  // namespace tracer::torch_abi
