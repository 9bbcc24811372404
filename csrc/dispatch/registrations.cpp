#include "registrations.h"

#include <thread>

#include "../fork_locks.h"

namespace tracer::dispatch {

using torch_abi::kTableEntries;

namespace {

// The key of each entry of a table; Undefined where it has none.
const auto& keys_of_entries() {
  static const auto& keys = *[] {
    auto* made = new std::array<c10::DispatchKey, kTableEntries>;
    made->fill(c10::DispatchKey::Undefined);
    for (int key = 0; key <= int(c10::DispatchKey::EndOfRuntimeBackendKeys); ++key) {
      auto dispatch_key = static_cast<c10::DispatchKey>(key);
      // The end of the functionalities is no key: asked for its entry, c10 reads behind its table.
      if (dispatch_key == c10::DispatchKey::EndOfFunctionalityKeys) continue;
      if (dispatch_key == c10::DispatchKey::Dense || c10::isPerBackendFunctionalityKey(dispatch_key)) continue;
      int index = c10::getDispatchTableIndexForDispatchKey(dispatch_key);
      // StartOf...Backends has the index of the first backend, which comes after it and wins.
      if (index >= 0 && size_t(index) < kTableEntries) (*made)[size_t(index)] = dispatch_key;
    }
    return made;
  }();
  return keys;
}

}  // namespace

const std::string& key_name(uint32_t table_index) {
  static const auto& names = *[] {
    auto* made = new std::array<std::string, kTableEntries>;
    for (size_t index = 0; index < kTableEntries; ++index)
      if (auto key = keys_of_entries()[index]; key != c10::DispatchKey::Undefined || index == 0) (*made)[index] = c10::toString(key);
    return made;
  }();
  static const std::string& unknown = *new std::string("?");
  return table_index < kTableEntries ? names[table_index] : unknown;
}

torch_abi::Registration registration_of(const OperatorRecord& op, uint32_t table_index) {
  if (table_index >= kTableEntries) return {};
  // The operator's list of kernels is read, which registrations change under the dispatcher's lock. Waiting for it inside an op
  // could deadlock (its holder may want the GIL), so ask only: a few times, for another thread may be here too. The other lock
  // is the one that a fork waits for.
  constexpr int kTries = 50;
  for (int i = 0; i < kTries; ++i) {
    std::unique_lock ours(fork_lock<LockOrder::kTables>(), std::try_to_lock);
    std::unique_lock lock = ours ? std::unique_lock(torch_abi::dispatcher_mutex(), std::try_to_lock) : std::unique_lock<std::mutex>();
    if (lock) return torch_abi::registration_at(torch_abi::entry_of(op.handle), keys_of_entries()[table_index]);
    std::this_thread::yield();
  }
  return {};
}

}  // namespace tracer::dispatch
