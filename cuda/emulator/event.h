/* SPDX-License-Identifier: MIT
 * An event: the operation that recorded it, or the nodes of the capture that did. */
#ifndef PLEMU_EVENT_H
#define PLEMU_EVENT_H

#include "stream.h"

namespace plemu {

struct Event {
  unsigned flags = 0;
  OperationPtr last;
  std::shared_ptr<long long> time;   /* nanoseconds, once the record has run */
  std::weak_ptr<Capture> capture;    /* recorded in a capture: its nodes */
  std::vector<int> nodes;
};

/* Null for a handle that is none. The lock is held. */
Event *find_event(cudaEvent_t handle);

}  // namespace plemu

#endif
