// Builds the payload of one definition record (records.h) in a buffer.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "records.h"

namespace tracer::trace {

class DefinitionBuilder {
 public:
  explicit DefinitionBuilder(Definition kind) : kind_(kind) {}

  template <class T>
  DefinitionBuilder& put(T value) {
    payload_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  DefinitionBuilder& put_bytes(std::string_view bytes) {
    payload_.append(bytes);
    return *this;
  }
  DefinitionBuilder& put_string(std::string_view text) {
    put(uint32_t(text.size()));
    payload_.append(text);
    return *this;
  }

  Definition kind() const { return kind_; }
  const std::string& payload() const { return payload_; }
  // Bytes of the whole record.
  uint32_t bytes() const { return uint32_t((sizeof(DefinitionHead) + payload_.size() + 7) / 8 * 8); }

 private:
  Definition kind_;
  std::string payload_;
};

}  // namespace tracer::trace
