/* SPDX-License-Identifier: MIT
 * Stream capture and the graphs that it makes. A graph never changes once its capture has ended,
 * so executable graphs share it. */
#ifndef PLEMU_CAPTURE_H
#define PLEMU_CAPTURE_H

#include <pthread.h>

#include "stream.h"

namespace plemu {

struct Node {
  const char *what;
  Body body;
  std::vector<int> dependencies;  /* earlier nodes */
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<void *> memory;  /* of cudaMallocAsync in the capture; lives as long as the graph */
  ~Graph();
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  cudaStreamCaptureMode mode;
  Stream *origin;
  pthread_t thread;
  std::set<Stream *> joined;  /* the origin too */
  bool invalid = false;
};

}  // namespace plemu

#endif
