#include "source_line.h"

#include <atomic>

#include "code_objects.h"
#include "running_frame.h"
#include "seen_lines.h"

namespace tracer::python {
namespace {

using trace::mix;

// Frames above this many are not searched. CPython's own limit is 1,000 unless a program raises it.
constexpr int kMostFrames = 1024;
constexpr int kMostStackLines = 64;
std::vector<std::string>& hidden = *new std::vector<std::string>;
std::string& library = *new std::string;

// What identifies a code object: its address alone may be another's after it was freed.
struct Fingerprint {
  PyCodeObject* code;
  uint32_t generation;
  bool operator==(const Fingerprint&) const = default;
};

Fingerprint fingerprint_of(PyCodeObject* code) { return {code, generation_of(code)}; }

uint64_t hash_of(const Fingerprint& f) { return mix(mix(7, uint64_t(f.code)), f.generation); }

// UTF-8 of a str, without the GIL: a str never changes. Other kinds than compact ASCII are re-encoded by hand.
std::string text_of(PyObject* text) {
  if (!text || !PyUnicode_Check(text)) return {};
  Py_ssize_t size = PyUnicode_GET_LENGTH(text);
  int kind = PyUnicode_KIND(text);
  const void* data = PyUnicode_DATA(text);
  std::string result;
  for (Py_ssize_t i = 0; i < size; ++i) {
    Py_UCS4 c = PyUnicode_READ(kind, data, i);
    if (c >= 0xd800 && c < 0xe000) c = '?';  // a surrogate, from a file name that is not UTF-8
    if (c < 0x80) {
      result += char(c);
    } else if (c < 0x800) {
      result += char(0xc0 | c >> 6), result += char(0x80 | (c & 63));
    } else if (c < 0x10000) {
      result += char(0xe0 | c >> 12), result += char(0x80 | (c >> 6 & 63)), result += char(0x80 | (c & 63));
    } else {
      result += char(0xf0 | c >> 18), result += char(0x80 | (c >> 12 & 63)), result += char(0x80 | (c >> 6 & 63)),
          result += char(0x80 | (c & 63));
    }
  }
  return result;
}

// Whether a file is one that Inductor generated: its cache names them .../ab/cab....py, after a hash in base 32.
bool is_generated(const std::string& file) {
  constexpr size_t kHash = 51, kEnd = 3;  // "c" and the hash, ".py"
  size_t slash = file.rfind('/');
  if (slash == std::string::npos || slash < 3 || file.size() - slash - 1 != 1 + kHash + kEnd || !file.ends_with(".py")) return false;
  std::string_view name = std::string_view(file).substr(slash + 1, 1 + kHash);
  return name[0] == 'c' && file.compare(slash - 3, 3, "/" + std::string(name.substr(1, 2))) == 0 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567") == std::string_view::npos;
}

// The function that Inductor makes of text for each configuration of a Triton kernel.
bool is_launcher(PyCodeObject* code, const std::string& file) {
  return file == "<string>" && text_of(code->co_name) == "launcher" && code->co_argcount > 0;
}

// Whose code it is. What torch and the standard library make of text is no line of the program, but that of `python -c` is:
// it counts where no file of the program runs. Lines of the standard library count where there is nothing else.
enum Owner : uint64_t { kHidden, kLibrary, kText, kProgram };

bool is_of_library(const std::string& file) {
  return !library.empty() && file.starts_with(library) && file.find("/site-packages/") == std::string::npos &&
         file.find("/dist-packages/") == std::string::npos;
}

Owner owner_of(PyCodeObject* code) {
  std::string file = text_of(code->co_filename);
  if (file.starts_with("<frozen ") || is_generated(file) || is_launcher(code, file)) return kHidden;
  for (const auto& folder : hidden)
    if (file.starts_with(folder)) return kHidden;
  return is_of_library(file) ? kLibrary : file == "<string>" ? kText : kProgram;
}

// Whose code objects are, and their hashes, per lane: a cache of sets. Finding out takes as long as many hops, so two code
// objects whose addresses meet must not take turns in one place.
struct KnownCode {
  Fingerprint code;
  uint64_t hash;  // its two low bits are the Owner
};
constexpr size_t kKnownCodeSets = 256;
constexpr size_t kKnownCodeWays = 8;
constexpr uint64_t kOwnerMask = 3;

uint64_t hash_with_owner(trace::Lane* lane, const Fingerprint& code) {
  if (!lane->source_cache) lane->source_cache = calloc(kKnownCodeSets * kKnownCodeWays, sizeof(KnownCode));
  auto* cache = static_cast<KnownCode*>(lane->source_cache);
  if (!cache) return kHidden;
  uint64_t hash = (uint64_t(code.code) >> 4) * 0x9E3779B97F4A7C15ull;
  KnownCode* set = cache + (hash >> 56) * kKnownCodeWays;
  for (size_t way = 0; way < kKnownCodeWays && set[way].code.code; ++way)
    if (set[way].code == code) return set[way].hash;
  // The newest is first; the oldest goes.
  for (size_t way = kKnownCodeWays - 1; way > 0; --way) set[way] = set[way - 1];
  set[0] = {code, (hash_of(code) & ~kOwnerMask) | owner_of(code.code)};
  return set[0].hash;
}

// A line that a frame runs.
struct Line {
  Fingerprint code;
  int instruction;
  uint64_t hash;
};

// The id of a line of this lane.
uint32_t id_of(trace::Lane* lane, const Line& line) {
  if (uint32_t id = lane->sources.find(line.hash)) return id;
  if (lane->leave_out_definition()) return trace::kOther;
  uint32_t id = lane->sources.add(line.hash);
  PyCodeObject* code = line.code.code;
  // Pure reading of the line table; it takes no reference and needs no GIL.
  int number = PyCode_Addr2Line(code, line.instruction);
#if PY_VERSION_HEX >= 0x030B0000
  std::string function = text_of(code->co_qualname);
#else
  std::string function = text_of(code->co_name);
#endif
  uint32_t known = number > 0 ? number : 0;
  std::string file = text_of(code->co_filename);
  lane->define(trace::DefinitionBuilder(trace::kSourceLine).put(id).put(known).put_string(file).put_string(function));
  note_line(file, known);
  return id;
}

inline int lines_of(Owner owner, trace::Lane* lane, Frame frame, Line* lines, int most) {
  int count = 0;
  for (int i = 0; frame && count < most && i < kMostFrames; ++i, frame = frame.caller()) {
    Fingerprint code = fingerprint_of(frame.code());
    uint64_t hash = hash_with_owner(lane, code);
    if ((hash & kOwnerMask) != owner) continue;
    int instruction = frame.instruction();
    lines[count++] = {code, instruction, mix(hash, uint64_t(instruction))};
  }
  return count;
}

// The innermost frame of the outermost stretch of the standard library: what is further in, torch called.
Frame first_of_library(trace::Lane* lane, Frame frame) {
  Frame found = frame;
  bool inside = false;
  for (int i = 0; frame && i < kMostFrames; ++i, frame = frame.caller()) {
    bool is_inside = (hash_with_owner(lane, fingerprint_of(frame.code())) & kOwnerMask) == kLibrary;
    if (is_inside && !inside) found = frame;
    inside = is_inside;
  }
  return found;
}

__attribute__((noinline, cold)) int lines_without_program(trace::Lane* lane, Frame frame, Line* lines, int most) {
  int count = lines_of(kText, lane, frame, lines, most);
  return count ? count : lines_of(kLibrary, lane, first_of_library(lane, frame), lines, most);
}

// The first visible lines of the calling thread, innermost first; returns how many there are, at most `most`.
inline int visible_lines(trace::Lane* lane, PyThreadState* thread, Line* lines, int most) {
  if (!thread) return 0;
  Frame frame = Frame::current(thread);
  int count = lines_of(kProgram, lane, frame, lines, most);
  return __builtin_expect(count, 1) ? count : lines_without_program(lane, frame, lines, most);
}

// The same of all lines, torch's too.
int all_lines(PyThreadState* thread, Line* lines, int most) {
  int count = 0;
  for (Frame frame = Frame::current(thread); frame && count < most; frame = frame.caller()) {
    Fingerprint code = fingerprint_of(frame.code());
    int instruction = frame.instruction();
    lines[count++] = {code, instruction, mix(hash_of(code) | 1, uint64_t(instruction))};
  }
  return count;
}

std::atomic<int> stack_lines{1};
std::atomic<bool> torch_lines{false};

// The id of the first lines together.
__attribute__((noinline)) uint32_t stack_id(trace::Lane* lane, PyThreadState* thread, int most) {
  Line lines[kMostStackLines + 1];
  bool all = torch_lines.load(std::memory_order_relaxed);
  // With torch's lines the one that is the source comes first, and then all of them.
  int count = visible_lines(lane, thread, lines, all ? 1 : most);
  if (!count) return 0;
  if (all) count += all_lines(thread, lines + 1, most);
  uint64_t hash = mix(11, uint64_t(count));
  for (int i = 0; i < count; ++i) hash = mix(hash, lines[i].hash);
  if (uint32_t id = lane->sources.find(hash)) return id;
  if (lane->leave_out_definition()) return trace::kOther;
  trace::DefinitionBuilder stack(trace::kPythonStack);
  uint32_t ids[kMostStackLines + 1];
  for (int i = 0; i < count; ++i)
    if ((ids[i] = id_of(lane, lines[i])) == trace::kOther) return trace::kOther;
  uint32_t id = lane->sources.add(hash);
  stack.put(id).put(uint32_t(count) | (all ? trace::kWithTorchLines : 0u));
  for (int i = 0; i < count; ++i) stack.put(ids[i]);
  lane->define(stack);
  return id;
}

inline uint32_t source_of(trace::Lane* lane, PyThreadState* thread) {
  if (!kFramesKnown) return 0;
  int most = stack_lines.load(std::memory_order_relaxed);
  if (__builtin_expect(most > 1, 0)) return stack_id(lane, thread, most);
  Line line;
  return visible_lines(lane, thread, &line, 1) ? id_of(lane, line) : 0;
}

// Whether a line does not call compiled code itself, as the first one of a function, which Dynamo's code of it has; and whether
// it is of an installed library. Finding out reads the line table, so it is remembered. With the GIL.
constexpr int kMostPassed = 64;
struct KnownLine {
  uint64_t hash;
  bool at_begin, of_library;
};
constexpr int kKnownLineBits = 8;
KnownLine known_lines[1 << kKnownLineBits];

const KnownLine& known_line(const Line& line) {
  KnownLine& known = known_lines[line.hash >> (64 - kKnownLineBits)];
  if (known.hash == line.hash) return known;
  PyCodeObject* code = line.code.code;
  std::string file = text_of(code->co_filename);
  bool of_library = file.find("/site-packages/") != file.npos || file.find("/dist-packages/") != file.npos;
  known = {line.hash, PyCode_Addr2Line(code, line.instruction) == code->co_firstlineno, of_library};
  return known;
}

}  // namespace

bool can_read_source_lines() { return kFramesKnown; }

void hide_sources(std::vector<std::string> folders, std::string of_library) {
  hidden = std::move(folders);
  library = std::move(of_library);
  watch_code_objects();
}

void set_stack_lines(int lines, bool of_torch) {
  torch_lines = of_torch;
  stack_lines = lines < 1 ? 1 : lines > kMostStackLines ? kMostStackLines : lines;
}

uint32_t source_id(trace::Lane* lane) { return source_of(lane, PyGILState_GetThisThreadState()); }

uint32_t outermost_source_id(trace::Lane* lane) { return source_of(lane, note_frame(lane)); }

uint32_t own_source_id(trace::Lane* lane) { return has_own_line(lane) ? source_id(lane) : 0; }

uint32_t calling_source_id(trace::Lane* lane, bool pass_libraries) {
  if (!kFramesKnown) return 0;
  Line lines[kMostPassed];
  int seen = visible_lines(lane, PyGILState_GetThisThreadState(), lines, pass_libraries ? kMostPassed : 2);
  int first = seen > 1 && known_line(lines[0]).at_begin;
  int at = first;
  while (pass_libraries && at < seen && known_line(lines[at]).of_library) ++at;
  return seen ? id_of(lane, lines[at < seen ? at : first]) : 0;
}

}  // namespace tracer::python
