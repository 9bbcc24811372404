// How calls from libtorch_cuda into a vendor library are written with their arguments: the slot through which it calls a
// function leads to a hook, which is made from what the function takes and from what is read of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../trace/lane.h"

namespace tracer::cuda {

// What the arguments of a call are written as: the words, and how a reader finds the fields in them.
struct LibraryFunction {
  const char* name;
  std::string layout;
  uint32_t number;
  void** slot = nullptr;
  void* original = nullptr;
  void* hook = nullptr;
  std::atomic<uint32_t> described_epoch{0};
};

class LayoutText {
 public:
  LayoutText& add(const char* name, const char* type, size_t offset, size_t size) {
    text_ += std::string("enter\t") + name + "\t" + type + "\t" + std::to_string(offset) + "\t" + std::to_string(size) + "\n";
    return *this;
  }
  operator std::string() const { return text_; }

 private:
  std::string text_;
};
#define TRACER_FIELD(type, name, c_type) add(#name, c_type, offsetof(type, name), sizeof(type::name))

// A call that has begun, for the event at its end.
struct OpenCall {
  trace::Lane* lane = nullptr;
  uint64_t mark = 0;
  uint32_t number = 0;
};

OpenCall begin_library_call(LibraryFunction& function, const uint64_t* arguments, size_t count) noexcept;
void end_library_call(const OpenCall& open, int result) noexcept;

// The hook of one function. Its types are those of the C interface with handles as void* and enumerations as int,
// which are passed in the same way. `Tag::read` turns the arguments into what is written, and `Tag::layout` describes it.
template <class Tag, class Signature>
struct Hook;

template <class Tag, class... Args>
struct Hook<Tag, int(Args...)> {
  static inline LibraryFunction function{Tag::name, Tag::layout(), 0};

  static int call(Args... args) {
    auto original = reinterpret_cast<int (*)(Args...)>(function.original);
    if (!trace::recording_epoch.load(std::memory_order_relaxed)) return original(args...);
    auto arguments = Tag::read(args...);
    static_assert(sizeof arguments % 8 == 0 && sizeof arguments <= trace::kMaxCallWords * 8);
    uint64_t words[sizeof arguments / 8];
    memcpy(words, &arguments, sizeof arguments);
    OpenCall open = begin_library_call(function, words, sizeof arguments / 8);
    int result = original(args...);
    end_library_call(open, result);
    return result;
  }
};

// Takes the slot of a function, if libtorch_cuda has one, and counts it among the functions of library_hooks().
void add_library_function(LibraryFunction& function, void* hook);

template <class Tag>
void add() {
  add_library_function(Hook<Tag, typename Tag::Signature>::function, reinterpret_cast<void*>(&Hook<Tag, typename Tag::Signature>::call));
}

// An exported function of the library that `function` belongs to; nullptr if there is none.
void* companion_of(const LibraryFunction& function, const char* name);

using Handle = void*;

// What is read of a function whose arguments are not.
struct Nothing {
  uint64_t unused;
};

void add_cublas();
void add_cudnn();
void add_nccl();

}  // namespace tracer::cuda
