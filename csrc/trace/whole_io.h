// pread() and pwrite() of all bytes or none. System calls only: in a signal handler too.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tracer::trace {

template <class Call>
bool all_of(size_t bytes, Call call) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = call(done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += size_t(count);
  }
  return true;
}

inline bool pread_all(int fd, void* data, size_t bytes, uint64_t at) {
  return all_of(bytes, [&](size_t done) { return pread(fd, static_cast<char*>(data) + done, bytes - done, off_t(at + done)); });
}

inline bool pwrite_all(int fd, const void* data, size_t bytes, uint64_t at) {
  return all_of(bytes, [&](size_t done) { return pwrite(fd, static_cast<const char*>(data) + done, bytes - done, off_t(at + done)); });
}

}  // namespace tracer::trace
