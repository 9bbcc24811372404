#include "trace_file.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

#include "../mapping.h"
#include "clock.h"
#include "crc32.h"
#include "whole_io.h"

namespace tracer::trace {
namespace {

// Trimming copies at most this much; beyond it, unused parts become holes in place.
constexpr uint64_t kMostCopied = 64ull << 20;
constexpr uint32_t kNoProcess = UINT32_MAX;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

template <class T>
std::atomic_ref<T> shared(T& field) {
  return std::atomic_ref<T>(field);
}

// Whether the process may write up to there: where it may not, even asking for the space sends it SIGXFSZ, which kills.
bool may_reach(uint64_t size) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

int reserve(int fd, uint64_t offset, uint64_t size) {
  if (!may_reach(offset + size)) return EFBIG;
  int error;
  do error = posix_fallocate(fd, off_t(offset), off_t(size));
  while (error == EINTR);
  return error;
}

// Gives a file the owner of another one, as far as that is allowed, and who may read and write it.
bool take_access(int fd, const struct stat& other) {
  if (fchown(fd, other.st_uid, other.st_gid) != 0) {
    // Another user's, and this is not root.
  }
  return fchmod(fd, other.st_mode & 0777) == 0;
}

HeaderPage* map_header(int fd) { return static_cast<HeaderPage*>(map_file(fd, 0, kHeaderBytes, kReadWrite, MAP_SHARED)); }

bool write_at(int fd, const void* data, size_t bytes, uint64_t at) { return may_reach(at + bytes) && pwrite_all(fd, data, bytes, at); }

// Copies a chunk without what it does not use.
bool copy_part(FileReader& from, const FoundChunk& part, int to, uint64_t at) {
  ChunkHeader header = part.header;
  header.capacity = uint32_t(round_up(part.used, 64));
  header.used = part.used;
  if (!pwrite_all(to, &header, sizeof header, at)) return false;
  for (uint64_t done = sizeof header; done < part.used;) {
    size_t left = size_t(std::min<uint64_t>(part.used - done, FileReader::kMostBytes));
    std::string_view bytes = from.read(part.offset + done, left, left).substr(0, left);
    if (bytes.empty() || !pwrite_all(to, bytes.data(), left, at + done)) return false;
    done += left;
  }
  return true;
}

}  // namespace

void populate(void* mapping, size_t bytes) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
  if (madvise(mapping, bytes, MADV_POPULATE_WRITE) == 0) return;
  // Kernels before 5.14: touch every page (they hold zeros, and nobody writes here yet).
  constexpr size_t kSmallestPage = 4096;
  for (size_t at = 0; at < bytes; at += kSmallestPage) *(static_cast<volatile char*>(mapping) + at) = 0;
}

TraceFile::TraceFile(std::string path, std::unique_ptr<Descriptor> descriptor, HeaderPage* page, uint32_t slots)
    : path_(std::move(path)),
      descriptor_(std::move(descriptor)),
      page_(page),
      page_guard_(guard(page, kHeaderBytes)),
      session_(page->header.session) {
  if (slots) ring_ = std::make_unique<Ring>(*descriptor_, *page, slots);
}

void check_page_size() {
  long page = sysconf(_SC_PAGESIZE);
  if (page > long(kLargestPage))
    throw std::runtime_error("this kernel has pages of " + std::to_string(page) + " bytes, but this tracer needs pages of at most " +
                             std::to_string(kLargestPage) + "; boot a kernel with smaller pages");
}

namespace {

// Where a path leads, links followed.
std::string target_of(const std::string& path) {
  char target[PATH_MAX];
  return realpath(path.c_str(), target) ? target : path;
}

// The empty file at `path`, made if need be, with no other recorder. Whoever gave the name made it himself, and its folder may
// be a stranger's: what was put there since, as a link to another file, is not his.
std::unique_ptr<Descriptor> open_empty(const std::string& path) {
  for (;;) {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ELOOP) errno = EEXIST;
    if (fd < 0) fail("cannot create the trace");
    auto file = std::make_unique<Descriptor>(target_of(path), fd);
    if (!file->lock()) {
      errno = EWOULDBLOCK;
      fail("another recording is writing the trace");
    }
    if (!file->is_at(path)) continue;  // replaced in between
    struct stat status;
    if (fstat(file->get(), &status) == 0 && (status.st_size > 0 || status.st_nlink > 1 || !S_ISREG(status.st_mode))) {
      errno = EEXIST;
      fail("the trace already exists");
    }
    return file;
  }
}

// Writes the header into an empty file. nullptr: errno says why, and what was reserved is given back.
HeaderPage* begin_file(int fd, uint64_t session, uint32_t flags, Limit limit, uint32_t slots) {
  uint64_t reserved = Ring::end(slots);
  int error = reserve(fd, 0, reserved);
  HeaderPage* page = error ? nullptr : map_header(fd);
  if (!page) {
    error = error ? error : errno;
    if (ftruncate(fd, 0) != 0) {
      // What was reserved of it stays; the caller removes the file.
    }
    errno = error;
    return nullptr;
  }
  FileHeader& header = page->header;
  ClockPair now = read_clocks();
  header.version = kFormatVersion;
  header.header_bytes = uint32_t(Ring::header_bytes(slots));
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
  return page;
}

}  // namespace

TraceFile* TraceFile::create(const std::string& path, uint64_t session, uint32_t flags, Limit limit, bool replace) {
  check_page_size();
  std::unique_ptr<Descriptor> file, replaced;
  std::unique_ptr<UnnamedFile> unnamed;
  if (replace) {
    std::string target = target_of(path);
    replaced = std::make_unique<Descriptor>(target, ::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (replaced->get() >= 0 && !replaced->lock()) {
      errno = EWOULDBLOCK;
      fail("another recording is writing the trace");
    }
    unnamed = std::make_unique<UnnamedFile>(target, 0644);
    if (unnamed->fd() < 0) fail("cannot create the trace");
    struct stat before;
    if (fstat(replaced->get(), &before) == 0) take_access(unnamed->fd(), before);
    file = std::make_unique<Descriptor>(target, unnamed->fd());
    file->lock();
  } else {
    file = open_empty(path);
  }
  uint32_t slots = limit.ring ? Ring::slots_of(limit.bytes) : 0;
  HeaderPage* page = begin_file(file->get(), session, flags, limit, slots);
  if (!page) fail("cannot reserve space for the trace");
  forget_lost_mapping();
  auto* trace = new TraceFile(path, std::move(file), page, slots);
  trace->unnamed_ = std::move(unnamed);
  trace->replaced_ = std::move(replaced);
  trace->register_process();
  return trace;
}

void TraceFile::take_place() {
  if (!unnamed_) return;
  int fd = descriptor_->get();
  if (fd < 0 || !unnamed_->replace(fd)) fail("cannot replace the old file by the trace");
  unnamed_.reset();
  replaced_.reset();
}

TraceFile* TraceFile::join(const std::string& path, uint64_t session, bool closes) {
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return nullptr;
  auto file = std::make_unique<Descriptor>(target_of(path), fd);
  fd = file->get();
  FileHeader header;
  if (!file->reaches(kHeaderBytes) || !pread_all(fd, &header, sizeof header, 0)) return nullptr;
  if (memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.session != session || header.version != kFormatVersion ||
      header.state != kRecording || !file->reaches(Ring::end(header.ring_slots)))
    return nullptr;
  HeaderPage* page = map_header(fd);
  if (!page) return nullptr;
  forget_lost_mapping();
  if (closes) file->lock();
  auto* trace = new TraceFile(path, std::move(file), page, header.ring_slots);
  if (closes) trace->forget_earlier_programs();
  trace->register_process();
  trace->closing_process_ = closes ? trace->process_ : kNoProcess;
  return trace;
}

TraceFile::~TraceFile() {
  unguard(page_guard_);
  munmap(page_, kHeaderBytes);
}

bool TraceFile::is_damaged() const {
  return mapping_was_lost() || page_->header.session != session_ || memcmp(page_->header.magic, kMagic, sizeof kMagic) != 0;
}

void TraceFile::register_process() {
  process_ = shared(page_->header.next_process).fetch_add(1);
  if (process_ < kMaxProcesses) shared(page_->pids[process_]).store(uint32_t(getpid()));
  shared(page_->header.attached).fetch_add(1);
}

// Those that the recording process ran before exec: they are not there to leave, and do not live on. (In another container
// another process may have the same number, so this is not for every process that joins.)
void TraceFile::forget_earlier_programs() {
  uint32_t count = std::min<uint32_t>(shared(page_->header.next_process).load(), kMaxProcesses);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t own = uint32_t(getpid());
    if (shared(page_->pids[i]).compare_exchange_strong(own, 0)) shared(page_->header.attached).fetch_sub(1);
  }
}

// Nothing more is recorded, by any process.
void TraceFile::stop_for(int error) {
  out_of_space_.store(error);
  if (is_damaged()) return;  // the header is not ours any more
  uint32_t recording = kRecording;
  shared(page_->header.error_number).store(uint32_t(error));
  shared(page_->header.state).compare_exchange_strong(recording, kOutOfSpace);
}

Chunk TraceFile::claim(uint32_t capacity, Stream stream, bool first_of_thread) {
  if (is_damaged()) return {};
  if (stream == kDefinitions) {
    shared(page_->header.definition_bytes).fetch_add(capacity, std::memory_order_relaxed);
    own_definition_bytes_.fetch_add(capacity, std::memory_order_relaxed);
    return claim_at_end(capacity);
  }
  if (ring_) {
    if (out_of_space_.load(std::memory_order_relaxed) || !is_open()) return {};
    return {ring_->take(process_, first_of_thread), kHopChunkBytes};
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
  // Half of it is the root's, however many processes there are: each has definitions that are not left out.
  if (is_root() && own_definition_bytes_.load(std::memory_order_relaxed) < most / 2) return false;
  if (!is_root()) most /= 2;
  if (shared(header.definition_bytes).load(std::memory_order_relaxed) < most) return false;
  shared(header.other_definitions).fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Whether hops are written still, by any process.
bool TraceFile::is_open() const { return shared(page_->header.state).load() == kRecording; }

Chunk TraceFile::claim_at_end(uint32_t capacity) {
  if (out_of_space_.load(std::memory_order_relaxed)) return {};
  int fd = descriptor_->get();
  if (fd < 0) {
    stop_for(EBADF);
    return {};
  }
  auto next = shared(page_->header.next_chunk);
  uint64_t offset = next.load();
  do {
    if ((offset & kEndIsFinal) || !is_open()) return {};
  } while (!next.compare_exchange_weak(offset, offset + capacity));
  if (int error = reserve(fd, offset, capacity)) {
    stop_for(error);
    return {};
  }
  return {offset, capacity};
}

void* TraceFile::map(Chunk chunk, void* where) {
  int fd = descriptor_->reaches(chunk.offset + chunk.capacity) ? descriptor_->get() : -1;
  if (fd < 0) {
    stop_for(EBADF);
    return nullptr;
  }
  void* mapping = map_file(fd, chunk.offset, chunk.capacity, kReadWrite, MAP_SHARED | (where ? MAP_FIXED : 0), where);
  if (mapping) return mapping;
  stop_for(errno);
  return nullptr;
}

void TraceFile::fill(Chunk chunk) {
  static const void* zeros = map_memory(kHopChunkBytes, MAP_NORESERVE);
  int fd = descriptor_->get();
  bool may = zeros && fd >= 0 && may_reach(chunk.offset + chunk.capacity);
  if (!may || pwrite(fd, zeros, chunk.capacity, off_t(chunk.offset)) < 0) {
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
  uint64_t at = chunk.offset + offsetof(ChunkHeader, used);
  if (is_damaged() || !descriptor_->reaches(at + sizeof used)) return;
  if (!write_at(descriptor_->get(), &used, sizeof used, at)) {
    // The reader then reads up to the first zero word; nothing is lost.
  }
  if (ring_ && ring_->has(chunk.offset)) ring_->finish(chunk.offset, process_);
}

void TraceFile::release(Chunk chunk) {
  int fd = descriptor_->get();
  if (is_damaged() || fd < 0) return;
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(chunk.offset), chunk.capacity);
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
  if (is_damaged()) return;
  if (process_ < kMaxProcesses) shared(page_->pids[process_]).store(0);
  shared(page_->header.attached).fetch_sub(1);
  if (process_ != closing_process_) return;
  refresh_clock();
  uint32_t recording = kRecording;
  shared(page_->header.state).compare_exchange_strong(recording, kClosed);
  // From here on no process gets a chunk.
  shared(page_->header.next_chunk).fetch_or(kEndIsFinal);
  if (!others_alive()) compact();
  descriptor_->unlock();
}

// Cuts off what the chunks do not use. A kill at any moment leaves the file as it was or trimmed. One that another process has
// changed stays as it is: what is no chunk would be gone, and nothing would say so.
void TraceFile::compact() {
  int fd = descriptor_->get();
  if (unnamed_ || fd < 0) return;
  FileReader reader(fd);
  std::vector<FoundChunk> parts;
  uint64_t size = kHeaderBytes;
  FileHeader header = page_->header;
  ChunkFinder chunks(reader, header);
  for (FoundChunk chunk; chunks.next(chunk);) {
    if (!chunk.header.used) chunk.used = written_bytes(reader, chunk);  // its process died
    parts.push_back(chunk);
    size += round_up(chunk.used, 64);
  }
  if (chunks.damaged() || reader.has_failed() || is_damaged()) return;
  if (size <= kMostCopied && replace_with(reader, parts, size)) return;
  if (!reader.has_failed()) trim_in_place(fd, parts, chunks.first());
}

void TraceFile::trim_in_place(int fd, const std::vector<FoundChunk>& parts, uint64_t end) {
  for (const FoundChunk& part : parts) {
    uint64_t hole = round_up(part.offset + part.used, kLargestPage), stop = part.offset + part.header.capacity;
    bool last = &part == &parts.back();
    end = part.offset + round_up(part.used, 64);
    uint32_t sizes[] = {last ? uint32_t(end - part.offset) : part.header.capacity, part.used};
    write_at(fd, sizes, sizeof sizes, part.offset + offsetof(ChunkHeader, capacity));
    if (!last && hole < stop) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(hole), off_t(stop - hole));
  }
  shared(page_->header.next_chunk).store(end | kEndIsFinal);
  if (ftruncate(fd, off_t(end)) != 0) {
    // The file keeps zeros at its end; the reader skips them.
  }
}

// Writes the used parts one behind the other into a new file, which takes the place of this one.
bool TraceFile::replace_with(FileReader& reader, std::vector<FoundChunk> parts, uint64_t size) {
  struct stat here;
  std::string target = target_of(path_);  // a link stays a link
  int ours = descriptor_->get();
  if (ours < 0 || fstat(ours, &here) != 0 || !descriptor_->is_at(target)) return false;  // moved away meanwhile
  UnnamedFile fresh(target, here.st_mode & 0777);
  Descriptor made(target, fresh.fd());
  int fd = made.get();
  if (fd < 0 || !take_access(fd, here) || reserve(fd, 0, size) != 0) return false;
  HeaderPage page;
  memcpy(&page, page_, sizeof page);
  page.header.next_chunk = size | kEndIsFinal;
  page.header.header_bytes = kHeaderBytes;  // without the owners of a ring's slots
  if (!pwrite_all(fd, &page, sizeof page, 0)) return false;
  // Definitions first: a file that is cut short later keeps the names of the hops that it keeps.
  std::stable_partition(parts.begin(), parts.end(), [](const FoundChunk& part) { return part.header.stream == kDefinitions; });
  uint64_t at = kHeaderBytes;
  for (const FoundChunk& part : parts) {
    if (!copy_part(reader, part, fd, at)) return false;
    at += round_up(part.used, 64);
  }
  return !is_damaged() && fresh.replace(made.get());
}

}  // namespace tracer::trace
