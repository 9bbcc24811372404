// Reads trace files as the end of a recording does, whatever is in them. Each line of stdin has a path, the number of a system
// call before which the file is cut (0: it is not), and the size that it then has. The file is counted (count_totals), trimmed
// (TraceFile::close) and counted again, and a line with what was counted is written.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "../../csrc/trace/totals.h"
#include "../../csrc/trace/trace_file.h"

using namespace tracer::trace;

namespace {

std::string path;
long calls_until_cut = 0, size_when_cut = 0;

void count_call() {
  if (calls_until_cut && --calls_until_cut == 0 && truncate(path.c_str(), size_when_cut) != 0) perror("truncate");
}

void print(const Totals& totals) {
  printf("{\"gone\": \"%s\", \"hops\": %llu, \"op_calls\": %llu, \"open_hops\": %llu, \"activities\": %llu, \"damaged_chunks\": %llu}",
         totals.gone.c_str(), (unsigned long long)totals.hops, (unsigned long long)totals.op_calls, (unsigned long long)totals.open_hops,
         (unsigned long long)totals.activities, (unsigned long long)totals.damaged_chunks);
}

// As the header of a recording that goes on, and whose next process is its root.
uint64_t open_again(bool ring) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  auto page = std::make_unique<HeaderPage>();
  file.read(reinterpret_cast<char*>(page.get()), sizeof *page);
  if (!file) return 0;
  page->header.version = kFormatVersion;
  page->header.state = kRecording;
  page->header.attached = page->header.next_process = 0;
  if (!ring) page->header.ring_slots = 0;
  for (uint32_t& pid : page->pids) pid = 0;
  file.seekp(0);
  file.write(reinterpret_cast<const char*>(page.get()), sizeof *page);
  return page->header.session;
}

// Whether it has been trimmed, or at least tried to.
bool end_recording(uint64_t session) {
  std::unique_ptr<TraceFile> file(TraceFile::join(path, session, true));
  if (!file) return false;
  if (file->is_ring())
    for (int i = 0; i < 3; ++i) file->claim(kHopChunkBytes, kHops);
  file->close();
  return true;
}

}  // namespace

// What the linker puts in the place of these functions.
extern "C" {
ssize_t __real_pread(int, void*, size_t, off_t);
ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t at) {
  count_call();
  return __real_pread(fd, data, bytes, at);
}
int __real_close(int);
int __wrap_close(int fd) {
  count_call();
  return __real_close(fd);
}
void* __real_mmap(void*, size_t, int, int, int, off_t);
void* __wrap_mmap(void* where, size_t bytes, int protection, int flags, int fd, off_t at) {
  count_call();
  return __real_mmap(where, bytes, protection, flags, fd, at);
}
}

int main() {
  watch_bus_errors([] {});
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    long calls = 0;
    words >> path >> calls >> size_when_cut;
    uint64_t session = open_again(true);
    calls_until_cut = calls;
    printf("[");
    print(count_totals(path, session));
    if (!end_recording(session)) end_recording(open_again(false));
    printf(", ");
    print(count_totals(path, session));
    calls_until_cut = 0;
    printf("]\n");
    fflush(stdout);
  }
}
