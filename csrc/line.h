// One line for stderr, put together without memory: in a signal handler too.
#pragma once

#include <limits.h>

#include <algorithm>
#include <cstring>

#include "stderr.h"

namespace tracer {

class Line {
 public:
  Line& put(const char* text) {
    size_t length = std::min(strlen(text), sizeof text_ - size_);
    memcpy(text_ + size_, text, length);
    size_ += length;
    return *this;
  }

  Line& put(unsigned number) {
    char digits[12];
    char* begin = digits + sizeof digits - 1;
    *begin = '\0';
    do {
      *--begin = char('0' + number % 10);
      number /= 10;
    } while (number);
    return put(begin);
  }

  // In one write: lines of several ranks do not mix.
  void say() {
    put("\n");
    tracer::say({text_, size_});
    size_ = 0;
  }

 private:
  char text_[PATH_MAX + 256];
  size_t size_ = 0;
};

}  // namespace tracer
