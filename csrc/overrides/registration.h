// Overrides of operators at key CUDA: switched on and off, with the stock kernel at hand.
//
// An override is a static object of its file in ops/:
//
//   Tensor mm(DispatchKeySet keys, const Tensor& a, const Tensor& b);
//   TypedOperator<Tensor(const Tensor&, const Tensor&)> mm_operator("aten::mm", [](torch::Library& library) {
//     library.impl("mm", TORCH_FN(mm));
//   });
//   Override mm_override("mm", {&mm_operator});
//
// and its kernel function ends with mm_operator.ran() or returns mm_operator.hand_over("reason", keys, a, b).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "counts.h"

namespace tracer::overrides {

constexpr c10::DispatchKey kKey = c10::DispatchKey::CUDA;
constexpr c10::DeviceType kDevice = c10::DeviceType::CUDA;

class Override;

// One operator overload at key CUDA. Switching is done with the registry's lock held (Override below).
class Operator {
 public:
  using Implement = void (*)(torch::Library&);

  // `name` as in "aten::mm" or "aten::mm.out"; `implement` registers the kernel function in the library it gets.
  Operator(const char* name, Implement implement, std::source_location where = std::source_location::current());

  const std::string& name() const { return name_; }
  bool installed() const { return library_ != nullptr; }
  // Takes the stock kernel, then registers. Prints no warning about the kernel that it takes the place of.
  void install();
  void remove();

  void ran() noexcept { counts.ran(); }
  Counts counts;

 protected:
  // The kernel function that the registrations gave for CUDA before install(): never a recorder's hop, and not
  // freed when the override goes, since a thread may be inside it.
  const c10::KernelFunction& stock() const noexcept { return *stock_.load(std::memory_order_acquire); }
  const c10::OperatorHandle& handle() const noexcept { return *handle_.load(std::memory_order_acquire); }

 private:
  std::string name_;
  Implement implement_;
  std::source_location where_;
  std::unique_ptr<torch::Library> library_;
  std::atomic<const c10::KernelFunction*> stock_{nullptr};
  std::atomic<const c10::OperatorHandle*> handle_{nullptr};
};

template <class Signature>
class TypedOperator;

// Signature as in ATen/ops/*_ops.h (`schema`).
template <class Result, class... Arguments>
class TypedOperator<Result(Arguments...)> : public Operator {
 public:
  using Operator::Operator;

  // Runs the stock kernel without the dispatcher, so never this override again; the reason is a string literal.
  Result hand_over(const char* reason, c10::DispatchKeySet keys, Arguments... arguments) {
    counts.handed_over(reason);
    return call_stock(keys, std::forward<Arguments>(arguments)...);
  }
  Result call_stock(c10::DispatchKeySet keys, Arguments... arguments) const {
    return stock().template call<Result, Arguments...>(handle(), keys, std::forward<Arguments>(arguments)...);
  }
};

// Operators that are switched together, by name. Made before main, never destroyed before exit.
class Override {
 public:
  Override(const char* name, std::vector<Operator*> operators);
  virtual ~Override() = default;
  Override(const Override&) = delete;
  Override& operator=(const Override&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<Operator*>& operators() const { return operators_; }
  // Always used where the kernel supports the call, or only where it was measured to be faster.
  bool forced() const noexcept { return forced_.load(std::memory_order_relaxed); }

  // Both may be called again; install() changes `forced` then. They take the registry's lock.
  void install(bool forced);
  void remove();

  // Tensors that this override made and that only it can read; while there are some, `still_needed` may say that
  // an operator must stay registered although the override was removed.
  virtual int64_t live_reserves() const { return 0; }
  // Deregisters what remove() had to leave and is needed no longer; called when a reserve dies.
  void remove_what_was_left();

 protected:
  virtual bool still_needed(const Operator&) const { return false; }

 private:
  std::string name_;
  std::vector<Operator*> operators_;
  std::atomic<bool> forced_{false};
  std::atomic<bool> wanted_{false};
};

// All overrides of this build, in the order of their names.
const std::vector<Override*>& all_overrides();
// Throws std::invalid_argument that lists the known names.
Override& override_named(const std::string& name);

}  // namespace tracer::overrides
