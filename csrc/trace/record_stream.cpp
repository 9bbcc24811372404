#include "record_stream.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "../mapping.h"
#include "clock.h"

namespace tracer::trace {
namespace {

// The n-th chunk of a stream, with room for a record of this many bytes.
uint32_t chunk_bytes(Stream stream, uint32_t record, uint32_t n, bool ring) {
  uint32_t need = (uint32_t(sizeof(ChunkHeader)) + record + kLargestPage - 1) / kLargestPage * kLargestPage;
  if (stream != kDefinitions) return std::max(need, kActivityChunkBytes);
  return std::max(need, ring ? std::min(kDefinitionChunkBytes, kFirstDefinitionBytes << std::min(n, 8u)) : kDefinitionChunkBytes);
}

}  // namespace

char* RecordStream::room(TraceFile& file, Stream stream, uint32_t lane, uint32_t epoch, uint32_t bytes) {
  if (mapping_ && used_ + bytes <= chunk_.capacity) return mapping_ + used_;
  finish(file);
  Chunk chunk = file.claim(chunk_bytes(stream, bytes, sequence_, file.is_ring()), stream);
  if (chunk.offset && stream == kActivities && file.is_ring()) file.fill(chunk);
  void* mapping = chunk.offset ? file.map(chunk, nullptr) : nullptr;
  if (!mapping) return nullptr;
  mapping_ = static_cast<char*>(mapping);
  range_ = guard(mapping, chunk.capacity);
  chunk_ = chunk;
  file.begin(mapping_, chunk, stream, lane, sequence_++, epoch, 0);
  used_ = sizeof(ChunkHeader);
  return mapping_ + used_;
}

void RecordStream::publish(uint64_t first_word, uint32_t bytes) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(mapping_ + used_)).store(first_word, std::memory_order_release);
  used_ += bytes;
}

void RecordStream::finish(TraceFile& file) {
  if (!mapping_) return;
  unguard(range_);
  munmap(mapping_, chunk_.capacity);
  file.finish(chunk_, used_);
  mapping_ = nullptr;
  range_ = nullptr;
  chunk_ = {};
}

void RecordStream::abandon() {
  mapping_ = nullptr;
  range_ = nullptr;
  chunk_ = {};
  sequence_ = 0;
}

bool DefinitionStream::write(TraceFile& file, uint32_t lane, uint32_t epoch, const DefinitionBuilder& definition) {
  uint32_t bytes = definition.bytes();
  char* at = room(file, kDefinitions, lane, epoch, bytes);
  if (!at) return false;
  DefinitionHead head{bytes, uint16_t(definition.kind()), kDefinitionMagic, ticks() - file.start_ticks()};
  memcpy(at + offsetof(DefinitionHead, ticks), &head.ticks, sizeof head.ticks);
  memcpy(at + sizeof head, definition.payload().data(), definition.payload().size());
  uint64_t first_word;
  memcpy(&first_word, &head, sizeof first_word);
  publish(first_word, bytes);
  return true;
}

bool ActivityStream::write(TraceFile& file, uint32_t epoch, const uint64_t* record) {
  constexpr uint32_t kBytes = kActivityWords * sizeof(uint64_t);
  char* at = room(file, kActivities, kProcessLane, epoch, kBytes);
  if (!at) return false;
  memcpy(at + sizeof(uint64_t), record + 1, kBytes - sizeof(uint64_t));
  publish(record[0] | kEventBit, kBytes);
  return true;
}

}  // namespace tracer::trace
