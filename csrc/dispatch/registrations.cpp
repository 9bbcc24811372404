#include "registrations.h"

namespace tracer::dispatch {

using torch_abi::kTableEntries;

const std::string& key_name(uint32_t table_index) {
  static const auto& names = *[] {
    auto* made = new std::array<std::string, kTableEntries>;
    for (int key = 0; key <= int(c10::DispatchKey::EndOfRuntimeBackendKeys); ++key) {
      auto dispatch_key = static_cast<c10::DispatchKey>(key);
      // The end of the functionalities is no key: asked for its entry, c10 reads behind its table.
      if (dispatch_key == c10::DispatchKey::EndOfFunctionalityKeys) continue;
      if (dispatch_key == c10::DispatchKey::Dense || c10::isPerBackendFunctionalityKey(dispatch_key)) continue;
      int index = c10::getDispatchTableIndexForDispatchKey(dispatch_key);
      // StartOf...Backends has the index of the first backend, which comes after it and wins.
      if (index >= 0 && size_t(index) < kTableEntries) (*made)[size_t(index)] = c10::toString(dispatch_key);
    }
    return made;
  }();
  static const std::string& unknown = *new std::string("?");
  return table_index < kTableEntries ? names[table_index] : unknown;
}

torch_abi::Registration registration_of(const OperatorRecord& op, uint32_t table_index) {
  // The dump reads the operator's list of kernels, which registrations change under this lock. Waiting
  // for it inside an op could deadlock (its holder may want the GIL), so ask only.
  std::unique_lock lock(torch_abi::dispatcher_mutex(), std::try_to_lock);
  if (!lock) return {};
  std::string dump = op.handle.dumpComputedTable();
  lock.unlock();
  return torch_abi::registration_in(dump, key_name(table_index));
}

}  // namespace tracer::dispatch
