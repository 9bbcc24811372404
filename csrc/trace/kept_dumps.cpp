#include "kept_dumps.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "../line.h"
#include "dump_name.h"

namespace tracer::trace {
namespace {

struct Kept {
  unsigned number;
  dev_t device;
  ino_t inode;
  off_t bytes;
  timespec written;
};

Kept kept[kMostKept + 1];  // oldest first
unsigned count = 0;
unsigned most = 0;
unsigned last = 0;
bool said_removed = false;
bool said_not_removed = false;
char path[PATH_MAX];
Line line;

Kept describe(unsigned number, const struct stat& status) { return {number, status.st_dev, status.st_ino, status.st_size, status.st_mtim}; }

// Also whether `path` is its name.
bool is_there(const char* source, const Kept& dump) {
  struct stat status;
  if (!name_dump(path, source, dump.number) || lstat(path, &status) != 0) return false;
  Kept now = describe(dump.number, status);
  return now.device == dump.device && now.inode == dump.inode && now.bytes == dump.bytes && now.written.tv_sec == dump.written.tv_sec &&
         now.written.tv_nsec == dump.written.tv_nsec;
}

void drop(unsigned place) {
  --count;
  memmove(kept + place, kept + place + 1, sizeof *kept * (count - place));
}

// The first time only: a watchdog may ask for a dump each minute.
void say_removed(bool removed) {
  bool& said = removed ? said_removed : said_not_removed;
  if (said) return;
  said = true;
  line.put(removed ? "tracer: removed " : "tracer: could not remove ").put(path).put(": a process keeps ");
  line.put(most == 1 ? "its newest dump" : "its first dump and the ").put(most == 1 ? "" : most == 2 ? "newest" : "newest ");
  if (most > 2) line.put(most - 1);
  line.put(" (--max-dumps ").put(most).put("). ");
  line.put(removed ? "It removes older dumps without a message from now on" : "It says this once").say();
}

}  // namespace

void keep_dumps(unsigned limit) { most = limit < kMostKept ? limit : kMostKept; }

void forget_kept_dumps() {
  count = last = 0;
  said_removed = said_not_removed = false;
}

unsigned last_kept_dump() { return last; }

void dump_was_made(const char* source, unsigned number) {
  last = number;
  struct stat status;
  if (!most || !name_dump(path, source, number) || lstat(path, &status) != 0) return;
  for (unsigned place = 0; place < count;) {
    if (is_there(source, kept[place]))
      ++place;
    else
      drop(place);
  }
  kept[count++] = describe(number, status);
  while (count > most) {
    unsigned oldest = most > 1 ? 1 : 0;
    if (is_there(source, kept[oldest])) say_removed(unlink(path) == 0);
    drop(oldest);
  }
}

}  // namespace tracer::trace
