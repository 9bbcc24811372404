// Walks the events of a chunk of hops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "records.h"

namespace tracer::trace {

// Of a call with all the arguments that its word can announce.
constexpr size_t kMostEventWords = 4 + kCallWordsMask;

inline HopEvent kind_of_event(uint64_t first_word) {
  uint64_t kind = first_word >> kEventKindShift & kEventKindMask;
  bool of_call = (kind >= kApiEnter && kind <= kLibraryExit) || kind == kApiQuery;
  return HopEvent(first_word & kBriefBit && !of_call ? kind | kBriefKind : kind);
}

// Words of the event that begins at `words`, with `size` words left; 0: no whole event is there.
inline size_t words_of_event(const uint64_t* words, size_t size) {
  if (!size || !(words[0] & kEventBit)) return 0;
  size_t count = 0, brief = words[0] & kBriefBit ? 1 : 0;
  switch (kind_of_event(words[0])) {
    case kEnter:
      count = 5;
      break;
    case kNode:
    case kMemory:
    case kContext:
    case kRangeBegin:
    case kThreadTime:
    case kValue:
      count = 3;
      break;
    case kRangeExit:
      count = 1;
      break;
    case kExit:
    case kRangeEnter:
    case kRangeEnd:
    case kThread:
    case kStep:
    case kModule:
    case kMemoryLine:
    case kTensor:
    case kResults:
    case kThreadKeys:
      count = 2;
      break;
    case kApiEnter:
    case kApiQuery:
    case kLibraryEnter:
      count = size < 2 ? 0 : 4 - brief + (words[1] >> kCallWordsShift & kCallWordsMask);
      break;
    case kApiExit:
    case kLibraryExit:
      count = size < 2 ? 0 : 3 - brief + (words[1] >> kCallWordsShift & kCallWordsMask);
      break;
  }
  return count <= size ? count : 0;
}

}  // namespace tracer::trace
