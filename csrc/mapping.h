// Memory from the kernel, which may refuse: what mmap returns then is no nullptr, and has killed scripts.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tracer {

// Chunks of a trace are mapped where they are in the file: they begin at multiples of this. A kernel with larger pages cannot map them.
#if defined(TRACER_PAGE)
constexpr uint32_t kLargestPage = TRACER_PAGE;
#elif defined(__aarch64__)
constexpr uint32_t kLargestPage = 1 << 16;  // the largest that its kernels have
#else
constexpr uint32_t kLargestPage = 4096;
#endif

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// nullptr when the kernel refuses; errno says why. Also for signal handlers. tests/unit/test_csrc.py holds that nothing else maps.
[[nodiscard]] inline void* map_file(int fd, uint64_t offset, size_t bytes, int access, int flags, void* where = nullptr) {
  void* mapping = mmap(where, bytes, access, flags, fd, off_t(offset));
  return mapping == MAP_FAILED ? nullptr : mapping;
}

// Zeros of this process alone.
[[nodiscard]] inline void* map_memory(size_t bytes, int flags = 0, void* where = nullptr) {
  return map_file(-1, 0, bytes, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | flags, where);
}

}  // namespace tracer
