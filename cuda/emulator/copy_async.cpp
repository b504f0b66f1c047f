/* SPDX-License-Identifier: MIT
 * Asynchronous copies to shared memory (mma.h): what each CUDA thread has asked for and not yet
 * waited for. A copy that is never waited for never happens. */
#include <deque>

#include "../mma.h"
#include "block.h"

namespace plemu {

struct Copy {
  int group;
  void *shared;
  const void *global;
  unsigned bytes;
};

struct CopyQueue {
  std::deque<Copy> copies;
  int group = 0;        /* that is open */
  uint64_t serial = 0;  /* of the block whose copies these are */
};

/* Kept by the Block, one for each CUDA thread that copies. */
static CopyQueue &queue() {
  Block &b = *static_cast<Block *>(plemu_t.executing);
  CopyQueue *&q = b.copy_queue(plemu_t.linear);
  if (!q) q = new CopyQueue;
  if (q->serial != b.serial()) {
    q->copies.clear();
    q->group = 0;
    q->serial = b.serial();
  }
  return *q;
}

void delete_copy_queue(CopyQueue *q) { delete q; }

}  // namespace plemu

using namespace plemu;

extern "C" {

void plemu_copy_async(void *shared, const void *global, unsigned bytes) {
  Quiet quiet;
  CopyQueue &q = queue();
  q.copies.push_back({q.group, shared, global, bytes});
}

void plemu_copy_async_commit(void) {
  Quiet quiet;
  queue().group++;
}

int plemu_copy_async_take(int open, void **shared, const void **global, unsigned *bytes) {
  Quiet quiet;
  CopyQueue &q = queue();
  if (q.copies.empty() || q.copies.front().group >= q.group - open) return 0;
  *shared = q.copies.front().shared;
  *global = q.copies.front().global;
  *bytes = q.copies.front().bytes;
  q.copies.pop_front();
  return 1;
}

}  // extern "C"
