#include "registration.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "../torch_abi/computed_entry.h"
#include "../torch_abi/dispatch_table.h"

namespace tracer::overrides {

namespace {

// Recursive: a reserve may die, and so call remove_what_was_left(), on the thread that is switching.
std::recursive_mutex& registry_mutex() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

std::vector<Override*>& registry() {
  static auto& overrides = *new std::vector<Override*>;
  return overrides;
}

// The dispatcher warns, once a process, when a kernel takes the place of another. Here that is meant; with "always
// warn" the once is not used up for those who did not mean it.
class NoOverridingWarning {
 public:
  NoOverridingWarning() : always_(c10::WarningUtils::get_warnAlways()), guard_(&handler_) { c10::WarningUtils::set_warnAlways(true); }
  ~NoOverridingWarning() { c10::WarningUtils::set_warnAlways(always_); }

 private:
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  bool always_;
  Silent handler_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

std::pair<std::string, std::string> name_and_overload(const std::string& name) {
  size_t dot = name.find('.');
  return dot == std::string::npos ? std::pair(name, std::string()) : std::pair(name.substr(0, dot), name.substr(dot + 1));
}

}  // namespace

Operator::Operator(const char* name, Implement implement, std::source_location where) : name_(name), implement_(implement), where_(where) {}

void Operator::install() {
  if (installed()) return;
  auto& dispatcher = c10::Dispatcher::singleton();
  auto [base, overload] = name_and_overload(name_);
  auto op = dispatcher.findSchema({base, overload});
  if (!op) throw std::runtime_error("this torch has no operator " + name_);
  {
    std::lock_guard lock(torch_abi::dispatcher_mutex());
    const c10::KernelFunction& stock = torch_abi::computed_entry(torch_abi::entry_of(*op), kKey);
    if (!stock.isValid() || stock.isFallthrough())
      throw std::runtime_error("this torch has no " + std::string(c10::toString(kKey)) + " kernel of " + name_);
    // Kept for ever: a thread may be handing over while the override is removed.
    stock_.store(new c10::KernelFunction(stock), std::memory_order_release);
    handle_.store(new c10::OperatorHandle(*op), std::memory_order_release);
  }
  NoOverridingWarning quiet;
  auto library =
      std::make_unique<torch::Library>(torch::Library::IMPL, base.substr(0, base.find("::")), kKey, where_.file_name(), where_.line());
  implement_(*library);
  library_ = std::move(library);
}

void Operator::remove() { library_.reset(); }

Override::Override(const char* name, std::vector<Operator*> operators) : name_(name), operators_(std::move(operators)) {
  auto& all = registry();
  all.insert(std::upper_bound(all.begin(), all.end(), this, [](auto* a, auto* b) { return a->name() < b->name(); }), this);
}

void Override::install(bool forced) {
  std::lock_guard lock(registry_mutex());
  forced_.store(forced, std::memory_order_relaxed);
  wanted_ = true;
  try {
    for (Operator* op : operators_) op->install();
  } catch (...) {
    remove();
    throw;
  }
}

void Override::remove() {
  std::lock_guard lock(registry_mutex());
  wanted_ = false;
  for (Operator* op : operators_)
    if (op->installed() && !still_needed(*op)) op->remove();
}

void Override::remove_what_was_left() {
  if (wanted_) return;
  std::lock_guard lock(registry_mutex());
  if (!wanted_) remove();
}

const std::vector<Override*>& all_overrides() { return registry(); }

Override& override_named(const std::string& name) {
  std::string known;
  for (Override* one : registry()) {
    if (one->name() == name) return *one;
    known += (known.empty() ? "" : ", ") + one->name();
  }
  throw std::invalid_argument("unknown built-in override \"" + name + "\"; choose " + known);
}

}  // namespace tracer::overrides
