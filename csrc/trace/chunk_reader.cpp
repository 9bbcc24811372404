#include "chunk_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "crc32.h"
#include "ring.h"
#include "whole_io.h"

namespace tracer::trace {
namespace {

constexpr uint64_t kUnit = 64;             // chunks begin at multiples of it
constexpr size_t kHeaderRead = 4096;       // of small chunks the next ones come with it
constexpr uint64_t kMostTrimmed = 2048;    // zeros that the last record of a chunk may lack, as in tracer/trace/bytes/reader.py

bool is_zero(std::string_view bytes) { return bytes.find_first_not_of('\0') == std::string_view::npos; }

bool is_whole(const ChunkHeader& header, uint64_t space) {
  if (header.magic != kChunkMagic || header.capacity < sizeof header || header.capacity % kUnit || header.capacity > space) return false;
  if (header.stream < kHops || header.stream > kActivities || (header.stream == kHops && header.capacity > kHopChunkBytes)) return false;
  ChunkHeader checked = header;
  checked.used = checked.capacity = 0;
  return header.check == crc32(&checked, offsetof(ChunkHeader, check));
}

}  // namespace

FileReader::FileReader(int fd) : fd_(fd), words_(new uint64_t[(kMostBytes + kUnit) / 8]) {
  struct stat status;
  if (fstat(fd, &status) == 0) size_ = uint64_t(status.st_size);
}

std::string_view FileReader::read(uint64_t offset, size_t least, size_t most) {
  if (least > kMostBytes || offset > size_ || least > size_ - offset) return {};
  auto* bytes = reinterpret_cast<char*>(words_.get());
  if (offset < begin_ || offset + least > begin_ + held_) {
    begin_ = offset / kUnit * kUnit;
    held_ = 0;
    size_t wanted = size_t(std::min<uint64_t>(offset - begin_ + std::min(std::max(least, most), kMostBytes), size_ - begin_));
    if (!pread_all(fd_, bytes, wanted, begin_)) {
      failed_ = true;
      return {};
    }
    held_ = wanted;
  }
  return std::string_view(bytes, held_).substr(size_t(offset - begin_));
}

uint64_t FileReader::behind_hole(uint64_t offset) const {
  off_t data = lseek(fd_, off_t(offset), SEEK_DATA);
  if (data < 0) return errno == ENXIO ? size_ : offset;
  return std::max(offset, uint64_t(data) / kUnit * kUnit);
}

bool chunk_at(FileReader& reader, uint64_t offset, FoundChunk& chunk) {
  std::string_view bytes = reader.read(offset, sizeof chunk.header, kHeaderRead);
  if (bytes.empty()) return false;
  memcpy(&chunk.header, bytes.data(), sizeof chunk.header);
  if (!is_whole(chunk.header, reader.size() - offset)) return false;
  uint32_t used = chunk.header.used;
  bool fits = used >= sizeof chunk.header && used <= chunk.header.capacity && used % 8 == 0;
  chunk.offset = offset;
  chunk.used = fits ? used : chunk.header.capacity;
  return true;
}

ChunkFinder::ChunkFinder(FileReader& reader, const FileHeader& header)
    : reader_(reader),
      slots_(header.header_bytes == Ring::header_bytes(header.ring_slots) ? header.ring_slots : 0),  // trimmed: it is a ring no more
      first_(header.header_bytes == Ring::header_bytes(slots_) ? header.header_bytes : kHeaderBytes),
      at_(first_) {}

bool ChunkFinder::next(FoundChunk& chunk) {
  bool damaged = false, found = false;
  while (!found && at_ + sizeof chunk.header <= reader_.size()) {
    found = chunk_at(reader_, at_, chunk);
    if (found)
      at_ += chunk.header.capacity;
    else
      damaged |= skip();
  }
  damaged_ += damaged || (found && chunk.header.used && chunk.header.used != chunk.used);
  return found;
}

// Goes on to where a chunk may be: there is none at at_. Whether something else is there.
bool ChunkFinder::skip() {
  if (is_being_taken()) {
    at_ += kHopChunkBytes;
    return false;
  }
  bool something = false;
  for (uint64_t begin = at_; at_ + kUnit <= reader_.size();) {
    if (uint64_t data = reader_.behind_hole(at_); data != at_) {  // claimed, and never begun
      at_ = data;
      return something;
    }
    std::string_view bytes = reader_.read(at_, kUnit, FileReader::kMostBytes);
    if (bytes.empty()) {
      at_ = reader_.size();
      return something;
    }
    for (; bytes.size() >= kUnit; bytes.remove_prefix(kUnit), at_ += kUnit) {
      if (at_ != begin && memcmp(bytes.data(), &kChunkMagic, sizeof kChunkMagic) == 0) return something;
      something |= !is_zero(bytes.substr(0, kUnit));
    }
  }
  return something;
}

// A slot of a ring whose process died while it emptied it: what is left in there counts as overwritten already.
bool ChunkFinder::is_being_taken() {
  uint64_t slot = (at_ - first_) / kHopChunkBytes;
  if (slot >= slots_ || (at_ - first_) % kHopChunkBytes || !is_zero(reader_.read(at_, kUnit, kUnit).substr(0, kUnit))) return false;
  std::string_view bytes = reader_.read(kHeaderBytes + slot * sizeof(uint32_t), sizeof(uint32_t), kHeaderRead);
  uint32_t owner = 0;
  if (!bytes.empty()) memcpy(&owner, bytes.data(), sizeof owner);
  return owner & kSlotInUse;
}

uint32_t written_bytes(FileReader& reader, const FoundChunk& chunk) {
  for (uint32_t end = chunk.used; end > sizeof(ChunkHeader);) {
    uint32_t begin = std::max<uint32_t>(sizeof(ChunkHeader), end - std::min<uint32_t>(end, FileReader::kMostBytes));
    if (reader.behind_hole(chunk.offset + begin) < chunk.offset + end) {
      std::string_view bytes = reader.read(chunk.offset + begin, end - begin, end - begin).substr(0, end - begin);
      size_t last = bytes.find_last_not_of('\0');
      if (last != std::string_view::npos) return begin + uint32_t(last / 8 + 1) * 8;
      if (bytes.empty()) return chunk.used;
    }
    end = begin;
  }
  return sizeof(ChunkHeader);
}

Events::Events(FileReader& reader, const FoundChunk& chunk)
    : reader_(reader), offset_(chunk.offset + sizeof(ChunkHeader)), left_((chunk.used - sizeof(ChunkHeader)) / 8) {}

bool Events::refill() {
  size_t done = size_t(at_ - begin_);
  offset_ += done * 8;
  left_ -= std::min(left_, done);
  std::string_view bytes = reader_.read(offset_, std::min(left_, kMostEventWords) * 8, left_ * 8);
  size_t words = std::min(left_, bytes.size() / 8);
  begin_ = reinterpret_cast<const uint64_t*>(bytes.data());
  end_ = begin_ + words;
  if (words >= kMostEventWords) {
    end_ -= kMostEventWords - 1;
  } else if (words) {
    memcpy(tail_, begin_, words * 8);
    begin_ = tail_;
    end_ = tail_ + words;
  }
  at_ = begin_;
  return words;
}

Definitions::Definitions(FileReader& reader, const FoundChunk& chunk)
    : reader_(reader), at_(chunk.offset + sizeof(ChunkHeader)), end_(chunk.offset + chunk.used) {}

bool Definitions::next(DefinitionRecord& record) {
  DefinitionHead head;
  uint64_t left = end_ - at_;
  std::string_view bytes = left < sizeof head ? std::string_view() : reader_.read(at_, sizeof head, size_t(left));
  if (bytes.empty()) return false;
  memcpy(&head, bytes.data(), sizeof head);
  bool begins = head.magic == kDefinitionMagic && head.bytes >= sizeof head && head.bytes % 8 == 0;
  if (!begins || head.bytes > left + kMostTrimmed) {
    damaged_ = !is_zero(bytes.substr(0, 8));  // else its process died there, or runs on
    return false;
  }
  size_t there = size_t(std::min<uint64_t>({head.bytes, left, FileReader::kMostBytes}));
  record.kind = head.kind;
  record.payload = reader_.read(at_, there, size_t(left)).substr(0, there);
  if (record.payload.empty()) return false;
  record.payload.remove_prefix(sizeof head);
  at_ = std::min(at_ + head.bytes, end_);
  return true;
}

bool number_at(const DefinitionRecord& record, size_t at, uint32_t& number) {
  if (at > record.payload.size() || record.payload.size() - at < sizeof number) return false;
  memcpy(&number, record.payload.data() + at, sizeof number);
  return true;
}

bool string_at(const DefinitionRecord& record, size_t at, std::string_view& text) {
  uint32_t length;
  if (!number_at(record, at, length) || length > record.payload.size() - at - sizeof length) return false;
  text = record.payload.substr(at + sizeof length, length);
  return true;
}

uint64_t count_activities(FileReader& reader, const FoundChunk& chunk) {
  uint64_t count = 0, end = chunk.offset + chunk.used, first;
  for (uint64_t at = chunk.offset + sizeof(ChunkHeader); at + sizeof first <= end; at += kActivityWords * sizeof first) {
    std::string_view bytes = reader.read(at, sizeof first, size_t(end - at));
    if (bytes.empty()) break;
    memcpy(&first, bytes.data(), sizeof first);
    if (!first) break;
    ++count;
  }
  return count;
}

}  // namespace tracer::trace
