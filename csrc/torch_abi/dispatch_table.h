// The dispatcher's table as words in memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <mutex>

#include "private_member.h"

static_assert(TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 10),
              "tracer supports torch 2.10 and newer: install a newer torch and build again");

namespace tracer::torch_abi {

namespace layout {
using Table = std::array<c10::KernelFunction, c10::num_runtime_entries>;
TRACER_PRIVATE_MEMBER(DispatchTable, c10::impl::OperatorEntry, Table, dispatchTable_);
TRACER_PRIVATE_MEMBER(UnboxedWord, c10::KernelFunction, void*, unboxed_kernel_func_);
TRACER_PRIVATE_MEMBER(SymUnboxedWord, c10::KernelFunction, void*, sym_unboxed_kernel_func_);
TRACER_PRIVATE_MEMBER(Boxed, c10::KernelFunction, c10::BoxedKernel, boxed_kernel_func_);
TRACER_PRIVATE_MEMBER(BoxedWord, c10::BoxedKernel, c10::BoxedKernel::InternalBoxedKernelFunction*, boxed_kernel_func_);
TRACER_PRIVATE_MEMBER(Functor, c10::BoxedKernel, c10::intrusive_ptr<c10::OperatorKernel>, functor_);

struct OperatorDefinition {
  friend auto member(OperatorDefinition);
};
template struct AccessAny<OperatorDefinition, &c10::OperatorHandle::operatorDef_>;
struct DispatcherGuard {
  friend auto member(DispatcherGuard);
};
template struct AccessAny<DispatcherGuard, &c10::Dispatcher::guard_>;
struct Signature {
  friend auto member(Signature);
};
template struct AccessAny<Signature, &c10::impl::OperatorEntry::cpp_signature_>;
struct SymSignature {
  friend auto member(SymSignature);
};
template struct AccessAny<SymSignature, &c10::impl::OperatorEntry::sym_cpp_signature_>;

static_assert(sizeof(c10::intrusive_ptr<c10::OperatorKernel>) == sizeof(void*), "a functor is one word");
}  // namespace layout

constexpr size_t kTableEntries = c10::num_runtime_entries;

// How a typed kernel function is called, unboxed or with SymInts, as c10::callUnboxedKernelFunction() does it.
template <class Return, class... Args>
using UnboxedFunction = Return (*)(c10::OperatorKernel*, c10::DispatchKeySet, Args...);

// The words of one table entry. Each is read and written whole, so that a thread that runs an op
// meanwhile sees the old word or the new one.
class TableEntry {
 public:
  explicit TableEntry(c10::KernelFunction& kernel) : kernel_(&kernel) {}

  bool runs_a_kernel() const { return kernel_->isValid() && !kernel_->isFallthrough(); }
  const c10::KernelFunction& kernel() const { return *kernel_; }
  c10::KernelFunction* address() const { return kernel_; }

  c10::OperatorKernel* functor() const { return static_cast<c10::OperatorKernel*>(load(functor_word())); }
  void* boxed() const { return load(boxed_word()); }
  void* unboxed() const { return load(kernel_->*member(layout::UnboxedWord{})); }
  void* sym_unboxed() const { return load(kernel_->*member(layout::SymUnboxedWord{})); }

  // Of an entry that nobody changes any more, such as a hop's copy.
  c10::OperatorKernel* plain_functor() const { return static_cast<c10::OperatorKernel*>(functor_word()); }
  void* plain_unboxed() const { return kernel_->*member(layout::UnboxedWord{}); }
  void* plain_sym_unboxed() const { return kernel_->*member(layout::SymUnboxedWord{}); }

  void set_functor(c10::OperatorKernel* functor) { store(functor_word(), functor); }
  void set_boxed(void* function) { store(boxed_word(), function); }
  void set_unboxed(void* function) { store(kernel_->*member(layout::UnboxedWord{}), function); }
  void set_sym_unboxed(void* function) { store(kernel_->*member(layout::SymUnboxedWord{}), function); }

 private:
  c10::BoxedKernel& boxed_kernel() const { return kernel_->*member(layout::Boxed{}); }
  // A pointer to a function and an intrusive_ptr, read and written as the word that each of them is.
  using Word __attribute__((may_alias)) = void*;
  Word& boxed_word() const { return reinterpret_cast<Word&>(boxed_kernel().*member(layout::BoxedWord{})); }
  Word& functor_word() const { return reinterpret_cast<Word&>(boxed_kernel().*member(layout::Functor{})); }
  static void* load(Word& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
  static void store(Word& word, void* value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

  c10::KernelFunction* kernel_;
};

inline c10::impl::OperatorEntry& entry_of(const c10::OperatorHandle& op) { return (op.*member(layout::OperatorDefinition{}))->op; }

inline TableEntry table_entry(c10::impl::OperatorEntry& entry, size_t index) {
  return TableEntry((entry.*member(layout::DispatchTable{}))[index]);
}

// The C++ signature of an operator's unboxed kernels, or of those that take SymInts. All of them have the same, and so has who
// calls them. nullptr: it has no such kernel.
inline const c10::impl::CppSignature* signature_of(c10::impl::OperatorEntry& entry, bool symint) {
  const auto& known = symint ? entry.*member(layout::SymSignature{}) : entry.*member(layout::Signature{});
  return known ? &known->signature : nullptr;
}

// The lock under which the dispatcher registers; never hold the GIL while waiting for it.
inline std::mutex& dispatcher_mutex() { return (c10::Dispatcher::singleton().*member(layout::DispatcherGuard{}))->mutex; }

}  // namespace tracer::torch_abi
