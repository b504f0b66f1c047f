/* SPDX-License-Identifier: MIT
** small.c -- which records have a shorter way (../small.h): by kernel, since ops share them.
*/
#include "../small.h"

#include "kernel.h"

void PLK(small_elementwise)(pln_Small *s);
void PLK(small_matmul)(pln_Small *s);
void PLK(small_gather)(pln_Small *s);
void PLK(small_softmax)(pln_Small *s);

#define UNARY(name, ...) pln_Status PLK(name)(const pln_Call *c); pln_Status PLK(name##_backward)(const pln_Call *c);
#define OPTIONS UNARY
#define BINARY UNARY
#define TEST(name, ...) pln_Status PLK(name)(const pln_Call *c);
#define COMPARE TEST
#include "../../ops/elementwise.def"
#define KERNEL(name) pln_Status PLK(name)(const pln_Call *c);
KERNEL(cast) KERNEL(where) KERNEL(masked_fill) KERNEL(fill) KERNEL(matmul) KERNEL(gather) KERNEL(softmax)
#undef KERNEL

static const struct {
  pln_KernelFn kernel;
  pln_SmallMaker make;
} ways[] = {
#define WALKS(name) {PLK(name), PLK(small_elementwise)},
#define UNARY(name, ...) WALKS(name) WALKS(name##_backward)
#define OPTIONS UNARY
#define BINARY UNARY
#define TEST(name, ...) WALKS(name)
#define COMPARE TEST
#include "../../ops/elementwise.def"
  WALKS(cast) WALKS(where) WALKS(masked_fill) WALKS(fill)
#undef WALKS
  {PLK(matmul), PLK(small_matmul)},
  {PLK(gather), PLK(small_gather)},
  {PLK(softmax), PLK(small_softmax)},
};

void PLK(small)(pln_Small *s) {
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
    if (ways[i].kernel == s->call->kernel) {
      ways[i].make(s);
      return;
    }
}
