#include "totals.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "event_words.h"
#include "interner.h"
#include "records.h"

namespace tracer::trace {
namespace {

struct View {
  const ChunkHeader* header;
  const uint64_t* words;
  size_t size;  // words in use
};

// Of each process: which op a hop id is of (as a hash of its name).
using OpOfHop = std::unordered_map<uint64_t, uint64_t>;

std::vector<View> chunks_of(const uint8_t* file, uint64_t end) {
  std::vector<View> chunks;
  for (uint64_t at = reinterpret_cast<const FileHeader*>(file)->header_bytes; at + sizeof(ChunkHeader) <= end;) {
    auto* header = reinterpret_cast<const ChunkHeader*>(file + at);
    if (header->magic != kChunkMagic || header->capacity < sizeof(ChunkHeader) || at + header->capacity > end) {
      at += 64;
      continue;
    }
    chunks.push_back({header, reinterpret_cast<const uint64_t*>(header + 1), words_in(*header)});
    at += header->capacity;
  }
  return chunks;
}

void read_definitions(const View& chunk, OpOfHop& ops) {
  for (size_t at = 0; at + 2 <= chunk.size;) {
    DefinitionHead head;
    memcpy(&head, chunk.words + at, sizeof head);
    if (head.magic != kDefinitionMagic || head.bytes < sizeof head || at + head.bytes / 8 > chunk.size) return;
    if (head.kind == kHop) {
      const char* payload = reinterpret_cast<const char*>(chunk.words + at) + sizeof head;
      uint32_t id, length;
      memcpy(&id, payload, 4);
      memcpy(&length, payload + 28, 4);  // id, flags, index, two addresses, then the op's name
      ops[uint64_t(chunk.header->process) << 32 | id] = hash_bytes(payload + 32, length);
    }
    at += head.bytes / 8;
  }
}

}  // namespace

Totals count_totals(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status;
  void* mapping = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0)
    mapping = mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  int error = errno;
  if (fd >= 0) close(fd);
  if (mapping == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);

  Totals totals;
  totals.bytes = uint64_t(status.st_size);
  auto chunks = chunks_of(static_cast<const uint8_t*>(mapping), totals.bytes);
  OpOfHop ops;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<View>> lanes;  // process, epoch, lane
  std::set<std::pair<uint32_t, uint64_t>> threads;
  std::set<uint32_t> processes;
  for (auto& chunk : chunks) {
    processes.insert(chunk.header->process);
    if (chunk.header->stream == kDefinitions) read_definitions(chunk, ops);
    if (chunk.header->stream == kActivities) totals.activities += chunk.size / kActivityWords;
    if (chunk.header->stream == kHops) lanes[{chunk.header->process, chunk.header->epoch, chunk.header->lane}].push_back(chunk);
  }
  for (auto& [lane, parts] : lanes) {
    uint32_t process = std::get<0>(lane);
    std::sort(parts.begin(), parts.end(), [](const View& a, const View& b) { return a.header->sequence < b.header->sequence; });
    std::vector<uint64_t> open;  // op of each open hop
    uint64_t of_thread = 0;
    uint32_t next = 0;
    for (auto& part : parts) {
      // Chunks before it are missing, or a ring has overwritten them.
      if (part.header->sequence != next) open.resize(std::min<size_t>(open.size(), part.header->depth));
      next = part.header->sequence + 1;
      for (size_t at = 0, count; (count = words_of_event(part.words + at, part.size - at)); at += count) {
        const uint64_t* event = part.words + at;
        switch (kind_of_event(event[0])) {
          case kEnter: {
            auto found = ops.find(uint64_t(process) << 32 | uint32_t(event[2]));
            uint64_t op = found == ops.end() ? 0 : found->second;
            uint64_t site = event[4] >> 13 & 3;
            ++totals.hops;
            totals.op_calls += site == kCall || (site == kByParent && (open.empty() || open.back() != op));
            open.push_back(op);
            break;
          }
          case kExit:
            if (!open.empty()) open.pop_back();
            break;
          case kThread: {
            uint64_t thread = event[1] & 0xffffffff;
            threads.insert({process, thread});
            if (thread == of_thread) break;
            of_thread = thread;
            totals.open_hops += open.size();
            open.clear();
            break;
          }
          case kApiEnter:
          case kApiQuery:
            ++totals.api_calls;
            break;
          default:
            break;
        }
      }
    }
    totals.open_hops += open.size();
  }
  totals.threads = uint32_t(threads.size());
  totals.processes = uint32_t(processes.size());
  munmap(mapping, totals.bytes);
  return totals;
}

}  // namespace tracer::trace
