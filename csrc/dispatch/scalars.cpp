#include "scalars.h"

#include <dlfcn.h>

#include <atomic>
#include <charconv>
#include <cmath>
#include <cstring>

#include "../torch_abi/process_group.h"
#include "shared_memory.h"

namespace tracer::dispatch {
namespace {

constexpr size_t kMostElements = 1024;
constexpr size_t kLongestText = 4096;

void put_text(std::string& json, std::string_view text) {
  json += '"';
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    if (c >= 0x20) {
      json += char(c);
    } else {
      constexpr char digits[] = "0123456789abcdef";
      json += "\\u00";
      json += digits[c >> 4];
      json += digits[c & 15];
    }
  }
  json += '"';
}

void put_number(std::string& json, double value) {
  if (!std::isfinite(value)) {
    json += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, value).ptr;  // the shortest text with this value
  std::string_view number(text, size_t(end - text));
  json += number;
  if (number.find_first_of(".e") == number.npos) json += ".0";  // else it would be read as an integer
}

// `{"device":"cuda:0"}`: a value that JSON has no type for.
void put_named(std::string& json, std::string_view name, std::string_view text) {
  json += '{';
  put_text(json, name);
  json += ':';
  put_text(json, text);
  json += '}';
}

void put(std::string& json, const c10::IValue& value);

// Of a list of tensors only how many there are, or `true` and `false` where some of them are None.
void put_list(std::string& json, const c10::IValue& value) {
  c10::ArrayRef<c10::IValue> list = value.toListRef();
  bool tensors = value.isTensorList() || value.isOptionalTensorList();
  if (list.size() > kMostElements) return put_named(json, "unknown", "list of " + std::to_string(list.size()) + " elements");
  if (tensors) json += "{\"tensors\":";
  json += '[';
  bool first = true;
  for (const c10::IValue& element : list) {
    if (!first) json += ',';
    first = false;
    if (tensors)
      json += element.isTensor() ? "true" : "false";
    else
      put(json, element);
  }
  json += ']';
  if (tensors) json += '}';
}

void put_integers(std::string& json, const std::vector<int64_t>& list) {
  if (list.size() > kMostElements) return put_named(json, "unknown", "list of " + std::to_string(list.size()) + " elements");
  json += '[';
  for (size_t i = 0; i < list.size(); ++i) json += (i ? "," : "") + std::to_string(list[i]);
  json += ']';
}

// The name of a process group of torch.distributed, the same in all its ranks; null of any other value. Asked of the
// function that libtorch exports: its headers are not in every build.
const std::string* process_group(const c10::IValue& value) {
  if (!value.isObject()) return nullptr;
  using Name = const std::string& (*)(const void*);
  static const Name name = reinterpret_cast<Name>(dlsym(RTLD_DEFAULT, torch_abi::kProcessGroupName));
  // The class, and the last one that is another: names are compared once, as they are copies. Classes of C++ stay.
  static std::atomic<const void*> known{nullptr}, other{nullptr};
  if (!name) return nullptr;
  const c10::ivalue::Object& object = value.toObjectRef();
  const void* type = object.type().get();
  if (type != known.load(std::memory_order_relaxed)) {
    if (type == other.load(std::memory_order_relaxed)) return nullptr;
    if (object.name() != torch_abi::kProcessGroup) {
      other.store(type, std::memory_order_relaxed);
      return nullptr;
    }
    known.store(type, std::memory_order_relaxed);
  }
  return &name(object.getSlot(0).toCapsule().get());
}

void put(std::string& json, const c10::IValue& value) {
  if (value.isNone()) {
    json += "null";
  } else if (value.isBool()) {
    json += value.toBool() ? "true" : "false";
  } else if (value.isInt()) {
    json += std::to_string(value.toInt());
  } else if (value.isDouble()) {
    put_number(json, value.toDouble());
  } else if (value.isComplexDouble()) {
    c10::complex<double> number = value.toComplexDouble();
    json += "{\"complex\":[";
    put_number(json, number.real());
    json += ',';
    put_number(json, number.imag());
    json += "]}";
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    if (text.size() > kLongestText)
      put_named(json, "unknown", "text of " + std::to_string(text.size()) + " bytes");
    else
      put_text(json, text);
  } else if (value.isDevice()) {
    put_named(json, "device", value.toDevice().str());
  } else if (value.isIntList()) {
    put_integers(json, value.toIntVector());
  } else if (value.isList()) {
    put_list(json, value);
  } else if (const std::string* group = process_group(value)) {
    put_named(json, "process_group", *group);
  } else {
    put_named(json, "unknown", value.tagKind());  // a generator, a symbolic size, an object of another library
  }
}

SharedMemory memory_of(const c10::IValue* first, size_t size) {
  SharedMemory memory;
  for (size_t i = 0; i < size; ++i) {
    if (first[i].isTensor()) {
      memory.add(first[i].toTensor());
    } else if (first[i].isTensorList() || first[i].isOptionalTensorList()) {
      for (const c10::IValue& element : first[i].toListRef())
        if (element.isTensor()) memory.add(element.toTensor());
    }
  }
  return memory;
}

// `{"memory":[0,64]}`; `null` in it for a tensor that shares none.
void put_memory(std::string& json, SharedMemory& memory) {
  json += "{\"memory\":";
  json += memory.next();
  json += '}';
}

// Behind a list of tensors: `{"tensors":[true,true],"memory":[[0,0],null]}`.
void put_memory_of_list(std::string& json, const c10::IValue& value, SharedMemory& memory) {
  if (json.back() != '}') return;
  json.pop_back();
  json += ",\"memory\":[";
  bool first = true;
  for (const c10::IValue& element : value.toListRef()) {
    if (!element.isTensor()) continue;
    if (!first) json += ',';
    first = false;
    json += memory.next();
  }
  json += "]}";
}

template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

std::string scalars_of(const c10::IValue* first, size_t size, bool only_groups) noexcept try {
  std::string bytes;
  uint32_t count = 0;
  append(bytes, count);
  SharedMemory memory;
  if (!only_groups) memory = memory_of(first, size);
  bool shared = memory.found();
  for (size_t i = 0; i < size; ++i) {
    // Of a collective also what is behind the group: whether its caller waits for it, a root or a peer, a tag.
    if (only_groups && !process_group(first[i]) && !(count && (first[i].isBool() || first[i].isInt()))) continue;
    if (first[i].isTensor() && !shared) continue;
    std::string json;
    if (first[i].isTensor())
      put_memory(json, memory);
    else
      put(json, first[i]);
    if (shared && (first[i].isTensorList() || first[i].isOptionalTensorList())) put_memory_of_list(json, first[i], memory);
    append(bytes, uint16_t(i));
    append(bytes, uint32_t(json.size()));
    bytes += json;
    ++count;
  }
  if (only_groups && !count) return {};
  memcpy(bytes.data(), &count, sizeof count);
  return bytes;
} catch (...) {
  return {};
}

}  // namespace tracer::dispatch
