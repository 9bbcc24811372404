#include "identities.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "../fork_locks.h"

namespace tracer::dispatch {
namespace {

constexpr ptrdiff_t kTensorWords = 2, kResultsWords = 2;

// A weak reference keeps the StorageImpl, so that its address is no other one's, and not its memory. Nothing of torch sees it:
// use_count() and unique() count strong ones.
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct Known {
  WeakStorage storage;
  uint64_t number;
};

// A forked child goes on with its parent's: its memory has the same storages.
std::mutex& storages_lock = fork_lock<LockOrder::kStorages>();
std::unordered_map<const c10::StorageImpl*, Known>& known_storages = *new std::unordered_map<const c10::StorageImpl*, Known>;
uint64_t numbered = 0;

// Storages that are gone are looked for when there may be as many of them as of others.
constexpr size_t kFewest = 1024;
size_t sweep_at = kFewest;

// The storages numbered last. Most die young, and a StorageImpl that is kept lies between blocks of the program's heap, which
// cannot be joined then: it asks the kernel for new pages.
constexpr size_t kYoung = 16;
std::array<const c10::StorageImpl*, kYoung> young{};

// torch::Storage of Python, which older releases free with the last weak reference: that may run Python.
bool owns_python_object(const c10::StorageImpl& storage) {
  auto owns = [](const auto& slot) {
    if constexpr (requires { slot.owns_pyobj(); }) return slot.owns_pyobj();
    return false;
  };
  return owns(*storage.pyobj_slot());
}

bool is_gone(const Known& known, const c10::StorageImpl& storage) { return known.storage.expired() && !owns_python_object(storage); }

// With the lock; `gone` is to be destroyed without it.
void take_gone_young(std::vector<WeakStorage>& gone) {
  for (const c10::StorageImpl*& one : young) {
    auto it = one ? known_storages.find(one) : known_storages.end();
    if (it == known_storages.end() || !is_gone(it->second, *one)) continue;
    gone.push_back(std::move(it->second.storage));
    known_storages.erase(it);
    one = nullptr;
  }
}

// With the lock; `gone` is to be destroyed without it.
void take_gone(std::vector<WeakStorage>& gone) {
  young.fill(nullptr);
  for (auto it = known_storages.begin(); it != known_storages.end();) {
    if (!is_gone(it->second, *it->first)) {
      ++it;
      continue;
    }
    gone.push_back(std::move(it->second.storage));
    it = known_storages.erase(it);
  }
  sweep_at = std::max(2 * known_storages.size(), kFewest);
}

// 0: not known.
uint64_t number_of(const c10::Storage& storage) {
  std::vector<WeakStorage> gone;
  std::lock_guard guard(storages_lock);
  auto found = known_storages.find(storage.unsafeGetStorageImpl());
  if (found != known_storages.end()) return found->second.number;
  if (!trace::recording_epoch.load()) return 0;  // all were forgotten
  take_gone_young(gone);
  if (known_storages.size() >= sweep_at) take_gone(gone);
  if (numbered >= trace::kStorageMask) return 0;
  known_storages.emplace(storage.unsafeGetStorageImpl(), Known{storage.getWeakStorageImpl(), numbered + 1});
  young[numbered % kYoung] = storage.unsafeGetStorageImpl();
  return ++numbered;
}

uint64_t identity_of(const at::Tensor& tensor) noexcept try {
  if (!tensor.defined()) return 0;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::VariableVersion& version = impl.version_counter();
  uint64_t word = 0;
  if (version.enabled() && version.current_version() < trace::kMostVersions)
    word = uint64_t(version.current_version() + 1) << trace::kVersionShift;
  const c10::Storage& storage = impl.unsafe_storage();
  // Those of symbolic sizes and of classes in Python end with Python code.
  bool plain =
      storage && !impl.has_symbolic_sizes_strides() && !impl.key_set().has(c10::DispatchKey::Python) && !storage.sym_nbytes().is_symbolic();
  return plain ? word | number_of(storage) : word;
} catch (...) {
  return 0;
}

}  // namespace

void Identities::add(const at::Tensor& tensor) noexcept {
  if (size_ < kMostTensors) words_[size_++] = trace::kTensorBit | identity_of(tensor);
}

bool Identities::has_room(trace::Lane* lane, ptrdiff_t further) const noexcept {
  ptrdiff_t wanted = ptrdiff_t(size_) * kTensorWords + further;
  if (lane->limit - lane->next >= wanted) return true;
  return trace::lane_advance(lane) && lane->limit - lane->next >= wanted;
}

void Identities::write_each(trace::Lane* lane, uint64_t when) const noexcept {
  for (size_t i = 0; i < size_; ++i) trace::write_event(lane, trace::kTensor, when, words_[i]);
}

void Identities::write(trace::Lane* lane, ptrdiff_t further) const noexcept {
  if (size_ && has_room(lane, further)) write_each(lane, lane->now());
}

void Identities::write_results(trace::Lane* lane, uint32_t signature) const noexcept {
  if (!size_ || !has_room(lane, kResultsWords)) return;
  uint64_t when = lane->now();
  trace::write_event(lane, trace::kResults, when, trace::two_numbers(signature, size_));
  write_each(lane, when);
}

void forget_storages() noexcept {
  std::unordered_map<const c10::StorageImpl*, Known> gone;
  std::lock_guard guard(storages_lock);
  gone.swap(known_storages);
  young.fill(nullptr);
  numbered = 0;
  sweep_at = kFewest;
}

}  // namespace tracer::dispatch
