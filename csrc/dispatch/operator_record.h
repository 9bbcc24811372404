// What is known of one operator: its handle, its name, and the hop at each of its table entries.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "../torch_abi/dispatch_table.h"

namespace tracer::dispatch {

struct Hop;

// The wrapper of an operator's C++ signature; none for operators outside ATen.
struct TypedFunction {
  void* call = nullptr;
  bool has_symint = false;
  std::optional<c10::impl::CppSignature> signature;
};

// Lives for ever, as its hops do. Changes only under the dispatcher's lock.
struct OperatorRecord {
  OperatorRecord(const c10::OperatorHandle& op, std::string name) : handle(op), name(std::move(name)) {}

  c10::OperatorHandle handle;
  std::string name;
  TypedFunction typed;
  bool wanted = true;  // its entries are wrapped
  bool other_signature = false;  // torch calls it otherwise than the wrapper of its name, which it has not got therefore
  std::array<Hop*, torch_abi::kTableEntries> hops{};  // the newest hop of each entry; its `original` is what was there
};

}  // namespace tracer::dispatch
