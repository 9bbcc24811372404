#include "thread_time.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "clock.h"

namespace tracer::trace {

namespace {

// `/proc/thread-self/schedstat`: time on a processor, time that it was ready and others ran (both in ns), turns.
uint64_t ready_ns() {
  int fd = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kUnknownTime;
  char text[64];
  ssize_t size = ::read(fd, text, sizeof text);
  ::close(fd);
  const char* end = text + (size < 0 ? 0 : size);
  uint64_t ran = 0, ready = 0;
  auto first = std::from_chars(text, end, ran);
  if (first.ec != std::errc() || first.ptr == end) return kUnknownTime;
  auto second = std::from_chars(first.ptr + 1, end, ready);
  return second.ec == std::errc() && ready < kUnknownTime ? ready : kUnknownTime;
}

}  // namespace

ThreadTime time_of_thread() noexcept {
  int kept = errno;
  ThreadTime time{nanoseconds(CLOCK_THREAD_CPUTIME_ID), ready_ns()};
  errno = kept;
  return time;
}

}  // namespace tracer::trace
