#include "trace_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "clock.h"
#include "crc32.h"

namespace tracer::trace {
namespace {

// A claim at or beyond this offset was made after the root had closed the file.
constexpr uint64_t kClosedOffset = 1ull << 62;
// Trimming copies at most this much; beyond it, unused parts become holes in place.
constexpr uint64_t kMostCopied = 64ull << 20;
constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

template <class T>
std::atomic_ref<T> shared(T& field) {
  return std::atomic_ref<T>(field);
}

HeaderPage* map_header(int fd) {
  void* page = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? nullptr : static_cast<HeaderPage*>(page);
}

}  // namespace

void populate(void* mapping, size_t bytes) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
  if (madvise(mapping, bytes, MADV_POPULATE_WRITE) == 0) return;
  // Kernels before 5.14: touch every page (they hold zeros, and nobody writes here yet).
  for (size_t at = 0; at < bytes; at += kPage) *(static_cast<volatile char*>(mapping) + at) = 0;
}

TraceFile::TraceFile(std::string path, int fd, HeaderPage* page) : path_(std::move(path)), fd_(fd), page_(page) {
  if (page->header.ring_slots) ring_ = std::make_unique<Ring>(fd, *page);
}

// Chunks are mapped where they stand in the file, which needs a kernel with pages as small as their unit.
void check_page_size() {
  long page = sysconf(_SC_PAGESIZE);
  if (page > long(kPage))
    throw std::runtime_error("this kernel has pages of " + std::to_string(page) + " bytes, and tracer records with pages of 4096; " +
                             "boot a kernel with pages of 4096 bytes");
}

TraceFile* TraceFile::create(const std::string& path, uint64_t session, uint32_t flags, Limit limit) {
  check_page_size();
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("cannot create the trace");
  uint32_t slots = limit.ring ? Ring::slots_of(limit.bytes) : 0;
  uint64_t first = slots ? Ring::header_bytes(slots) : kHeaderBytes;
  uint64_t reserved = first + uint64_t(slots) * kHopChunkBytes;
  int error = posix_fallocate(fd, 0, off_t(reserved));
  HeaderPage* page = error ? nullptr : map_header(fd);
  if (!page) {
    error = error ? error : errno;
    if (ftruncate(fd, 0) != 0) {
      // What was reserved of it stays; the caller removes the file.
    }
    ::close(fd);
    errno = error;
    fail("cannot reserve space for the trace");
  }
  FileHeader& header = page->header;
  ClockPair now = read_clocks();
  header.version = kFormatVersion;
  header.header_bytes = uint32_t(first);
  header.session = session;
  header.next_chunk = reserved;
  header.start_ticks = header.last_ticks = now.ticks;
  header.start_ns = header.last_ns = now.ns;
  header.wall_ns = nanoseconds(CLOCK_REALTIME);
  header.clock = clock_kind();
  header.root_pid = uint32_t(getpid());
  header.flags = flags;
  header.max_bytes = limit.bytes;
  header.ring_slots = slots;
  memcpy(header.magic, kMagic, sizeof kMagic);
  auto* file = new TraceFile(path, fd, page);
  file->register_process();
  return file;
}

TraceFile* TraceFile::join(const std::string& path, uint64_t session) {
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat status;
  HeaderPage* page = fstat(fd, &status) == 0 && status.st_size >= kHeaderBytes ? map_header(fd) : nullptr;
  if (!page || memcmp(page->header.magic, kMagic, sizeof kMagic) != 0 || page->header.session != session ||
      page->header.version != kFormatVersion || shared(page->header.state).load() != kRecording) {
    if (page) munmap(page, kHeaderBytes);
    ::close(fd);
    return nullptr;
  }
  auto* file = new TraceFile(path, fd, page);
  file->register_process();
  return file;
}

TraceFile::~TraceFile() {
  munmap(page_, kHeaderBytes);
  ::close(fd_);
}

void TraceFile::register_process() {
  process_ = shared(page_->header.next_process).fetch_add(1);
  if (process_ < kMaxProcesses) shared(page_->pids[process_]).store(uint32_t(getpid()));
  shared(page_->header.attached).fetch_add(1);
}

Chunk TraceFile::claim(uint32_t capacity, Stream stream) {
  if (stream == kDefinitions) {
    shared(page_->header.definition_bytes).fetch_add(capacity, std::memory_order_relaxed);
    return claim_at_end(capacity);
  }
  if (ring_) {
    if (out_of_space_.load(std::memory_order_relaxed) || shared(page_->header.state).load() != kRecording) return {};
    return {ring_->take(process_), kHopChunkBytes};
  }
  uint64_t max = page_->header.max_bytes;
  if (max && shared(page_->header.next_chunk).load() + capacity > max) {
    shared(page_->header.flags).fetch_or(kFull);
    return {};
  }
  return claim_at_end(capacity);
}

bool TraceFile::leave_out_definition() {
  if (!ring_) return false;
  FileHeader& header = page_->header;
  uint64_t most = header.max_bytes - uint64_t(header.ring_slots) * kHopChunkBytes;
  if (shared(header.definition_bytes).load(std::memory_order_relaxed) < most) return false;
  shared(header.other_definitions).fetch_add(1, std::memory_order_relaxed);
  return true;
}

Chunk TraceFile::claim_at_end(uint32_t capacity) {
  if (out_of_space_.load(std::memory_order_relaxed)) return {};
  uint64_t offset = shared(page_->header.next_chunk).fetch_add(capacity);
  if (offset >= kClosedOffset || shared(page_->header.state).load() != kRecording) return {};
  int error;
  do error = posix_fallocate(fd_, off_t(offset), capacity);
  while (error == EINTR);
  if (error) {
    uint32_t recording = kRecording;
    shared(page_->header.error_number).store(uint32_t(error));
    shared(page_->header.state).compare_exchange_strong(recording, kOutOfSpace);
    out_of_space_.store(error);
    return {};
  }
  return {offset, capacity};
}

void* TraceFile::map(Chunk chunk, void* where) const {
  void* mapping = mmap(where, chunk.capacity, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), fd_, off_t(chunk.offset));
  return mapping == MAP_FAILED ? nullptr : mapping;
}

void TraceFile::fill(Chunk chunk) const {
  static const void* zeros = mmap(nullptr, kHopChunkBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED || pwrite(fd_, zeros, chunk.capacity, off_t(chunk.offset)) < 0) {
    // Then the pages come one by one, when they are populated.
  }
}

void TraceFile::begin(void* mapping, Chunk chunk, Stream stream, uint32_t lane, uint32_t sequence, uint32_t epoch, uint32_t depth) {
  ChunkHeader header{};
  header.stream = stream;
  header.process = process_;
  header.pid = uint32_t(getpid());
  header.lane = lane;
  header.sequence = sequence;
  header.thread = uint32_t(syscall(SYS_gettid));
  header.epoch = epoch;
  header.depth = depth;
  header.ticks = ticks() - start_ticks();
  header.magic = kChunkMagic;
  header.check = crc32(&header, offsetof(ChunkHeader, check));
  header.capacity = chunk.capacity;
  // The magic goes last: without it the chunk does not count.
  auto* target = static_cast<ChunkHeader*>(mapping);
  memcpy(reinterpret_cast<char*>(target) + 4, reinterpret_cast<char*>(&header) + 4, sizeof header - 4);
  shared(target->magic).store(kChunkMagic, std::memory_order_release);
}

void TraceFile::finish(Chunk chunk, uint32_t used) {
  if (pwrite(fd_, &used, sizeof used, off_t(chunk.offset + offsetof(ChunkHeader, used))) < 0) {
    // The reader then reads up to the first zero word; nothing is lost.
  }
  if (ring_ && ring_->has(chunk.offset)) ring_->finish(chunk.offset, process_);
}

void TraceFile::release(Chunk chunk) {
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(chunk.offset), chunk.capacity);
  if (ring_ && ring_->has(chunk.offset)) ring_->give_back(chunk.offset);
}

void TraceFile::refresh_clock() {
  ClockPair now = read_clocks();
  shared(page_->header.last_ticks).store(now.ticks, std::memory_order_relaxed);
  shared(page_->header.last_ns).store(now.ns, std::memory_order_relaxed);
}

bool TraceFile::others_alive() const {
  uint32_t count = std::min<uint32_t>(shared(page_->header.next_process).load(), kMaxProcesses);
  if (page_->header.next_process > kMaxProcesses) return true;  // not all are known: take no risk
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t pid = shared(page_->pids[i]).load();
    if (i != process_ && pid && (kill(pid_t(pid), 0) == 0 || errno != ESRCH)) return true;
  }
  return false;
}

void TraceFile::close() {
  if (process_ < kMaxProcesses) shared(page_->pids[process_]).store(0);
  shared(page_->header.attached).fetch_sub(1);
  if (!is_root()) return;
  refresh_clock();
  uint32_t recording = kRecording;
  shared(page_->header.state).compare_exchange_strong(recording, kClosed);
  // From here on no process gets a chunk, so `end` is the end.
  uint64_t end = shared(page_->header.next_chunk).exchange(kClosedOffset);
  if (!others_alive())
    compact(end);
  else
    shared(page_->header.next_chunk).store(end);
}

// Cuts off what the chunks do not use. A kill at any moment leaves the file as it was or trimmed.
void TraceFile::compact(uint64_t end) {
  struct stat status;
  if (fstat(fd_, &status) != 0) return;
  end = std::min<uint64_t>(end, uint64_t(status.st_size));
  auto* file = static_cast<uint8_t*>(mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  if (file == MAP_FAILED) {
    shared(page_->header.next_chunk).store(end);
    return;
  }
  std::vector<Part> parts;
  uint64_t target = kHeaderBytes;
  for (uint64_t at = page_->header.header_bytes; at + sizeof(ChunkHeader) <= end;) {
    auto* header = reinterpret_cast<ChunkHeader*>(file + at);
    if (header->magic != kChunkMagic || header->capacity < sizeof(ChunkHeader) || at + header->capacity > end) {
      at += kPage;  // claimed and never begun
      continue;
    }
    uint32_t used = header->used;
    if (!used) {  // its process died: up to the last word that is not zero
      auto* words = reinterpret_cast<uint64_t*>(file + at);
      uint32_t count = header->capacity / 8;
      while (count > sizeof(ChunkHeader) / 8 && !words[count - 1]) --count;
      used = count * 8;
    }
    parts.push_back({at, used});
    target += round_up(used, 64);
    at += header->capacity;
  }
  if (target > kMostCopied || !replace_with(file, parts, target)) {
    uint64_t last = parts.empty() ? page_->header.header_bytes : parts.back().offset + round_up(parts.back().used, 64);
    for (auto& part : parts) {
      auto* header = reinterpret_cast<ChunkHeader*>(file + part.offset);
      uint64_t hole = round_up(part.offset + part.used, kPage), stop = part.offset + header->capacity;
      header->used = part.used;
      if (part.offset == parts.back().offset)
        header->capacity = uint32_t(last - part.offset);
      else if (hole < stop)
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(hole), off_t(stop - hole));
    }
    shared(page_->header.next_chunk).store(last);
    if (ftruncate(fd_, off_t(last)) != 0) {
      // The file keeps zeros at its end; the reader skips them.
    }
  }
  munmap(file, end);
}

// Writes the used parts one behind the other into a new file, which takes the place of this one.
bool TraceFile::replace_with(const uint8_t* file, const std::vector<Part>& parts, uint64_t size) const {
  struct stat here, there;
  char* path = realpath(path_.c_str(), nullptr);  // a link stays a link
  std::string ours = path ? path : "";
  free(path);
  if (ours.empty() || fstat(fd_, &here) != 0 || stat(ours.c_str(), &there) != 0) return false;
  if (here.st_ino != there.st_ino || here.st_dev != there.st_dev) return false;  // moved away meanwhile
  std::string fresh = ours + ".XXXXXX";  // a name of its own: no file of the user's is overwritten
  int fd = mkostemp(fresh.data(), O_CLOEXEC);
  if (fd < 0) return false;
  bool whole = fchmod(fd, here.st_mode & 0777) == 0 && posix_fallocate(fd, 0, off_t(size)) == 0;
  auto* copy = whole ? static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) : nullptr;
  whole = whole && copy != MAP_FAILED;
  if (whole) {
    memcpy(copy, page_, kHeaderBytes);
    auto* header = reinterpret_cast<FileHeader*>(copy);
    header->next_chunk = size;
    header->header_bytes = kHeaderBytes;  // without the owners of a ring's slots
    uint8_t* at = copy + kHeaderBytes;
    // Definitions first: a file that is cut short later keeps the names of the hops that it keeps.
    for (Stream stream : {kDefinitions, kHops, kActivities}) {
      for (auto& part : parts) {
        if (reinterpret_cast<const ChunkHeader*>(file + part.offset)->stream != stream) continue;
        memcpy(at, file + part.offset, part.used);
        auto* header = reinterpret_cast<ChunkHeader*>(at);
        header->capacity = uint32_t(round_up(part.used, 64));
        header->used = part.used;
        at += header->capacity;
      }
    }
    munmap(copy, size);
    whole = rename(fresh.c_str(), ours.c_str()) == 0;
  }
  if (!whole) unlink(fresh.c_str());
  ::close(fd);
  return whole;
}

}  // namespace tracer::trace
