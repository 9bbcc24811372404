// From pointers to pointers, insert-only, read without a lock by any thread while one thread inserts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tracer::dispatch {

template <class Value>
class PointerMap {
 public:
  Value* find(const void* key) const {
    const Table* table = table_.load(std::memory_order_acquire);
    for (uint64_t i = slot_of(key, table->shift);; i = (i + 1) & table->mask) {
      const void* there = table->slots[i].key.load(std::memory_order_acquire);
      if (there == key) return table->slots[i].value.load(std::memory_order_acquire);
      if (!there) return nullptr;
    }
  }

  // Under the caller's lock. A key that is there already gets the new value.
  void set(const void* key, Value* value) {
    Table* table = table_.load();
    if ((count_ + 1) * 2 > table->mask) table = grow(table);
    if (insert(*table, key, value)) ++count_;
  }

 private:
  struct Slot {
    std::atomic<const void*> key;
    std::atomic<Value*> value;
  };
  struct Table {
    explicit Table(int bits) : mask((1ull << bits) - 1), shift(64 - bits), slots(new Slot[1ull << bits]()) {}
    uint64_t mask;
    int shift;
    Slot* slots;
  };

  static uint64_t slot_of(const void* key, int shift) { return (reinterpret_cast<uint64_t>(key) * 0x9E3779B97F4A7C15ull) >> shift; }

  static bool insert(Table& table, const void* key, Value* value) {
    for (uint64_t i = slot_of(key, table.shift);; i = (i + 1) & table.mask) {
      const void* there = table.slots[i].key.load();
      if (there && there != key) continue;
      table.slots[i].value.store(value, std::memory_order_release);
      table.slots[i].key.store(key, std::memory_order_release);
      return !there;
    }
  }

  // The old table is never freed: a thread may be reading it.
  Table* grow(Table* old) {
    auto* table = new Table(64 - old->shift + 1);
    for (uint64_t i = 0; i <= old->mask; ++i)
      if (const void* key = old->slots[i].key.load()) insert(*table, key, old->slots[i].value.load());
    table_.store(table, std::memory_order_release);
    return table;
  }

  size_t count_ = 0;
  std::atomic<Table*> table_{new Table(14)};
};

}  // namespace tracer::dispatch
