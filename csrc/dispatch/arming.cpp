#include "arming.h"

#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "../fork_locks.h"
#include "../native/elf.h"
#include "../python/python_kernel.h"
#include "../torch_abi/dispatcher_functions.h"
#include "../torch_abi/functors.h"
#include "../trace/recording.h"
#include "call_sites.h"
#include "hop.h"
#include "operator_record.h"
#include "pointer_map.h"
#include "registrations.h"
#include "typed_hop.h"

namespace tracer::dispatch {

const TypedFunctions& typed_functions();  // generated

namespace {

using c10::impl::OperatorEntry;
using torch_abi::dispatcher_mutex, torch_abi::entry_of, torch_abi::kTableEntries, torch_abi::table_entry, torch_abi::TableEntry;

// The dispatcher's lock. With it goes one of our own, which a fork waits for: the dispatcher's would stay locked in the child.
struct TablesGuard {
  std::lock_guard<std::mutex> ours{fork_lock<LockOrder::kTables>()};
  std::lock_guard<std::mutex> dispatchers{dispatcher_mutex()};
};

// Everything here changes under the dispatcher's lock only, and lives for ever.
PointerMap<OperatorRecord>& records = *new PointerMap<OperatorRecord>;  // by OperatorEntry*
PointerMap<Hop>& hops_by_functor = *new PointerMap<Hop>;
// Boxed functors that several operators share (a Python fallback): each operator's own hop.
struct OtherOwner {
  Hop* hop;
  OtherOwner* next;
};
PointerMap<OtherOwner>& other_owners = *new PointerMap<OtherOwner>;
PointerMap<Hop>& older_hops = *new PointerMap<Hop>;  // by Hop*: the earlier hop of the same entry

// The hops of entries. They are made in blocks: malloc's words around each, and a list of them, would be a
// quarter of their memory.
struct AllHops {
  static constexpr size_t kBlock = 1024;
  std::vector<Hop*> blocks;
  size_t size = 0;

  Hop* make(const c10::KernelFunction& kernel, const OperatorRecord* op, uint32_t index) {
    if (size % kBlock == 0) blocks.push_back(static_cast<Hop*>(::operator new(kBlock * sizeof(Hop))));
    Hop* room = blocks.back() + size % kBlock;
    ++size;
    return new (room) Hop(kernel, op, ++hops_made, index);
  }
  Hop* at(size_t place) const { return blocks[place / kBlock] + place % kBlock; }
};
AllHops& all_hops = *new AllHops;
std::atomic<bool> armed{false};
std::atomic<size_t> rearmed{0};
size_t entries_seen = 0, entries_hooked = 0;
std::vector<NamedEntry>& unhookable = *new std::vector<NamedEntry>;
std::vector<std::string>& other_signatures = *new std::vector<std::string>;
bool call_sites_known = false;
bool boxed_only = false;  // a boxed wrapper sees every argument as a value: for arguments that are no tensors
std::vector<std::string>& wanted_operators = *new std::vector<std::string>;  // patterns; none: all operators

// `aten::mm*` is asked of an operator's name with its overload and without.
bool is_wanted(const std::string& name) {
  if (wanted_operators.empty()) return true;
  std::string base = name.substr(0, name.find('.'));
  for (const std::string& pattern : wanted_operators)
    if (!fnmatch(pattern.c_str(), name.c_str(), 0) || !fnmatch(pattern.c_str(), base.c_str(), 0)) return true;
  return false;
}

TableEntry original_of(const Hop& hop) { return TableEntry(const_cast<c10::KernelFunction&>(hop.original)); }

// ---- functors -------------------------------------------------------------------------------
// A functor without state ignores its `this`, so a Hop can take its place at once for old and new code.
bool is_stateless(c10::OperatorKernel* functor) {
  if (!functor) return true;
  static auto& known = *new std::unordered_map<const void*, bool>;
  const void* vtable = torch_abi::vtable_of(functor);
  auto found = known.find(vtable);
  if (found == known.end()) found = known.emplace(vtable, torch_abi::is_stateless(functor)).first;
  return found->second;
}

std::vector<Hop*>& unnamed_python_hops = *new std::vector<Hop*>;

// With the GIL, which the dispatcher's lock may not wait for: a thread that has it already names the
// kernel at once, others leave that to name_python_kernels().
void name_python_kernel(Hop* hop, c10::OperatorKernel* functor) {
  if (PyGILState_Check())
    set_python_name(hop, python::kernel_name(functor));
  else
    unnamed_python_hops.push_back(hop);
}

// Does it return memory of an argument that it need not have written?
bool returns_view(const c10::OperatorHandle& op) {
  if (!op.hasSchema()) return false;
  for (const c10::Argument& result : op.schema().returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

Hop* make_hop(OperatorRecord& op, TableEntry entry, uint32_t index) {
  Hop* hop = all_hops.make(entry.kernel(), &op, index);
  // One reference for the table's word, which the dispatcher may drop, and one that is never dropped.
  c10::raw::intrusive_ptr::incref(hop);
  c10::raw::intrusive_ptr::incref(hop);
  c10::OperatorKernel* functor = entry.functor();
  if (!is_stateless(functor)) hop->flags |= trace::kStatefulHop;
  if (returns_view(op.handle)) hop->flags |= trace::kViewHop;
  if (functor && torch_abi::is_python_kernel(functor)) {
    hop->flags |= trace::kPythonHop;
    name_python_kernel(hop, functor);
  }
  return hop;
}

bool same_functions(TableEntry a, TableEntry b) {
  return a.boxed() == b.boxed() && a.unboxed() == b.unboxed() && a.sym_unboxed() == b.sym_unboxed();
}

Hop* owner_among(c10::OperatorKernel* functor, const OperatorRecord* op) {
  Hop* first = hops_by_functor.find(functor);
  if (first && first->op == op) return first;
  for (OtherOwner* other = other_owners.find(functor); other; other = other->next)
    if (other->hop->op == op) return other->hop;
  return nullptr;
}

// The hop of a functor with state, found by the functor's address: one for each operator.
Hop* shared_hop(OperatorRecord& op, TableEntry entry) {
  c10::OperatorKernel* functor = entry.functor();
  if (Hop* hop = owner_among(functor, &op)) return hop;
  Hop* hop = make_hop(op, entry, uint32_t(kTableEntries));  // at several entries: the key set tells which
  if (!hops_by_functor.find(functor))
    hops_by_functor.set(functor, hop);
  else
    other_owners.set(functor, new OtherOwner{hop, other_owners.find(functor)});
  return hop;
}

// ---- one entry --------------------------------------------------------------------------------
void set_functions(TableEntry entry, void* boxed, void* unboxed, void* sym_unboxed) {
  entry.set_boxed(boxed);
  // The word that gets a function goes before the word that loses one: a caller that reads both in
  // between finds at least the boxed function.
  if (sym_unboxed) entry.set_sym_unboxed(sym_unboxed);
  entry.set_unboxed(unboxed);
  if (!sym_unboxed) entry.set_sym_unboxed(nullptr);
}

bool is_wrapped(TableEntry entry) { return entry.boxed() == reinterpret_cast<void*>(&boxed_hop); }

// The hop of a functor without state, whose place it takes.
Hop* own_hop(OperatorRecord& op, TableEntry entry, uint32_t index) {
  c10::OperatorKernel* functor = entry.functor();
  for (Hop* hop = op.hops[index]; hop; hop = older_hops.find(hop))  // registered away and back again
    if (original_of(*hop).functor() == functor && same_functions(original_of(*hop), entry)) return hop;
  Hop* hop = make_hop(op, entry, index);
  if (op.hops[index]) older_hops.set(hop, op.hops[index]);
  // A thread that read the functor word before we store the hop there still finds a hop by it.
  if (functor && !hops_by_functor.find(functor)) hops_by_functor.set(functor, hop);
  return hop;
}

void wrap_entry(OperatorRecord& op, OperatorEntry& operator_entry, uint32_t index) {
  TableEntry entry = table_entry(operator_entry, index);
  if (!entry.runs_a_kernel() || is_wrapped(entry)) return;
  c10::OperatorKernel* functor = entry.functor();
  Hop* hop;
  bool typed = op.typed.call && !(boxed_only && entry.boxed());
  if (is_hop(functor)) {  // restored before: its functions came back, the hop stayed
    hop = static_cast<Hop*>(functor);
    if (hop->op != &op || !same_functions(original_of(*hop), entry)) {
      unhookable.push_back({op.name, key_name(index), "it holds the hop of another entry"});
      return;
    }
  } else if (is_stateless(functor)) {
    hop = own_hop(op, entry, index);
    entry.set_functor(hop);
  } else {
    hop = shared_hop(op, entry);
    // A typed wrapper has only the functor to find its hop by: it serves the functor's first operator.
    typed = typed && hops_by_functor.find(functor) == hop;
  }
  op.hops[index] = hop;
  hop->flags = typed ? hop->flags | trace::kTypedHop : hop->flags & ~uint32_t(trace::kTypedHop);
  native::handed_over(hop);
  set_functions(entry, reinterpret_cast<void*>(&boxed_hop), typed && !op.typed.has_symint ? op.typed.call : nullptr,
                typed && op.typed.has_symint ? op.typed.call : nullptr);
}

// Gives an operator the wrapper of its name, if torch calls the operator as the wrapper is called: with another signature the
// wrapper would take its arguments for what they are not.
void give_typed_function(OperatorRecord& op, OperatorEntry& entry) {
  auto found = typed_functions().find(op.name);
  if (found == typed_functions().end()) return;
  const TypedFunction& typed = found->second;
  const c10::impl::CppSignature* signature = torch_abi::signature_of(entry, typed.has_symint);
  if (signature && *signature == *typed.signature)
    op.typed = typed;
  else
    op.other_signature = true;
}

// The record of an operator; a new operator at a freed one's address gets a new record.
OperatorRecord& record_of(const c10::OperatorHandle& op, OperatorEntry& entry) {
  OperatorRecord* record = records.find(&entry);
  std::string name = c10::toString(op.operator_name());
  if (!record || record->name != name) {
    record = new OperatorRecord(op, name);
    give_typed_function(*record, entry);
    record->wanted = is_wanted(name);
    records.set(&entry, record);
  }
  return *record;
}

template <class Do>
void for_each_operator(Do act) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames())
    if (auto op = dispatcher.findOp(name)) act(*op, entry_of(*op));
}

void wrap_operator(OperatorRecord& op, OperatorEntry& entry) {
  if (!op.wanted) return;
  for (uint32_t index = 0; index < kTableEntries; ++index) wrap_entry(op, entry, index);
}

// torch calls what wraps also from destructors, where an exception ends the program. An entry that is left as it was runs
// unseen, and compare() counts it.
template <class Wrap>
void unless_no_memory(const Wrap& wrap) try {
  wrap();
} catch (const std::exception&) {
}

// Operators that come and go while hops are in place; called with the dispatcher's lock held.
struct FollowOperators final : c10::OpRegistrationListener {
  // The table of a new operator was filled before the operator could be found by name.
  void onOperatorRegistered(const c10::OperatorHandle& op) override {
    if (!armed.load(std::memory_order_acquire)) return;
    OperatorEntry& entry = entry_of(op);
    unless_no_memory([&] { wrap_operator(record_of(op, entry), entry); });
  }
  // Its schema goes. Kernels of other libraries may stay, and the record has their hops; an operator of another name that
  // is made at this address later gets a record of its own.
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}
};

// ---- what the dispatcher calls while hops are in place ---------------------------------------
torch_abi::UpdateEntry update_entry = nullptr;
torch_abi::CheckInvariants check_invariants = nullptr, check_by_python = nullptr;

void wrap_again(OperatorEntry* entry, uint32_t index) {
  OperatorRecord* record = records.find(entry);
  if (!record || record->name != c10::toString(entry->operator_name())) {
    auto op = c10::Dispatcher::singleton().findOp(entry->operator_name());
    if (!op) return;  // being made: wrapped when it is registered, or with its first kernel
    record = &record_of(*op, *entry);
    wrap_operator(*record, *entry);
  }
  if (!record->wanted) return;
  rearmed.fetch_add(1, std::memory_order_relaxed);
  wrap_entry(*record, *entry, index);
}

// The dispatcher computes an entry anew (a registration or its end), with its lock held: wrap it again.
void update_entry_and_wrap(OperatorEntry* entry, const c10::Dispatcher& dispatcher, c10::DispatchKey key) {
  update_entry(entry, dispatcher, key);
  int index = c10::getDispatchTableIndexForDispatchKey(key);
  if (index >= 0 && armed.load(std::memory_order_acquire)) unless_no_memory([&] { wrap_again(entry, uint32_t(index)); });
}

// The check compares entries with kernels, finds hops, and would turn every "not implemented" error
// into an internal one.
void check_invariants_unless_armed(const OperatorEntry* entry) {
  if (!armed.load(std::memory_order_acquire)) check_invariants(entry);
}

template <class Function>
void take_slot(const char* library, const char* symbol, Function ours, Function& original) {
  if (original) return;
  void** slot = native::find_plt_slot(library, symbol);
  if (!slot) return;
  original = reinterpret_cast<Function>(*slot);
  if (!native::write_plt_slot(slot, reinterpret_cast<void*>(ours))) original = nullptr;
}

void take_slots() {
  take_slot(torch_abi::kTorchCpu, torch_abi::kUpdateEntry, &update_entry_and_wrap, update_entry);
  take_slot(torch_abi::kTorchCpu, torch_abi::kCheckInvariants, &check_invariants_unless_armed, check_invariants);
  // Python asks for one operator (torch._C._dispatch_check_invariants) past the dispatcher.
  take_slot(torch_abi::kTorchPython, torch_abi::kCheckInvariants, &check_invariants_unless_armed, check_by_python);
}

PointerMap<std::string>& python_names = *new PointerMap<std::string>;  // by Hop*; changes under the GIL

}  // namespace

void* Hop::kernel() const {
  TableEntry entry = original_of(*this);
  c10::OperatorKernel* functor = entry.functor();
  if (void* held = functor ? torch_abi::held_function(functor) : nullptr) return held;
  return entry.sym_unboxed() ? entry.sym_unboxed() : entry.unboxed() ? entry.unboxed() : entry.boxed();
}

void* Hop::boxed() const { return original_of(*this).boxed(); }

const std::string* python_name_of(const Hop* hop) { return hop->flags & trace::kPythonHop ? python_names.find(hop) : nullptr; }

void set_python_name(const Hop* hop, std::string* name) { python_names.set(hop, name); }

Hop* hop_of_functor(c10::OperatorKernel* functor) noexcept {
  if (Hop* hop = functor ? hops_by_functor.find(functor) : nullptr) return hop;
  // Every functor under a typed wrapper was put into the table before the wrapper was.
  fputs("tracer: a kernel function was called with a functor that was never seen; please report this\n", stderr);
  abort();
}

Hop* hop_of_boxed(c10::OperatorKernel* functor, OperatorEntry& entry, c10::DispatchKeySet keys) noexcept {
  OperatorRecord* op = records.find(&entry);
  if (functor)
    if (Hop* hop = owner_among(functor, op)) return hop;
  // A functor word read before the hop was stored there: the entry's own record tells.
  int index = keys.getDispatchTableIndexForDispatchKeySet();
  if (op && index >= 0 && op->hops[size_t(index)]) return op->hops[size_t(index)];
  return hop_of_functor(functor);
}

ArmingResult arm(const std::vector<std::string>& operators) {
  auto begin = std::chrono::steady_clock::now();
  call_sites_known = prepare_call_sites();
  static auto* listener = [] {
    std::lock_guard ours(fork_lock<LockOrder::kTables>());  // for the dispatcher's lock, which is taken in there
    return new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<FollowOperators>()));
  }();
  (void)listener;
  ArmingResult result;
  {
    TablesGuard lock;
    take_slots();
    rearmed = 0;
    unhookable.clear();
    other_signatures.clear();
    wanted_operators = operators;
    boxed_only = trace::recording_file() && (trace::recording_file()->flags() & trace::kScalars);
    armed.store(true);
    for_each_operator([&](const c10::OperatorHandle& op, OperatorEntry& entry) {
      OperatorRecord& record = record_of(op, entry);
      record.wanted = is_wanted(record.name);
      if (!record.wanted) return;
      wrap_operator(record, entry);
      if (record.other_signature) other_signatures.push_back(record.name);
      ++result.operators;
      for (uint32_t index = 0; index < kTableEntries; ++index) {
        if (!table_entry(entry, index).runs_a_kernel()) continue;
        ++result.entries;
        result.hooked += is_wrapped(table_entry(entry, index));
      }
    });
    entries_seen = result.entries;
    entries_hooked = result.hooked;
  }
  name_python_kernels();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void restore() {
  TablesGuard lock;
  for_each_operator([&](const c10::OperatorHandle&, OperatorEntry& operator_entry) {
    OperatorRecord* record = records.find(&operator_entry);
    if (!record) return;
    for (uint32_t index = 0; index < kTableEntries; ++index) {
      TableEntry entry = table_entry(operator_entry, index);
      if (!is_wrapped(entry)) continue;
      TableEntry original = original_of(*record->hops[index]);
      set_functions(entry, original.boxed(), original.unboxed(), original.sym_unboxed());
    }
  });
  armed.store(false);
}

void name_python_kernels() {
  std::vector<Hop*> hops;
  {
    TablesGuard lock;
    hops.swap(unnamed_python_hops);
  }
  PyGILState_STATE gil = PyGILState_Ensure();
  for (Hop* hop : hops) set_python_name(hop, python::kernel_name(original_of(*hop).functor()));
  PyGILState_Release(gil);
}

std::vector<uint64_t> recorded_kernels() {
  std::vector<uint64_t> addresses;
  TablesGuard lock;
  for (size_t place = 0; place < all_hops.size; ++place) {
    const Hop* hop = all_hops.at(place);
    if (hop->described_epoch.load() != trace::epoch_of_recording()) continue;
    for (void* function : {hop->kernel(), hop->boxed()}) addresses.push_back(reinterpret_cast<uint64_t>(function));
  }
  return addresses;
}

ArmingState compare() {
  ArmingState state;
  TablesGuard lock;
  state.entries = entries_seen;
  state.hooked = entries_hooked;
  state.rearmed = rearmed;
  state.call_sites = call_sites_known;
  state.guards_update = update_entry != nullptr;
  state.guards_check = check_invariants != nullptr;
  state.not_hooked = unhookable;
  state.other_signatures = other_signatures;
  if (!armed) return state;
  for_each_operator([&](const c10::OperatorHandle& op, OperatorEntry& entry) {
    if (!is_wanted(c10::toString(op.operator_name()))) return;
    for (uint32_t index = 0; index < kTableEntries; ++index)
      if (table_entry(entry, index).runs_a_kernel() && !is_wrapped(table_entry(entry, index)))
        state.lost.push_back({c10::toString(op.operator_name()), key_name(index), "registered without being seen"});
  });
  return state;
}

}  // namespace tracer::dispatch
