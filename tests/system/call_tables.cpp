// What an API call is written with: the table of native stacks, and its argument words.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <utility>

#include "../../csrc/trace/event_words.h"
#include "../../csrc/trace/lane.h"

using namespace tracer::trace;

#define CHECK(what) \
  if (!(what)) return printf("line %d: %s\n", __LINE__, #what), exit(1)

// A stack where the address of the caller stands at one of two places, or cannot be read.
struct Frame {
  uint64_t words[32] = {};
  uint64_t caller = 0;
  uint32_t distance = 0;
};

Frame frame_of(uint64_t caller, uint32_t distance) {
  Frame frame;
  if (distance) {
    frame.words[distance / 8] = frame.caller = caller;
    frame.distance = distance;
  }
  return frame;
}

// As a call does: `predicted` says whether the table was read without hashing.
uint32_t look_up(StackTable& table, uint64_t key, const Frame& frame, bool& predicted) {
  uint32_t id = table.predict(key, frame.words);
  predicted = id != 0;
  if (!id) id = table.find(key, frame.caller);
  return id ? id : table.add(key, frame.caller, frame.distance);
}

void every_lookup_finds_its_own() {
  std::mt19937 random(7);
  StackTable table;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> ids;
  for (int i = 0; i < 200'000; ++i) {
    // Keys that share their tag, callers that share a key, and one caller that cannot be read.
    uint64_t key = mix(1, random() % 5) >> 32 << 32 | random() % 7, caller = 0x1000 * (1 + random() % 3);
    uint32_t distance = caller == 0x3000 ? 0 : caller == 0x2000 ? 64 : 128;
    Frame frame = frame_of(caller, distance);
    bool predicted;
    uint32_t id = look_up(table, key, frame, predicted);
    auto [known, is_new] = ids.try_emplace({key, frame.caller}, id);
    CHECK(known->second == id);
    CHECK(!is_new || id == ids.size());
    CHECK(frame.distance || !predicted);
  }
  CHECK(table.size() == ids.size());
}

void four_ways_on_are_remembered() {
  StackTable table;
  bool predicted;
  for (int round = 0; round < 20; ++round)
    for (uint64_t i = 0; i < 100; ++i) {
      look_up(table, 1, frame_of(0x1000, 64), predicted);
      CHECK(round < 2 || predicted);
      look_up(table, 2 + i % 4, frame_of(0x1000, 64), predicted);
      CHECK(round < 2 || predicted);
    }
}

void callers_of_one_call_are_told_apart() {
  StackTable table;
  bool predicted;
  for (int round = 0; round < 20; ++round)
    for (uint64_t caller : {0x1000, 0x2000}) {
      look_up(table, 1, frame_of(0x1000, 64), predicted);
      look_up(table, 2, frame_of(caller, 64), predicted);
      CHECK(round < 2 || predicted);
    }
}

void arguments_keep_all_their_bits() {
  uint64_t memory[64] = {};
  Lane lane;
  lane.next = memory;
  lane.limit = memory + 64;
  const uint64_t given[] = {1, ~0ull, 1ull << 63, 0};
  for (uint64_t last : {9, 0}) {
    uint64_t* at = lane.next;
    CallEvent event(&lane, kApiEnter, 3, last);
    for (uint64_t word : given) event.arguments.put(word);
    event.write(5, 77);
    bool brief = !last;
    uint64_t* first = at + (brief ? 3 : 4);
    CHECK(lane.next == first + 4);
    CHECK(words_of_event(at, 64) == size_t(lane.next - at));
    CHECK((at[0] & kTicksMask) == 5 && bool(at[0] & kBriefBit) == brief && (brief || at[3] == last));
    CHECK((at[1] & 0xffff) == 77 && (at[1] >> 17 & 31) == 4);
    for (int i = 0; i < 4; ++i) {
      CHECK(!(first[i] >> 63));
      CHECK((first[i] | (at[1] >> (22 + i) & 1) << 63) == given[i]);
    }
  }
  for (uint64_t last : {9, 0}) {
    uint64_t* at = lane.next;
    CallEvent event(&lane, kApiQuery, 3, last);
    event.arguments.put(1);
    event.write(5, 77);
    CHECK(words_of_event(at, 64) == (last ? 5 : 4) && lane.next == at + words_of_event(at, 64));
  }
  ArgumentWords all(memory + 32);
  for (uint32_t i = 0; i < kMaxCallWords; ++i) {
    CHECK(!all.full());
    all.put(i);
  }
  CHECK(all.full());
}

void a_name_is_known_by_its_place_and_age() {
  KnownNames names;
  char place[] = "void add_kernel(float*)", other[] = "void add_kernel(float*)";
  CHECK(!names.find(place, 1));
  names.remember(place, 1, 7);
  CHECK(names.find(place, 1) == 7);
  CHECK(!names.find(other, 1));  // the same text elsewhere: has the same id, but not by its place
  CHECK(!names.find(place, 2));  // another recording, or a module has gone since
  names.remember(place, 2, 8);
  CHECK(names.find(place, 2) == 8 && !names.find(place, 1));
}

int main() {
  every_lookup_finds_its_own();
  four_ways_on_are_remembered();
  callers_of_one_call_are_told_apart();
  arguments_keep_all_their_bits();
  a_name_is_known_by_its_place_and_age();
  puts("right");
}
