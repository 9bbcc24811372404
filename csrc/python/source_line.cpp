#include "source_line.h"

#include <atomic>

#include "code_objects.h"
#include "frame.h"
#include "seen_lines.h"

namespace tracer::python {
namespace {

using trace::mix;

// Frames above this many are not searched. CPython's own limit is 1,000 unless a program raises it.
constexpr int kMostFrames = 1024;
constexpr int kMostStackLines = 64;
std::vector<std::string>& hidden = *new std::vector<std::string>;

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

bool is_hidden(PyCodeObject* code) {
  std::string file = text_of(code->co_filename);
  if (file.starts_with("<frozen ") || is_generated(file) || is_launcher(code, file)) return true;
  for (const auto& folder : hidden)
    if (file.starts_with(folder)) return true;
  return false;
}

// Which code objects are visible, and the hashes of these, per lane: a cache of sets. Finding out takes as long as many
// hops, so two code objects whose addresses meet must not take turns in one place.
struct Visibility {
  Fingerprint code;
  uint64_t hash;  // 0: not visible
};
constexpr size_t kVisibilitySets = 256;
constexpr size_t kVisibilityWays = 8;

// The hash of a visible code object; 0 for others.
uint64_t hash_if_visible(trace::Lane* lane, const Fingerprint& code) {
  if (!lane->source_cache) lane->source_cache = calloc(kVisibilitySets * kVisibilityWays, sizeof(Visibility));
  auto* cache = static_cast<Visibility*>(lane->source_cache);
  if (!cache) return 0;
  uint64_t hash = (uint64_t(code.code) >> 4) * 0x9E3779B97F4A7C15ull;
  Visibility* set = cache + (hash >> 56) * kVisibilityWays;
  for (size_t way = 0; way < kVisibilityWays && set[way].code.code; ++way)
    if (set[way].code == code) return set[way].hash;
  // The newest is first; the oldest goes.
  for (size_t way = kVisibilityWays - 1; way > 0; --way) set[way] = set[way - 1];
  set[0] = {code, is_hidden(code.code) ? 0 : hash_of(code) | 1};
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

// The first visible lines of the calling thread, innermost first; returns how many there are, at most `most`.
int visible_lines(trace::Lane* lane, Line* lines, int most) {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (!thread) return 0;
  int count = 0;
  Frame frame = Frame::current(thread);
  for (int i = 0; frame && count < most && i < kMostFrames; ++i, frame = frame.caller()) {
    PyCodeObject* code = frame.code();
    Fingerprint fingerprint = fingerprint_of(code);
    uint64_t hash = hash_if_visible(lane, fingerprint);
    if (!hash) continue;
    int instruction = frame.instruction();
    lines[count++] = {fingerprint, instruction, mix(hash, uint64_t(instruction))};
  }
  return count;
}

// The same of all lines, torch's too.
int all_lines(Line* lines, int most) {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (!thread) return 0;
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
__attribute__((noinline)) uint32_t stack_id(trace::Lane* lane, int most) {
  Line lines[kMostStackLines + 1];
  bool all = torch_lines.load(std::memory_order_relaxed);
  // With torch's lines the one that is the source comes first, and then all of them.
  int count = visible_lines(lane, lines, all ? 1 : most);
  if (!count) return 0;
  if (all) count += all_lines(lines + 1, most);
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

// Which lines do not call compiled code themselves: those of context managers, in which phases of the compiler run, and the
// first line of a function, which Dynamo's code of it has; and whether a line is of an installed library. Finding out reads the
// line table, so it is remembered. With the GIL.
enum Passed : uint64_t { kNotPassed, kContext, kAtBegin };
constexpr int kMostPassed = 8, kMostPassedLibraries = 64;
struct KnownLine {
  uint64_t hash;
  Passed passed;
  bool of_library;
};
constexpr int kKnownLineBits = 8;
KnownLine known_lines[1 << kKnownLineBits];

KnownLine known_line(const Line& line) {
  KnownLine& known = known_lines[line.hash >> (64 - kKnownLineBits)];
  if (known.hash == line.hash) return known;
  PyCodeObject* code = line.code.code;
  std::string file = text_of(code->co_filename);
  bool of_library = file.find("/site-packages/") != file.npos || file.find("/dist-packages/") != file.npos;
  bool at_begin = PyCode_Addr2Line(code, line.instruction) == code->co_firstlineno;
  known = {line.hash, file.ends_with("/contextlib.py") ? kContext : at_begin ? kAtBegin : kNotPassed, of_library};
  return known;
}

}  // namespace

bool can_read_source_lines() { return kFramesKnown; }

void hide_sources(std::vector<std::string> folders) {
  hidden = std::move(folders);
  watch_code_objects();
}

void set_stack_lines(int lines, bool of_torch) {
  torch_lines = of_torch;
  stack_lines = lines < 1 ? 1 : lines > kMostStackLines ? kMostStackLines : lines;
}

uint32_t source_id(trace::Lane* lane) {
  if (!kFramesKnown) return 0;
  int most = stack_lines.load(std::memory_order_relaxed);
  if (__builtin_expect(most > 1, 0)) return stack_id(lane, most);
  Line line;
  return visible_lines(lane, &line, 1) ? id_of(lane, line) : 0;
}

uint32_t calling_source_id(trace::Lane* lane, bool pass_libraries) {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (!kFramesKnown || !thread) return 0;
  Line first{}, of_library{};
  int seen = 0;
  int most = pass_libraries ? kMostPassedLibraries : kMostPassed;
  Frame frame = Frame::current(thread);
  for (int i = 0; frame && i < kMostFrames && seen < most; ++i, frame = frame.caller()) {
    Fingerprint code = fingerprint_of(frame.code());
    uint64_t hash = hash_if_visible(lane, code);
    if (!hash) continue;
    int instruction = frame.instruction();
    Line line{code, instruction, mix(hash, uint64_t(instruction))};
    if (!seen++) first = line;
    KnownLine known = known_line(line);
    if (known.passed == kContext || (known.passed == kAtBegin && seen == 1)) continue;
    if (!pass_libraries || !known.of_library) return id_of(lane, line);
    if (!of_library.hash) of_library = line;
  }
  return seen ? id_of(lane, of_library.hash ? of_library : first) : 0;
}

}  // namespace tracer::python
