#include "computed_table.h"

#include <algorithm>

namespace tracer::torch_abi {

// A line is "KEY: registered at FILE:LINE [rule]" or "KEY: fallthrough registered at ...".
Registration registration_in(std::string_view dump, std::string_view key) {
  std::string start = std::string(key) + ": ";
  size_t at = 0;
  while (at < dump.size()) {
    size_t end = std::min(dump.find('\n', at), dump.size());
    std::string_view line = dump.substr(at, end - at);
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

}  // namespace tracer::torch_abi
