// In the place of pocketfft where a source has none: each transform throws.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace pocketfft {
using shape_t = std::vector<std::size_t>;
using stride_t = std::vector<std::ptrdiff_t>;

[[noreturn]] inline void missing() { throw std::runtime_error("this debug build has no FFT: its source had no third_party/pocketfft"); }
template <typename... Arguments>
void c2r(const Arguments&...) {
  missing();
}
template <typename... Arguments>
void r2c(const Arguments&...) {
  missing();
}
template <typename... Arguments>
void c2c(const Arguments&...) {
  missing();
}
}  // namespace pocketfft
