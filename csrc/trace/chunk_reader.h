// Reads the chunks of a trace file that other processes may change or cut at any moment. Bytes are copied, by pread(): a
// mapping would raise SIGBUS where the file was cut. What is checked in the copy is what is used; no length leads out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "event_words.h"
#include "records.h"

namespace tracer::trace {

class FileReader {
 public:
  static constexpr size_t kMostBytes = 1 << 18;  // of one read

  // Of a file that stays open meanwhile. Throws std::bad_alloc.
  explicit FileReader(int fd);

  uint64_t size() const { return size_; }  // of the file, when the reader was made
  bool has_failed() const { return failed_; }  // it is shorter now, or cannot be read
  // At least `least` bytes from `offset` on, and what follows them as far as it is at hand; where none are, up to `most` are
  // read. Empty: the file does not have them. Valid until the next call; at a multiple of 8 there are words.
  std::string_view read(uint64_t offset, size_t least, size_t most);
  // Behind the hole at `offset`, if there is one.
  uint64_t behind_hole(uint64_t offset) const;

 private:
  int fd_;
  uint64_t size_ = 0;
  bool failed_ = false;
  std::unique_ptr<uint64_t[]> words_;
  uint64_t begin_ = 0;
  size_t held_ = 0;
};

// A chunk as it was when it was found: its header is not read again.
struct FoundChunk {
  ChunkHeader header;
  uint64_t offset;
  uint32_t used;  // bytes that were written, the header included, as far as the header says; else the capacity
};

// Finds the chunks of a file in turn, in time proportional to its size.
class ChunkFinder {
 public:
  ChunkFinder(FileReader& reader, const FileHeader& header);

  bool next(FoundChunk& chunk);
  uint64_t first() const { return first_; }  // where the first one may be
  // Places that hold something and are no chunk, and chunks that cannot have written as much as they say.
  uint64_t damaged() const { return damaged_; }

 private:
  bool skip();
  bool is_being_taken();

  FileReader& reader_;
  uint64_t slots_, first_, at_;
  uint64_t damaged_ = 0;
};

// The chunk at this offset, a multiple of 64. False: there is no whole one.
bool chunk_at(FileReader& reader, uint64_t offset, FoundChunk& chunk);
// FoundChunk::used of one that its process did not close: up to the last word that is not zero.
uint32_t written_bytes(FileReader& reader, const FoundChunk& chunk);

// The events of a chunk of hops. Nothing else is read with the reader meanwhile.
class Events {
 public:
  Events(FileReader& reader, const FoundChunk& chunk);

  // All words of the next event; nullptr: that was the last one.
  const uint64_t* next() {
    if (at_ >= end_ && !refill()) return nullptr;
    size_t count = words_of_event(at_, kMostEventWords);
    const uint64_t* event = at_;
    at_ += count;
    return count ? event : nullptr;
  }
  // Whether it was the last one because no event is what follows. (A zero: its process died there, or runs on.)
  bool is_damaged() const { return at_ < end_ && *at_; }

 private:
  bool refill();

  FileReader& reader_;
  uint64_t offset_;                  // in the file, of the word at begin_
  size_t left_;                      // words from there to the end of the chunk
  const uint64_t* begin_ = nullptr;
  const uint64_t* at_ = nullptr;
  const uint64_t* end_ = nullptr;    // an event that begins before it is read to its end
  // The last words and zeros behind them: a chunk that was trimmed lacks the zeros that its last event ended with.
  uint64_t tail_[2 * kMostEventWords] = {};
};

struct DefinitionRecord {
  uint16_t kind;
  std::string_view payload;  // of a very long one, the begin
};

// A number at this place of a payload, and a string. False: it does not fit in there.
bool number_at(const DefinitionRecord& record, size_t at, uint32_t& number);
bool string_at(const DefinitionRecord& record, size_t at, std::string_view& text);

// The records of a chunk of definitions; as Events.
class Definitions {
 public:
  Definitions(FileReader& reader, const FoundChunk& chunk);

  bool next(DefinitionRecord& record);
  bool is_damaged() const { return damaged_; }

 private:
  FileReader& reader_;
  uint64_t at_, end_;
  bool damaged_ = false;
};

// How many records a chunk of activities has; as Events.
uint64_t count_activities(FileReader& reader, const FoundChunk& chunk);

}  // namespace tracer::trace
