// The streams of definitions and activities: records that are written one after the other into chunks, away from the hot path
// and by one thread at a time.
#pragma once

#include "definition.h"
#include "trace_file.h"

namespace tracer::trace {

class RecordStream {
 public:
  // Closes the chunk. The next record opens another one.
  void finish(TraceFile& file);
  // Forgets the chunk, which is another process's or in a file that is closed.
  void abandon();

 protected:
  // Room for a record, in a new chunk if need be; nullptr: there is none.
  char* room(TraceFile& file, Stream stream, uint32_t lane, uint32_t epoch, uint32_t bytes);
  // The record in the room is written, but for its first word, which is stored last.
  void publish(uint64_t first_word, uint32_t bytes);

 private:
  char* mapping_ = nullptr;
  GuardedRange* range_ = nullptr;
  Chunk chunk_;
  uint32_t used_ = 0;
  uint32_t sequence_ = 0;
};

// Of a lane, or of a process.
class DefinitionStream : public RecordStream {
 public:
  bool write(TraceFile& file, uint32_t lane, uint32_t epoch, const DefinitionBuilder& definition);
};

// Of a process.
class ActivityStream : public RecordStream {
 public:
  bool write(TraceFile& file, uint32_t epoch, const uint64_t* record);
};

}  // namespace tracer::trace
