/* SPDX-License-Identifier: MIT
 * Kernels as the emulator knows them: registered at their first launch, counted at each run. */
#ifndef PLEMU_LAUNCH_H
#define PLEMU_LAUNCH_H

#include <string>

#include "block.h"

namespace plemu {

struct Kernel {
  std::string name;           /* softmax<256>; clang says only softmax */
  size_t dynamic_limit = 48 << 10;
  std::atomic<long> runs{0};  /* executed launches, replays included */
  std::atomic<bool> loaded{false};
};

Kernel *find_kernel(const void *function);

/* Runs all blocks of the launch on the given Block, in the calling host thread. */
void run_launch(const Launch &launch, Block &block);

}  // namespace plemu

#endif
