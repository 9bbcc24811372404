// CRC-32 as zlib computes it, for chunk headers (56 bytes: no table needed).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tracer::trace {

inline uint32_t crc32(const void* data, size_t bytes) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<const uint8_t*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
  }
  return ~crc;
}

}  // namespace tracer::trace
