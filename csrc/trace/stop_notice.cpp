#include "stop_notice.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "../stderr.h"

namespace tracer::trace {
namespace {

std::string why_stopped(const TraceFile& file) {
  if (file.out_of_space() == EBADF) return "the script closed the trace's descriptor, and tracer cannot open the file again";
  if (file.out_of_space()) return strerror(file.out_of_space());
  return "the file has reached --max-size";
}

std::atomic<bool> said_stopped{false};
// What the handler of SIGBUS says: made ahead of time, as nothing can be made there.
char damaged_text[512];
std::atomic<int> damaged_size{0};

}  // namespace

void prepare_stop_notice(const TraceFile& file, bool said) {
  said_stopped.store(said);
  int size =
      snprintf(damaged_text, sizeof damaged_text,
               "tracer: recording stopped: another process cut or replaced %s during the recording; the script continues unrecorded\n",
               file.path().c_str());
  damaged_size.store(std::min(size, int(sizeof damaged_text) - 1));
}

void say_damaged() {
  if (!said_stopped.exchange(true)) say({damaged_text, size_t(damaged_size.load())});
}

void say_stopped(const TraceFile& file) {
  if (file.is_damaged()) return say_damaged();
  if (said_stopped.exchange(true)) return;
  char text[512];
  int size = snprintf(text, sizeof text, "tracer: recording stopped: %s (%s); the script continues unrecorded\n", why_stopped(file).c_str(),
                      file.path().c_str());
  say({text, std::min(size_t(size), sizeof text - 1)});
}

}  // namespace tracer::trace
