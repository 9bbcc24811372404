#include "dump.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../line.h"
#include "clock.h"
#include "dump_name.h"
#include "kept_dumps.h"
#include "trace_file.h"
#include "whole_io.h"

namespace tracer::trace {
namespace {

// Everything that copies runs in a signal handler too: system calls only, no memory, and one at a time. A main thread that
// waits in C for a collective gets the signal, and the helper thread may not be there: so the handler does it all itself.
std::atomic_flag copying = ATOMIC_FLAG_INIT;
std::atomic<bool> wanted{false};  // by a signal
// Until then no signal starts a dump: as long after one as it took. Else a storm of them leaves the main thread no time.
std::atomic<uint64_t> quiet_until{0};  // CLOCK_MONOTONIC
timer_t later;  // sends the signal again then
std::atomic<bool> has_timer{false};
char source[PATH_MAX];  // empty: nothing is recorded
uint64_t session = 0;
HeaderPage page;
uint32_t owners[1024];
char buffer[1 << 16];
char target[PATH_MAX], unfinished[PATH_MAX];

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

// What is killed while it copies leaves nothing: the file has no name yet. -1: this file system has no such files.
int open_unnamed() {
  size_t folder = size_t(strrchr(target, '/') - target);
  memcpy(unfinished, target, folder ? folder : 1);
  unfinished[folder ? folder : 1] = '\0';
  return open(unfinished, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
}

// Gives it the name `target`, where nothing is yet. Returns 0 or an errno.
int link_unnamed(int fd) {
  char name[] = "/proc/self/fd/0000000000";
  char* digit = name + sizeof name - 1;
  char* begin = name + sizeof "/proc/self/fd/" - 1;
  size_t length = 0;
  for (int rest = fd; rest || !length; rest /= 10, ++length) *--digit = char('0' + rest % 10);
  memmove(begin, digit, length);
  begin[length] = '\0';
  return linkat(AT_FDCWD, name, AT_FDCWD, target, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

// Makes the empty file `target`.
int make_target() {
  int fd = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

// With `make`, and where a number is taken with the next one. Returns 0 or an errno.
template <class Make>
int at_free_number(unsigned& number, Make make) {
  int error = make();
  while (error == EEXIST && number && number < kMostDumps) {
    if (!name_dump(target, source, ++number)) return ENAMETOOLONG;
    error = make();
  }
  return error;
}

// Where files have a name from the beginning: `target` is taken first, and filled at once when the copy is whole.
int fill_named(int from, unsigned& number, int& to) {
  if (int error = at_free_number(number, make_target)) return error;
  size_t length = strlen(target);
  errno = 0;
  bool done = false;
  if (length + sizeof ".part" <= sizeof unfinished) {
    memcpy(unfinished, target, length);
    memcpy(unfinished + length, ".part", sizeof ".part");
    unlink(unfinished);  // what a killed dump left, or somebody's link to another file
    to = open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    done = to >= 0 && copy_trace(from, to) && rename(unfinished, target) == 0;
  } else {
    errno = ENAMETOOLONG;
  }
  int error = done ? 0 : errno ? errno : EIO;
  if (!done && to >= 0) unlink(unfinished);
  if (!done) unlink(target);
  return error;
}

// Copies the trace to `target`, or to the next number that is free; `to` is that file. Returns 0 or an errno.
int fill_target(int from, unsigned& number, int& to) {
  to = open_unnamed();
  if (to < 0) return fill_named(from, number, to);
  errno = 0;
  if (!copy_trace(from, to)) return errno ? errno : EIO;
  int error = at_free_number(number, [to] { return link_unnamed(to); });
  if (!error || error == EEXIST) return error;
  close(to);  // no /proc, or a file system that links no such file
  to = -1;
  return fill_named(from, number, to);
}

// The path that was given: it must be free.
int take_path(const char* path) {
  size_t length = strlen(path);
  if (length >= sizeof target) return ENAMETOOLONG;
  memcpy(target, path, length + 1);
  struct stat status;
  return lstat(target, &status) == 0 ? EEXIST : 0;
}

// Numbers grow: the highest one is the newest dump, also where older ones were removed.
int take_number(unsigned& number) {
  number = std::max(last_kept_dump(), last_dump(source)) + 1;
  if (number > kMostDumps) {
    memcpy(target, source, strlen(source) + 1);  // what the line names
    return EEXIST;
  }
  return name_dump(target, source, number) ? 0 : ENAMETOOLONG;
}

int dump_now(const char* path) {
  if (!*source) return ENOENT;
  unsigned number = 0;  // of a path that was given
  if (int error = *path ? take_path(path) : take_number(number)) return error;
  int from = open(source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (from < 0) return errno;
  int to = -1;
  int error = fill_target(from, number, to);
  if (to >= 0) close(to);
  close(from);
  if (!error && number) dump_was_made(source, number);
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
      return "there is no higher number; move the dumps away, and send SIGUSR2 again";
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

Line notice;

void say_failed(int error) {
  notice.put("tracer: no dump was written to ").put(target).put(": ");
  if (const char* words = in_words(error))
    notice.put(words);
  else
    notice.put("system error ").put(unsigned(error)).put("; send SIGUSR2 again");
  notice.say();
}

// A process has one timer of ours, which neither a forked child nor a program that follows by exec has.
void make_timer() {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR2;
  has_timer = timer_create(CLOCK_MONOTONIC, &event, &later) == 0;
}

// True: it is too early, and the signal will come again.
bool put_off() {
  uint64_t until = quiet_until.load();
  if (!has_timer || nanoseconds(CLOCK_MONOTONIC) >= until) return false;
  itimerspec when = {};
  when.it_value = {time_t(until / 1'000'000'000), long(until % 1'000'000'000)};
  return timer_settime(later, TIMER_ABSTIME, &when, nullptr) == 0;
}

// Whoever copies sees to the dump that a signal asks for meanwhile: the handler may have interrupted that very thread.
void dump_wanted() {
  while (wanted.load() && !put_off() && !copying.test_and_set()) {
    uint64_t began = nanoseconds(CLOCK_MONOTONIC);
    int error = wanted.exchange(false) && *source ? dump_now("") : 0;
    if (error) say_failed(error);
    uint64_t ended = nanoseconds(CLOCK_MONOTONIC);
    quiet_until.store(ended + (ended - began));
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
  forget_kept_dumps();
  if (realpath(file.path().c_str(), resolved)) memcpy(source, resolved, strlen(resolved) + 1);
  copying.clear();
}

void end_dumps(bool process_ends) {
  struct sigaction now;
  bool ours = !process_ends && sigaction(SIGUSR2, nullptr, &now) == 0 && now.sa_handler == on_signal;
  if (ours) signal(SIGUSR2, SIG_IGN);  // also one that the timer has sent
  wait_for_turn();
  *source = '\0';
  if (has_timer.exchange(false)) timer_delete(later);
  if (ours) signal(SIGUSR2, SIG_DFL);
  copying.clear();
}

void forget_dump() {
  forget_kept_dumps();
  wanted.store(false);
  quiet_until.store(0);
  if (has_timer) make_timer();
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
  if (!has_timer) make_timer();
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;  // a call that waits goes on
  return sigaction(SIGUSR2, &ours, nullptr) == 0;
}

}  // namespace tracer::trace
