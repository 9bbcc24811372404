// The words of every dispatch table entry, read without tracer's extension: what test_stop.py compares.
#include "torch_abi/dispatch_table.h"

#include <cstring>

using namespace tracer::torch_abi;

// Fills `words` with {boxed, unboxed, sym unboxed} of each entry of each operator, in the order of
// operator names, and `names` with these names, a line each. Returns how many words there are; with
// too little room it only counts.
extern "C" uint64_t table_words(uint64_t* words, uint64_t room, char* names, uint64_t names_room) {
  auto& dispatcher = c10::Dispatcher::singleton();
  auto operators = dispatcher.getAllOpNames();
  std::vector<std::pair<std::string, c10::OperatorHandle>> found;
  for (const auto& name : operators)
    if (auto op = dispatcher.findOp(name)) found.emplace_back(c10::toString(name), *op);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  uint64_t needed = found.size() * kTableEntries * 3, length = 0;
  for (const auto& [name, op] : found) length += name.size() + 1;
  if (needed > room || length > names_room) return needed;
  for (const auto& [name, op] : found) {
    memcpy(names, name.data(), name.size());
    names[name.size()] = '\n';
    names += name.size() + 1;
    for (size_t index = 0; index < kTableEntries; ++index) {
      TableEntry entry = table_entry(entry_of(op), index);
      *words++ = uint64_t(entry.boxed());
      *words++ = uint64_t(entry.unboxed());
      *words++ = uint64_t(entry.sym_unboxed());
    }
  }
  return needed;
}

// As if the operator's kernels had another C++ signature. Returns whether there is such an operator.
extern "C" bool call_otherwise(const char* name) {
  auto op = c10::Dispatcher::singleton().findOp({name, ""});
  if (!op) return false;
  auto& known = entry_of(*op).*member(layout::Signature{});
  known->signature = c10::impl::CppSignature::make<void()>();
  return true;
}
