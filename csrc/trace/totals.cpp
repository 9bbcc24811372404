#include "totals.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "event_words.h"
#include "interner.h"
#include "records.h"
#include "trace_file.h"

namespace tracer::trace {
namespace {

struct View {
  const ChunkHeader* header;
  const uint64_t* words;
  size_t size;  // words in use
};

// Of each process: which op a hop id is of (as a hash of its name).
using OpOfHop = std::unordered_map<uint64_t, uint64_t>;

struct OpenHop {
  uint64_t op;
  int priority;  // of its key
};

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

// What the definition of a process begins with; then its command.
struct Process {
  uint32_t number, pid, parent, how;
};
constexpr uint32_t kJoined = 2;  // Process::how: records.h

bool has_command_of_fork_server(const char* process, size_t bytes) {
  return std::string_view(process, bytes).find("multiprocessing.forkserver") != std::string_view::npos;
}

// Whether a document has this name.
bool is_called(std::string_view name, const char* document, size_t bytes) {
  uint32_t length;
  if (bytes < sizeof length) return false;
  memcpy(&length, document, sizeof length);
  return length == name.size() && std::string_view(document, bytes).substr(sizeof length).starts_with(name);
}

struct FromDefinitions {
  OpOfHop ops;
  std::vector<Process> like_fork_servers;
  std::vector<Process> processes;
  std::set<uint32_t> other_pids;
  bool compiled_code = false, not_joined = false;
};

void read_definitions(const View& chunk, FromDefinitions& known) {
  for (size_t at = 0; at + 2 <= chunk.size;) {
    DefinitionHead head;
    memcpy(&head, chunk.words + at, sizeof head);
    if (head.magic != kDefinitionMagic || head.bytes < sizeof head || at + head.bytes / 8 > chunk.size) return;
    const char* payload = reinterpret_cast<const char*>(chunk.words + at) + sizeof head;
    size_t bytes = head.bytes - sizeof head;
    if (head.kind == kProcess && bytes >= sizeof(Process)) {
      Process process;
      memcpy(&process, payload, sizeof process);
      known.processes.push_back(process);
      if (has_command_of_fork_server(payload, bytes))
        known.like_fork_servers.push_back(process);
      else
        known.other_pids.insert(process.pid);
    }
    if (head.kind == kJson && is_called("compiled_hidden", payload, bytes)) known.compiled_code = true;
    if (head.kind == kJson && is_called("not_joined", payload, bytes)) known.not_joined = true;
    if (head.kind == kHop) {
      uint32_t id, length;
      memcpy(&id, payload, 4);
      memcpy(&length, payload + 28, 4);  // id, flags, index, two addresses, then the op's name
      known.ops[two_numbers(id, chunk.header->process)] = hash_bytes(payload + 32, length);
    }
    at += head.bytes / 8;
  }
}

// multiprocessing's: they have no work of their own, and end later than the processes that they serve. What they fork has
// their command.
std::set<uint32_t> fork_servers(const FromDefinitions& known) {
  std::set<uint32_t> numbers;
  for (const Process& process : known.like_fork_servers)
    if (process.how == kJoined && known.other_pids.count(process.parent)) numbers.insert(process.number);
  return numbers;
}

// Programs whose process joined once more, as another one.
std::set<uint32_t> replaced_programs(const std::vector<Process>& processes) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> last;  // by the ids of the process and of its parent
  for (const Process& one : processes)
    if (uint32_t& number = last[{one.pid, one.parent}]; one.how == kJoined) number = std::max(number, one.number);
  std::set<uint32_t> numbers;
  for (const Process& one : processes)
    if (one.number < last[{one.pid, one.parent}]) numbers.insert(one.number);
  return numbers;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_alive(uint32_t pid) {
  std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
  size_t name = stat.rfind(") ");
  if (name == std::string::npos) return kill(pid_t(pid), 0) == 0 || errno == EPERM;
  return stat[name + 2] != 'Z' && stat[name + 2] != 'X';
}

void count_processes(const HeaderPage& page, const std::set<uint32_t>& fork_servers, const std::set<uint32_t>& replaced,
                     Totals& totals) {
  uint32_t open = page.header.attached;
  for (uint32_t i = 0; i < std::min<uint32_t>(page.header.next_process, kMaxProcesses); ++i) {
    if (!page.pids[i] || (!replaced.count(i) && !is_alive(page.pids[i]))) continue;
    totals.still_running += !fork_servers.count(i) && !replaced.count(i);
    if (open) --open;
  }
  totals.not_stopped = open;
  totals.replaced = uint32_t(replaced.size());
}

void copy_counts(const FileHeader& header, Totals& totals) {
  totals.max_bytes = header.max_bytes;
  totals.lost_hops = header.lost_hops;
  totals.overwritten_hops = header.overwritten_hops;
  totals.overwritten_calls = header.overwritten_calls;
  totals.overwritten_activities = header.overwritten_activities;
  totals.other_definitions = header.other_definitions;
}

}  // namespace

Totals count_totals(const std::string& path, uint64_t session) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  struct stat status;
  void* mapping = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size >= off_t(sizeof(HeaderPage)))
    mapping = mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  if (fd >= 0) close(fd);
  Totals totals;
  if (mapping == MAP_FAILED) {
    bool unread = error && error != ENOENT && error != ENOTDIR;
    totals.gone = unread ? "cannot be read at its end: " + std::string(strerror(error)) : "was moved or removed while it was recorded";
    return totals;
  }
  totals.bytes = uint64_t(status.st_size);
  auto& page = *static_cast<const HeaderPage*>(mapping);
  if (page.header.session != session) {
    bool other = memcmp(page.header.magic, kMagic, sizeof kMagic) != 0;
    totals.gone = other ? "was overwritten while it was recorded" : "was replaced by another recording while it was recorded";
    munmap(mapping, totals.bytes);
    return totals;
  }
  copy_counts(page.header, totals);
  auto chunks = chunks_of(static_cast<const uint8_t*>(mapping), totals.bytes);
  FromDefinitions known;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<View>> lanes;  // process, epoch, lane
  std::set<std::pair<uint32_t, uint64_t>> threads;
  std::set<uint32_t> processes;
  for (auto& chunk : chunks) {
    processes.insert(chunk.header->process);
    if (chunk.header->stream == kDefinitions) read_definitions(chunk, known);
    if (chunk.header->stream == kActivities) totals.activities += chunk.size / kActivityWords;
    if (chunk.header->stream == kHops) lanes[{chunk.header->process, chunk.header->epoch, chunk.header->lane}].push_back(chunk);
  }
  for (auto& [lane, parts] : lanes) {
    uint32_t process = std::get<0>(lane);
    std::sort(parts.begin(), parts.end(), [](const View& a, const View& b) { return a.header->sequence < b.header->sequence; });
    std::vector<OpenHop> open;
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
            auto found = known.ops.find(two_numbers(uint32_t(event[2]), process));
            uint64_t op = found == known.ops.end() ? 0 : found->second;
            uint64_t site = event[4] >> kCallSiteShift & kCallSiteMask;
            ++totals.hops;
            int priority = std::bit_width(event[1]);
            bool continues = !open.empty() && open.back().op == op && priority < open.back().priority;
            totals.op_calls += site == kCall || (site == kByParent && !continues);
            open.push_back({op, priority});
            break;
          }
          case kExit:
            if (!open.empty()) open.pop_back();
            break;
          case kThread: {
            uint64_t thread = event[1] & kLow32;
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
  totals.compiled_code = known.compiled_code;
  totals.not_joined = known.not_joined;
  count_processes(page, fork_servers(known), replaced_programs(known.processes), totals);
  munmap(mapping, totals.bytes);
  return totals;
}

}  // namespace tracer::trace
