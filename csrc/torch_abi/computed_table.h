// The text of OperatorHandle::dumpComputedTable(), a line for each dispatch key. tracer/base/torch_abi.py has its pattern for
// Python.
#pragma once

#include <string>
#include <string_view>

namespace tracer::torch_abi {

struct Registration {
  std::string where;  // FILE:LINE
  std::string rule;   // "kernel", "math kernel", "default backend kernel", "backend fallback", ...
};

// What a dump says of a key; empty if it has no line for it.
Registration registration_in(std::string_view dump, std::string_view key);

}  // namespace tracer::torch_abi
