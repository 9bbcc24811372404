#include "dump.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../stderr.h"
#include "clock.h"
#include "trace_file.h"

namespace tracer::trace {
namespace {

// Everything that copies runs in a signal handler too: system calls only, no memory, and one at a time. A main thread that
// waits in C for a collective gets the signal, and the helper thread may not be there: so the handler does it all itself.
std::atomic_flag copying = ATOMIC_FLAG_INIT;
std::atomic<bool> wanted{false};  // by a signal
char source[PATH_MAX];  // empty: nothing is recorded
uint64_t session = 0;
HeaderPage page;
uint32_t owners[1024];
char buffer[1 << 16];
char target[PATH_MAX], unfinished[PATH_MAX];
constexpr unsigned kMostDumps = 9999;

bool pread_all(int fd, void* data, size_t bytes, uint64_t at) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = pread(fd, static_cast<char*>(data) + done, bytes - done, off_t(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += size_t(count);
  }
  return true;
}

bool pwrite_all(int fd, const void* data, size_t bytes, uint64_t at) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = pwrite(fd, static_cast<const char*>(data) + done, bytes - done, off_t(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += size_t(count);
  }
  return true;
}

bool copy(int from, int to, uint64_t at, uint64_t end) {
  while (at < end) {
    size_t bytes = size_t(std::min<uint64_t>(end - at, sizeof buffer));
    if (!pread_all(from, buffer, bytes, at) || !pwrite_all(to, buffer, bytes, at)) return false;
    at += bytes;
  }
  return true;
}

uint64_t size_of(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? uint64_t(status.st_size) : 0;
}

// A ring's slots that were written, the owners of all of them before.
bool copy_slots(int from, int to, uint64_t first, uint32_t slots) {
  if (!copy(from, to, kHeaderBytes, first)) return false;
  constexpr uint32_t kOwners = sizeof owners / sizeof *owners;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    if (slot % kOwners == 0 &&
        !pread_all(from, owners, sizeof(uint32_t) * std::min(kOwners, slots - slot), kHeaderBytes + slot * sizeof(uint32_t)))
      return false;
    uint64_t at = first + uint64_t(slot) * kHopChunkBytes;
    if (owners[slot % kOwners] && !copy(from, to, at, at + kHopChunkBytes)) return false;
  }
  return true;
}

// Definitions are behind the slots of a ring, and are written before what names them: so they are copied later. The header
// comes last: without it the file is no trace.
bool copy_trace(int from, int to) {
  if (!pread_all(from, &page, sizeof page, 0)) return false;
  const FileHeader& header = page.header;
  if (memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.session != session || header.state == kClosed) {
    errno = ENOENT;
    return false;
  }
  uint64_t first = header.header_bytes, definitions = first + uint64_t(header.ring_slots) * kHopChunkBytes;
  if (header.ring_slots && !copy_slots(from, to, first, header.ring_slots)) return false;
  uint64_t size = size_of(from);
  if (!copy(from, to, definitions, size) || !pread_all(from, &page, sizeof page, 0)) return false;
  ClockPair now = read_clocks();
  page.header.last_ticks = now.ticks;
  page.header.last_ns = now.ns;
  page.header.flags |= kDump;
  page.header.next_chunk = size;
  memset(page.pids, 0, sizeof page.pids);
  return ftruncate(to, off_t(size)) == 0 && pwrite_all(to, &page, sizeof page, 0);
}

// To `target`, which is this process's own, empty.
int fill_target() {
  size_t length = strlen(target);
  if (length + sizeof ".part" > sizeof unfinished) return ENAMETOOLONG;
  memcpy(unfinished, target, length);
  memcpy(unfinished + length, ".part", sizeof ".part");
  errno = 0;
  int from = open(source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (from < 0) return errno;
  int to = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool done = to >= 0 && copy_trace(from, to) && rename(unfinished, target) == 0;
  int error = done ? 0 : errno ? errno : EIO;
  if (to >= 0) close(to);
  close(from);
  if (!done && to >= 0) unlink(unfinished);
  return error;
}

// Makes the empty file `target`.
int make_target() {
  int fd = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

// `run.dump0001.trace` of `run.trace`, or the first of these that is free.
int make_numbered_target() {
  constexpr char kSuffix[] = ".trace";
  size_t length = strlen(source), suffix = sizeof kSuffix - 1;
  if (length >= suffix && memcmp(source + length - suffix, kSuffix, suffix) == 0) length -= suffix;
  char number[] = ".dump0000.trace";
  if (length + sizeof number > sizeof target) return ENAMETOOLONG;
  memcpy(target, source, length);
  for (unsigned count = 1; count <= kMostDumps; ++count) {
    unsigned rest = count;
    for (int digit = 8; digit > 4; --digit, rest /= 10) number[digit] = char('0' + rest % 10);
    memcpy(target + length, number, sizeof number);
    if (int error = make_target(); error != EEXIST) return error;
  }
  return EEXIST;
}

int dump_now(const char* path) {
  if (!*source) return ENOENT;
  size_t length = strlen(path);
  if (length >= sizeof target) return ENAMETOOLONG;
  if (length) memcpy(target, path, length + 1);
  int error = length ? make_target() : make_numbered_target();
  if (error) return error;
  error = fill_target();
  if (error) unlink(target);
  return error;
}

// What happened and what to do. strerror() may not be called in a signal handler.
const char* in_words(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "no space is left; free some, and send SIGUSR2 again";
    case EACCES:
    case EPERM:
    case EROFS:
      return "permission denied; let the process write there, and send SIGUSR2 again";
    case EEXIST:
      return "dumps 0001 to 9999 exist; delete some, and send SIGUSR2 again";
    case ENOENT:
      return "the trace or its folder was deleted; record again";
    case ENAMETOOLONG:
      return "the name is too long; record to a shorter one";
    case EMFILE:
    case ENFILE:
      return "too many files are open; close some, and send SIGUSR2 again";
    default:
      return nullptr;
  }
}

char notice[PATH_MAX + 256];

// One write: lines of several ranks do not mix.
void say_failed(int error) {
  size_t size = 0;
  auto put = [&size](const char* text) {
    size_t length = std::min(strlen(text), sizeof notice - size);
    memcpy(notice + size, text, length);
    size += length;
  };
  put("tracer: no dump was written to ");
  put(target);
  put(": ");
  char digits[] = "system error 000; send SIGUSR2 again";
  if (const char* words = in_words(error)) {
    put(words);
  } else {
    for (int place = 15, rest = error; place > 12; --place, rest /= 10) digits[place] = char('0' + rest % 10);
    put(digits);
  }
  put("\n");
  say({notice, size});
}

// Whoever copies writes also the dump that a signal asks for meanwhile: the handler may have interrupted that very thread.
void dump_wanted() {
  while (wanted.load() && !copying.test_and_set()) {
    int error = wanted.exchange(false) && *source ? dump_now("") : 0;
    if (error) say_failed(error);
    copying.clear();
  }
}

void on_signal(int) {
  int before = errno;
  wanted.store(true);
  dump_wanted();
  errno = before;
}

void wait_for_turn() {
  while (copying.test_and_set()) sched_yield();
}

}  // namespace

void prepare_dumps(const TraceFile& file) {
  char resolved[PATH_MAX];
  wait_for_turn();
  session = const_cast<TraceFile&>(file).header().session;
  *source = '\0';
  if (realpath(file.path().c_str(), resolved)) memcpy(source, resolved, strlen(resolved) + 1);
  copying.clear();
}

void end_dumps() {
  struct sigaction now;
  if (sigaction(SIGUSR2, nullptr, &now) == 0 && now.sa_handler == on_signal) signal(SIGUSR2, SIG_DFL);
  wait_for_turn();
  *source = '\0';
  copying.clear();
}

void forget_dump() {
  wanted.store(false);
  copying.clear();
}

int dump(std::string& path) {
  wait_for_turn();
  int error = dump_now(path.c_str());
  if (!error) path = target;
  copying.clear();
  dump_wanted();
  return error;
}

bool dump_on_signal() {
  struct sigaction ours = {}, before;
  if (sigaction(SIGUSR2, nullptr, &before) != 0 || (before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_DFL) return false;
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;  // a call that waits goes on
  return sigaction(SIGUSR2, &ours, nullptr) == 0;
}

}  // namespace tracer::trace
