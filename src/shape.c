/* SPDX-License-Identifier: MIT
** shape.c -- arithmetic of shapes and strides.
*/
#include "shape.h"

#include <string.h>

#define LIMIT ((int64_t)1 << 62)

pln_Status pln_shape_numel(const pln_Shape *s, int item_size, int64_t *numel_p) {
  int64_t n = 1, bytes = item_size;
  bool empty = false;
  char text[PLN_SHAPE_TEXT];
  for (int i = 0; i < s->ndim; i++) {
    if (s->size[i] < 0)
      return pln_fail(PLN_ESHAPE, "size %d of shape %s is negative", i + 1, pln_shape_text(s->ndim, s->size, text));
    if (s->size[i] == 0) empty = true;
  }
  for (int i = 0; i < s->ndim; i++) {
    /* the sizes beside a 0 must fit too: strides are made of them; no division here, every result's shape is checked */
    int64_t size = s->size[i] ? s->size[i] : 1;
    if (PLN_UNLIKELY(__builtin_mul_overflow(bytes, size, &bytes) || bytes > LIMIT))
      return pln_fail(PLN_ESHAPE, "shape %s has too many elements (more than 2^62 bytes of %d each)",
                      pln_shape_text(s->ndim, s->size, text), item_size);
    n *= size;
  }
  *numel_p = empty ? 0 : n;
  return PLN_OK;
}

bool pln_shape_equal(const pln_Shape *a, const pln_Shape *b) {
  return a->ndim == b->ndim && memcmp(a->size, b->size, (size_t)a->ndim * sizeof a->size[0]) == 0;
}

void pln_shape_strides(int ndim, const int64_t *size, int64_t *stride) {
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    stride[i] = step;
    step *= size[i] ? size[i] : 1;
  }
}

bool pln_shape_is_contiguous(int ndim, const int64_t *size, const int64_t *stride) {
  int64_t step = 1;
  bool contiguous = true;
  for (int i = ndim - 1; i >= 0; i--) {
    if (size[i] == 0) return true;
    if (size[i] != 1 && stride[i] != step) contiguous = false;
    step *= size[i];
  }
  return contiguous;
}

bool pln_shape_broadcast(const pln_Shape *a, const pln_Shape *b, pln_Shape *out_p) {
  int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
  out_p->ndim = ndim;
  for (int i = 1; i <= ndim; i++) {
    int64_t sa = i <= a->ndim ? a->size[a->ndim - i] : 1;
    int64_t sb = i <= b->ndim ? b->size[b->ndim - i] : 1;
    if (sa != sb && sa != 1 && sb != 1) return false;
    out_p->size[ndim - i] = sa == 1 ? sb : sa;
  }
  return true;
}

bool pln_shape_expand(int ndim, const int64_t *size, const int64_t *stride, const pln_Shape *shape, int64_t *out_p) {
  if (ndim > shape->ndim) return false;
  int lead = shape->ndim - ndim;
  for (int i = 0; i < lead; i++) out_p[i] = 0;
  for (int i = 0; i < ndim; i++) {
    if (size[i] == shape->size[lead + i])
      out_p[lead + i] = stride[i];
    else if (size[i] == 1)
      out_p[lead + i] = 0;
    else
      return false;
  }
  return true;
}

void pln_shape_extent(int ndim, const int64_t *size, const int64_t *stride, int64_t *lo_p, int64_t *hi_p) {
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < ndim; i++) {
    if (size[i] == 0) {
      lo = hi = 0;
      break;
    }
    int64_t reach = (size[i] - 1) * stride[i];
    if (reach < 0)
      lo += reach;
    else
      hi += reach;
  }
  *lo_p = lo;
  *hi_p = hi;
}

bool pln_shape_self_overlaps(int ndim, const int64_t *size, const int64_t *stride) {
  /* Sorted by stride, each dimension must step over all that the smaller ones reach. Strict: refuses some exotic
  ** views (made with as-strided tricks that the API does not offer) that would be sound. */
  int64_t st[PLN_MAX_DIMS], sz[PLN_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < ndim; i++) {
    if (size[i] == 0) return false;
    if (size[i] == 1) continue;
    int64_t s = stride[i] < 0 ? -stride[i] : stride[i];
    int k = n++;
    for (; k > 0 && st[k - 1] > s; k--) {
      st[k] = st[k - 1];
      sz[k] = sz[k - 1];
    }
    st[k] = s;
    sz[k] = size[i];
  }
  int64_t reach = 0;
  for (int i = 0; i < n; i++) {
    if (st[i] <= reach) return true;
    reach += (sz[i] - 1) * st[i];
  }
  return false;
}

int pln_shape_collapse(int ndim, int64_t *size, int n, int64_t *const *strides) {
  int last = -1; /* the dimension being built */
  for (int i = 0; i < ndim; i++) {
    if (size[i] == 1) continue;
    bool merges = last >= 0;
    for (int k = 0; merges && k < n; k++) merges = strides[k][last] == size[i] * strides[k][i];
    if (merges) {
      size[last] *= size[i];
    } else {
      last++;
      size[last] = size[i];
    }
    for (int k = 0; k < n; k++) strides[k][last] = strides[k][i];
  }
  return last + 1;
}

bool pln_shape_view(int ndim, const int64_t *size, const int64_t *stride, const pln_Shape *shape, int64_t *out_p) {
  /* Runs of old dimensions that are contiguous among themselves must be tiled by runs of new ones. */
  int64_t osz[PLN_MAX_DIMS], ost[PLN_MAX_DIMS];
  int64_t total = 1;
  for (int i = 0; i < ndim; i++) {
    osz[i] = size[i];
    ost[i] = stride[i];
    total *= size[i];
  }
  if (total == 0) {
    pln_shape_strides(shape->ndim, shape->size, out_p);
    return true;
  }
  int64_t *sets[1] = {ost};
  int n = pln_shape_collapse(ndim, osz, 1, sets);
  int j = shape->ndim - 1;
  for (int i = n - 1; i >= 0; i--) {
    int64_t left = osz[i], step = ost[i];
    while (left > 1) {
      while (j >= 0 && shape->size[j] == 1) out_p[j--] = step;
      if (j < 0 || left % shape->size[j] != 0) return false;
      out_p[j] = step;
      step *= shape->size[j];
      left /= shape->size[j];
      j--;
    }
  }
  int64_t step = n > 0 ? ost[0] * osz[0] : 1;
  for (; j >= 0; j--) {
    if (shape->size[j] != 1) return false;
    out_p[j] = step;
  }
  return true;
}

char *pln_shape_text(int ndim, const int64_t *size, char *buf) {
  int len = 0;
  buf[0] = 0;
  pln_append(buf, PLN_SHAPE_TEXT, &len, "(");
  for (int i = 0; i < ndim; i++)
    pln_append(buf, PLN_SHAPE_TEXT, &len, i ? ", %lld" : "%lld", (long long)size[i]);
  pln_append(buf, PLN_SHAPE_TEXT, &len, ")");
  return buf;
}
