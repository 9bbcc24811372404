// One trace file as a process sees it: the mapped header page, and chunks claimed from it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bus_error.h"
#include "chunk_reader.h"
#include "descriptor.h"
#include "records.h"
#include "ring.h"
#include "unnamed_file.h"

namespace tracer::trace {

// The header page: FileHeader, then the process ids of the recording (a slot is 0 once its process has closed).
constexpr size_t kMaxProcesses = (kHeaderBytes - sizeof(FileHeader)) / sizeof(uint32_t);
struct HeaderPage {
  FileHeader header;
  uint32_t pids[kMaxProcesses];
};
static_assert(sizeof(HeaderPage) == kHeaderBytes);

struct Chunk {
  uint64_t offset = 0;  // in the file; 0: none
  uint32_t capacity = 0;
};

// How large the file may become, and what then.
struct Limit {
  uint64_t bytes = 0;  // 0: as large as it gets
  bool ring = false;   // the newest hops take the place of the oldest; else the recording stops
};

class TraceFile {
 public:
  // Begins the file at `path`, which is empty or not there; with `replace` the file that is there stays as it is until
  // take_place(). Throws std::system_error: EWOULDBLOCK where another recorder has the file, EEXIST where it is not empty.
  static TraceFile* create(const std::string& path, uint64_t session, uint32_t flags, Limit limit, bool replace);
  // Opens the file of a running recording; nullptr when it has ended or is another session's. `closes`: this program came by
  // exec after the one that began the recording, and ends it in that one's place.
  static TraceFile* join(const std::string& path, uint64_t session, bool closes);
  ~TraceFile();

  // The recording has begun: from now on its file is at `path`. Throws std::system_error.
  void take_place();
  const std::string& path() const { return path_; }
  FileHeader& header() { return page_->header; }
  uint32_t process() const { return process_; }
  uint32_t flags() const { return page_->header.flags; }
  uint64_t start_ticks() const { return page_->header.start_ticks; }

  // A process number of its own for this process: the first time, and again after a fork.
  void register_process();
  // Reserves a chunk on the disk. An empty Chunk: the recording is over, or there is no space
  // (then the header says so and `out_of_space` holds the errno), or the largest size is reached (`is_full`), or
  // every slot of a ring is in use.
  Chunk claim(uint32_t capacity, Stream stream, bool first_of_thread = false);
  // The chunk that the first hops of a thread are written to, where all slots of a ring are in use.
  Chunk claim_beyond_ring(uint32_t capacity) { return claim_at_end(capacity); }
  // Whether definitions that kOther can replace have to be left out; counts one that is.
  bool leave_out_definition();
  // A chunk of hops that is written again from its begin: what is in it is counted as overwritten.
  void count_overwritten(Chunk chunk) { ring_->count_overwritten(chunk.offset); }
  // Maps a chunk for writing, at `where` if given. nullptr when the kernel refuses: then the recording is over, and
  // `out_of_space` says why.
  void* map(Chunk chunk, void* where);
  // Fills a fresh chunk with zeros: its pages are then in memory, and writable at a third of the cost.
  void fill(Chunk chunk);
  // Writes the header of a chunk as the first bytes of its mapping.
  void begin(void* mapping, Chunk chunk, Stream stream, uint32_t lane, uint32_t sequence, uint32_t epoch, uint32_t depth);
  // Says how many bytes of a chunk were written (it may be unmapped already).
  void finish(Chunk chunk, uint32_t used);
  // Gives a chunk that was never begun back.
  void release(Chunk chunk);
  void refresh_clock();

  // The orderly end: this process leaves; the root, or the program that it became, closes the file and trims it when no
  // other process of the recording lives.
  void close();
  int out_of_space() const { return out_of_space_.load(); }
  // Whether another process has cut the file, or written another one over it.
  bool is_damaged() const;
  bool is_full() const { return page_->header.flags & kFull; }
  bool is_ring() const { return ring_ != nullptr; }
  bool is_open() const;
  bool is_root() const { return process_ == 0; }

 private:
  TraceFile(std::string path, std::unique_ptr<Descriptor> descriptor, HeaderPage* page, uint32_t slots);
  bool others_alive() const;
  Chunk claim_at_end(uint32_t capacity);
  void stop_for(int error);
  void compact();
  bool replace_with(FileReader& reader, std::vector<FoundChunk> parts, uint64_t size);
  void trim_in_place(int fd, const std::vector<FoundChunk>& parts, uint64_t end);
  void forget_earlier_programs();

  std::string path_;
  std::unique_ptr<Descriptor> descriptor_;
  std::unique_ptr<UnnamedFile> unnamed_;    // until take_place(), with `replace`
  std::unique_ptr<Descriptor> replaced_;    // the file that is there until then, locked
  HeaderPage* page_;
  GuardedRange* page_guard_;
  uint64_t session_;
  std::unique_ptr<Ring> ring_;
  uint32_t process_ = 0;
  uint32_t closing_process_ = 0;  // the one that ends the recording for all, if it is this process
  std::atomic<uint64_t> own_definition_bytes_{0};
  std::atomic<int> out_of_space_{0};
};

// Faults the pages of a fresh mapping in, writable, so that the hot path does not.
void populate(void* mapping, size_t bytes);

}  // namespace tracer::trace
