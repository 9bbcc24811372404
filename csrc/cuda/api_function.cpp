#include "api_function.h"

#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

#include "../fork_locks.h"
#include "../trace/lane.h"
#include "../trace/recording.h"

namespace tracer::cuda {
namespace {

constexpr size_t kMostBytes = trace::kMaxCallWords * 8;

bool is_word(size_t size) { return size == 1 || size == 2 || size == 4 || size == 8; }

// Those that PyTorch and cuDNN call again and again within an op. Other questions, when they come first, bring code to
// the GPU or make a context.
bool is_query(std::string_view name) {
  return name == "cudaGetDevice" || name == "cudaGetLastError" || name == "cudaPeekAtLastError" || name == "cudaGetErrorString";
}

void append_line(std::string& layout, const char* when, const char* name, const char* type, size_t offset, size_t size) {
  layout += when;
  for (const std::string& part : {std::string(name), std::string(type), std::to_string(offset), std::to_string(size)})
    layout += '\t' + part;
  layout += '\n';
}

}  // namespace

void ApiFunctions::add(uint32_t id, const char* name, size_t bytes, std::vector<Field> fields) {
  if (id >= kMostFunctions) return;
  ApiFunction& function = functions_[id];
  function.name = name;
  function.bytes = uint16_t(std::min(bytes, kMostBytes));
  std::string_view text = name;
  function.launches = text.starts_with("cudaLaunch") || text.starts_with("__cudaLaunch") || text.starts_with("cuLaunch");
  if (text.find("HostFunc") != std::string_view::npos) function.launches = false;
  function.builds = text.find("Graph") != std::string_view::npos;
  function.replays = text == "cudaGraphLaunch" || text == "cuGraphLaunch";
  size_t reads = 0, filled = 0;
  for (const Field& field : fields)
    if (field.when == Field::kParameter || (is_word(field.size) && reads++ < ApiFunction::kMostReads)) function.fields.push_back(field);
  auto add_reads = [&](Field::When when) {
    size_t before = filled;
    for (const Field& field : function.fields)
      if (field.when == when) function.reads[filled++] = {uint16_t(field.offset), uint16_t(field.member), uint16_t(field.size)};
    return uint8_t(filled - before);
  };
  function.reads_at_return = add_reads(Field::kAtReturn);
  function.reads_at_call = add_reads(Field::kAtCall);
  // What a kApiQuery has room for.
  function.query = is_query(text) && function.reads_at_return <= 1 && function.reads[0].size <= 4;
}

trace::ArgumentWords ApiFunction::read_more(const void* parameters, trace::ArgumentWords words) const {
  auto* from = static_cast<const uint64_t*>(parameters);
  for (uint32_t i = 0; i < uint32_t(bytes / 8); ++i) words.put(from[i]);
  if (bytes % 8) {
    uint64_t rest = 0;
    memcpy(&rest, from + bytes / 8, bytes % 8);
    words.put(rest);
  }
  for (uint32_t i = 0; i < reads_at_call && !words.full(); ++i) words.put(reads[reads_at_return + i].word(parameters));
  return words;
}

std::string ApiFunction::layout() const {
  std::string text;
  size_t called = (bytes + 7) / 8, returned = 0;
  for (const Field& field : fields) {
    if (field.when == Field::kParameter) {
      if (field.offset + field.size <= bytes) append_line(text, "enter", field.name, field.type, field.offset, field.size);
    } else {
      size_t& word = field.when == Field::kAtCall ? called : returned;
      if (word < trace::kMaxCallWords)
        append_line(text, field.when == Field::kAtCall ? "enter" : "exit", field.name, field.type, word * 8, field.size);
      ++word;
    }
  }
  return text;
}

void describe(trace::FunctionDomain domain, uint32_t id, const char* name, const std::string& layout) {
  static std::mutex& lock = fork_lock<LockOrder::kFunctions>();
  static auto& written = *new std::set<std::string_view>;
  static uint32_t written_epoch = 0;
  std::lock_guard guard(lock);
  if (written_epoch != trace::epoch_of_recording()) {
    written_epoch = trace::epoch_of_recording();
    written.clear();
  }
  bool of_library = domain == trace::kLibrary;
  for (const Enumeration& enumeration : of_library ? library_enumerations() : enumerations()) {
    std::string_view type = enumeration.name;
    bool result =
        type == "cudaError_t" || type == "CUresult" || type == "cublasStatus_t" || type == "cudnnStatus_t" || type == "ncclResult_t";
    bool used = result || layout.find('\t' + std::string(type) + '\t') != std::string::npos;
    if (!used || !written.insert(type).second) continue;
    std::string values;
    for (auto& [value, number] : enumeration.values) values += std::string(value) + "=" + std::to_string(number) + "\n";
    trace::define_for_process(trace::DefinitionBuilder(trace::kEnumeration).put_string(type).put_string(values));
  }
  trace::define_for_process(trace::DefinitionBuilder(trace::kFunction).put(uint32_t(domain)).put(id).put_string(name).put_string(layout));
}

}  // namespace tracer::cuda
