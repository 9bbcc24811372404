#include "totals.h"

#include <fcntl.h>
#include <signal.h>
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
#include <vector>

#include "chunk_reader.h"
#include "clock.h"
#include "interner.h"
#include "records.h"
#include "trace_file.h"

namespace tracer::trace {
namespace {

// Of each process: which op a hop id is of (as a hash of its name; 0: unknown).
class OpOfHop {
 public:
  OpOfHop() = default;
  ~OpOfHop() { places_.clear(); }
  OpOfHop(const OpOfHop&) = delete;
  OpOfHop& operator=(const OpOfHop&) = delete;

  void put(uint32_t process, uint32_t id, uint64_t op) {
    uint64_t hash = mix(seed_, two_numbers(id, process));
    uint32_t place = places_.find(hash);
    if (!place && !(place = places_.add(hash))) return;
    ops_.resize(std::max<size_t>(ops_.size(), place + 1));
    ops_[place] = op;
  }
  uint64_t find(uint32_t process, uint32_t id) const { return ops_[places_.find(mix(seed_, two_numbers(id, process)))]; }

 private:
  // Whoever writes a file cannot foresee it, and choose numbers whose places in the table are the same.
  uint64_t seed_ = ticks();
  Interner places_;
  std::vector<uint64_t> ops_{0};
};

struct OpenHop {
  uint64_t op;
  int priority;  // of its key
};

// What the definition of a process begins with; then its command.
struct Process {
  uint32_t number, pid, parent, how;
};
constexpr uint32_t kJoined = 2;  // Process::how: records.h

struct FromDefinitions {
  OpOfHop ops;
  std::vector<Process> like_fork_servers;
  std::vector<Process> processes;
  std::set<uint32_t> other_pids;
  bool compiled_code = false, not_joined = false;
};

// Whether the record is what its kind says, as far as it is looked at.
bool take_definition(const DefinitionRecord& record, uint32_t number, FromDefinitions& known) {
  std::string_view text;
  if (record.kind == kProcess) {
    Process process;
    if (record.payload.size() < sizeof process) return false;
    memcpy(&process, record.payload.data(), sizeof process);
    known.processes.push_back(process);
    if (record.payload.find("multiprocessing.forkserver") != std::string_view::npos)
      known.like_fork_servers.push_back(process);
    else
      known.other_pids.insert(process.pid);
  }
  if (record.kind == kJson) {
    if (!string_at(record, 0, text)) return false;
    known.compiled_code |= text == "compiled_hidden";
    known.not_joined |= text == "not_joined";
  }
  if (record.kind == kHop) {
    uint32_t id;
    // id, flags, index, two addresses, then the op's name
    if (!number_at(record, 0, id) || !string_at(record, 28, text)) return false;
    known.ops.put(number, id, hash_bytes(text.data(), text.size()));
  }
  return true;
}

bool read_definitions(FileReader& reader, const FoundChunk& chunk, FromDefinitions& known) {
  Definitions definitions(reader, chunk);
  bool whole = true;
  for (DefinitionRecord record; definitions.next(record);) whole &= take_definition(record, chunk.header.process, known);
  return whole && !definitions.is_damaged();
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

void count_processes(const HeaderPage& page, const std::set<uint32_t>& fork_servers, const std::set<uint32_t>& replaced, Totals& totals) {
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

// The chunks of hops of one thread after the other, in their order.
class LaneCounter {
 public:
  LaneCounter(FileReader& reader, const OpOfHop& ops, Totals& totals) : reader_(reader), ops_(ops), totals_(totals) {}

  void count(std::vector<FoundChunk>& parts) {
    std::sort(parts.begin(), parts.end(), [](const FoundChunk& a, const FoundChunk& b) { return a.header.sequence < b.header.sequence; });
    of_thread_ = 0;
    uint32_t next = 0;
    for (const FoundChunk& part : parts) {
      // Chunks before it are missing, or a ring has overwritten them.
      if (part.header.sequence != next) open_.resize(std::min<size_t>(open_.size(), part.header.depth));
      next = part.header.sequence + 1;
      Events events(reader_, part);
      while (const uint64_t* event = events.next()) take(event, part.header.process);
      totals_.damaged_chunks += events.is_damaged();
    }
    close_hops();
  }

  size_t threads() const { return threads_.size(); }

 private:
  void close_hops() {
    totals_.open_hops += open_.size();
    open_.clear();
  }

  void take(const uint64_t* event, uint32_t process) {
    switch (kind_of_event(event[0])) {
      case kEnter: {
        uint64_t op = ops_.find(process, uint32_t(event[2]));
        uint64_t site = event[4] >> kCallSiteShift & kCallSiteMask;
        ++totals_.hops;
        int priority = std::bit_width(event[1]);
        bool same = !open_.empty() && open_.back().op == op;
        bool continues = site == kUnasked ? same : site == kByParent && same && priority < open_.back().priority;
        totals_.op_calls += site != kRedispatch && !continues;
        open_.push_back({op, priority});
        break;
      }
      case kExit:
        if (!open_.empty()) open_.pop_back();
        break;
      case kThread: {
        uint64_t thread = event[1] & kLow32;
        threads_.insert({process, thread});
        if (thread == of_thread_) break;
        of_thread_ = thread;
        close_hops();
        break;
      }
      case kApiEnter:
      case kApiQuery:
        ++totals_.api_calls;
        break;
      default:
        break;
    }
  }

  FileReader& reader_;
  const OpOfHop& ops_;
  Totals& totals_;
  std::vector<OpenHop> open_;
  uint64_t of_thread_ = 0;
  std::set<std::pair<uint32_t, uint64_t>> threads_;
};

void count_all(FileReader& reader, const HeaderPage& page, Totals& totals) {
  copy_counts(page.header, totals);
  FromDefinitions known;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<FoundChunk>> lanes;  // process, epoch, lane
  std::set<uint32_t> processes;
  ChunkFinder chunks(reader, page.header);
  for (FoundChunk chunk; chunks.next(chunk);) {
    const ChunkHeader& header = chunk.header;
    processes.insert(header.process);
    if (header.stream == kDefinitions) totals.damaged_chunks += !read_definitions(reader, chunk, known);
    if (header.stream == kActivities) totals.activities += count_activities(reader, chunk);
    if (header.stream == kHops) lanes[{header.process, header.epoch, header.lane}].push_back(chunk);
  }
  LaneCounter lane_counter(reader, known.ops, totals);
  for (auto& [lane, parts] : lanes) lane_counter.count(parts);
  totals.damaged_chunks += chunks.damaged();
  totals.threads = uint32_t(lane_counter.threads());
  totals.processes = uint32_t(processes.size());
  totals.compiled_code = known.compiled_code;
  totals.not_joined = known.not_joined;
  count_processes(page, fork_servers(known), replaced_programs(known.processes), totals);
}

constexpr char kCut[] = "was cut by another process";

// What became of the file, if it is not that recording's any more.
std::string count_in(int fd, uint64_t session, Totals& totals) {
  FileReader reader(fd);
  std::string_view bytes = reader.read(0, sizeof(HeaderPage), sizeof(HeaderPage));
  if (bytes.empty()) return kCut;
  HeaderPage page;
  memcpy(&page, bytes.data(), sizeof page);
  if (memcmp(page.header.magic, kMagic, sizeof kMagic) != 0) return "was overwritten while it was recorded";
  if (page.header.session != session) return "was replaced by another recording while it was recorded";
  totals.bytes = reader.size();
  count_all(reader, page, totals);
  return reader.has_failed() ? kCut : "";
}

}  // namespace

Totals count_totals(const std::string& path, uint64_t session) {
  Totals totals;
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) {
    totals.gone = count_in(fd, session, totals);
    close(fd);
  } else if (errno == ENOENT || errno == ENOTDIR) {
    totals.gone = "was moved or removed while it was recorded";
  } else {
    totals.gone = "cannot be read at its end: " + std::string(strerror(errno));
  }
  return totals;
}

}  // namespace tracer::trace
