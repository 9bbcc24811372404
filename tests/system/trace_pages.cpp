// Writes a trace without torch or Python, for the page size that it was compiled with: trace_pages FILE SECOND-FILE BYTES-OF-RING
//
// A second process joins and leaves. FILE stays as a killed process leaves it; a second one is closed, and so trimmed.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "trace/record_stream.h"

using namespace tracer::trace;

namespace {

constexpr uint32_t kStrings = 9000;  // more than a chunk of definitions holds

bool write(TraceFile& file, uint32_t from) {
  DefinitionStream definitions;
  ActivityStream activities;
  bool written = true;
  for (uint32_t i = from; i < from + kStrings; ++i) {
    DefinitionBuilder definition(kString);
    definition.put(i).put_string(std::string(60, 'a') + std::to_string(i));
    written = written && definitions.write(file, 0, 1, definition);
  }
  for (int i = 0; i < 90'000; ++i) {  // more than the slots of a ring of 8 MiB hold
    uint64_t record[kActivityWords] = {};
    written = written && activities.write(file, 1, record);
  }
  definitions.finish(file);
  activities.finish(file);
  return written;
}

}  // namespace

int main(int, char** arguments) {
  uint64_t bytes = strtoull(arguments[3], nullptr, 10);
  for (const char* path : {arguments[1], arguments[2]}) {
    TraceFile* file = TraceFile::create(path, 7, 0, Limit{bytes, bytes != 0}, false);
    if (!write(*file, 1)) return 1;
    if (fork() == 0) {
      TraceFile* joined = TraceFile::join(path, 7, false);
      bool written = joined && write(*joined, kStrings + 1);
      if (joined) joined->close();
      _exit(written ? 0 : 1);
    }
    int status = 0;
    if (wait(&status) < 0 || status) return 2;
    if (path == arguments[2]) file->close();
  }
  return 0;
}
