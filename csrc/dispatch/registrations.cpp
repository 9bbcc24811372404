#include "registrations.h"

#include <string_view>

namespace tracer::dispatch {

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

Registration registration_of(const OperatorRecord& op, uint32_t table_index) {
  // The dump reads the operator's list of kernels, which registrations change under this lock. Waiting
  // for it inside an op could deadlock (its holder may want the GIL), so ask only.
  std::unique_lock lock(dispatcher_mutex(), std::try_to_lock);
  if (!lock) return {};
  std::string dump = op.handle.dumpComputedTable();
  lock.unlock();
  // A line is "KEY: registered at FILE:LINE [rule]" or "KEY: fallthrough registered at ...".
  std::string start = key_name(table_index) + ": ";
  size_t at = 0;
  while (at < dump.size()) {
    size_t end = std::min(dump.find('\n', at), dump.size());
    std::string_view line(dump.data() + at, end - at);
    at = end + 1;
    if (!line.starts_with(start)) continue;
    line.remove_prefix(start.size());
    size_t bracket = line.rfind(" [");
    if (bracket == std::string_view::npos || !line.ends_with(']')) return {std::string(line), ""};
    std::string_view where = line.substr(0, bracket), rule = line.substr(bracket + 2, line.size() - bracket - 3);
    constexpr std::string_view kRegisteredAt = "registered at ";
    if (where.starts_with(kRegisteredAt)) where.remove_prefix(kRegisteredAt.size());
    return {std::string(where), std::string(rule)};
  }
  return {};
}

}  // namespace tracer::dispatch
