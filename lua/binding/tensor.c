/* SPDX-License-Identifier: MIT
** tensor.c -- fields of tensors, host access, indexing.
*/
#include "binding.h"

#include <stdio.h>
#include <string.h>

/* --- fields ------------------------------------------------------------------------------------- */

static void push_sizes(lua_State *L, int n, const int64_t *size) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushnumber(L, (lua_Number)size[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

static int tensor_shape(lua_State *L) {
  const pln_Tensor t = *pll_tensor(L, 1, "shape", "t"); /* a copy: tables are allocated */
  push_sizes(L, t.ndim, t.shape);
  return 1;
}

static int tensor_strides(lua_State *L) {
  const pln_Tensor t = *pll_tensor(L, 1, "strides", "t");
  push_sizes(L, t.ndim, t.stride);
  return 1;
}

static int tensor_dtype(lua_State *L) {
  lua_pushstring(L, pln_dtype_name(pll_tensor(L, 1, "dtype", "t")->dtype));
  return 1;
}

static int tensor_engine(lua_State *L) {
  pll_push_engine(L, pll_tensor(L, 1, "engine", "t")->engine);
  return 1;
}

static int tensor_home(lua_State *L) {
  static const char *const names[] = {"arena", "persistent", "owned"};
  lua_pushstring(L, names[pll_tensor(L, 1, "home", "t")->storage->home]);
  return 1;
}

static int tensor_numel(lua_State *L) {
  lua_pushnumber(L, (lua_Number)pll_tensor(L, 1, "numel", "t")->numel);
  return 1;
}

static int tensor_ndim(lua_State *L) {
  lua_pushnumber(L, pll_tensor(L, 1, "ndim", "t")->ndim);
  return 1;
}

static int tensor_len(lua_State *L) {
  pln_Tensor *t = pll_tensor(L, 1, "#", "t");
  if (t->ndim == 0) return pll_argument(L, "#", "a 0-dim tensor has no length");
  lua_pushnumber(L, (lua_Number)t->shape[0]);
  return 1;
}

static int tensor_is_contiguous(lua_State *L) {
  lua_pushboolean(L, pll_tensor(L, 1, "is_contiguous", "t")->contiguous);
  return 1;
}

static int tensor_same_storage(lua_State *L) {
  pln_Tensor *a = pll_tensor(L, 1, "same_storage", "t"), *b = pll_tensor(L, 2, "same_storage", "other");
  lua_pushboolean(L, a->storage == b->storage);
  return 1;
}

/* Number of writes to the storage so far (C1), and its address as a number: for specs and tools. */
static int tensor_version(lua_State *L) {
  lua_pushnumber(L, (lua_Number)pll_tensor(L, 1, "version", "t")->storage->version);
  return 1;
}

static int tensor_address(lua_State *L) {
  lua_pushnumber(L, (lua_Number)(uintptr_t)pll_tensor(L, 1, "address", "t")->data);
  return 1;
}

/* is_valid(t): alive in the sense of C2. */
static int tensor_is_valid(lua_State *L) {
  pll_Handle *h = pll_handle(L, 1);
  if (!h) (void)pll_tensor(L, 1, "is_valid", "t");
  lua_pushboolean(L, h->t && pll_alive(h));
  return 1;
}

static int tensor_is_tensor(lua_State *L) {
  lua_pushboolean(L, pll_handle(L, 1) != NULL);
  return 1;
}

/* The line that made it, or nil. */
static int tensor_place(lua_State *L) {
  pll_Handle *h = pll_handle(L, 1);
  char text[PLN_PLACE_TEXT];
  if (!h) (void)pll_tensor(L, 1, "place", "t");
  if (!h->place) return 0;
  lua_pushstring(L, pln_place_text(h->place, text));
  return 1;
}

/* --- elements ----------------------------------------------------------------------------------- */

/* A 1-based or negative index as 0-based. */
static int64_t index_value(lua_State *L, int i, const char *op, const pln_Tensor *t, int dim) {
  int64_t k = pll_integer(L, i, op, "index"), n = t->shape[dim];
  if (PLN_UNLIKELY(k == 0)) pll_argument(L, op, "index 0 in dimension %d: indices start at 1", dim + 1);
  if (PLN_UNLIKELY(k > n || k < -n))
    pll_argument(L, op, "index %lld in dimension %d is out of range, valid are 1 to %lld", (long long)k, dim + 1, (long long)n);
  return k > 0 ? k - 1 : k + n;
}

static int64_t element_offset(lua_State *L, const pln_Tensor *t, int first, int count, const char *op) {
  if (PLN_UNLIKELY(count != t->ndim)) pll_argument(L, op, "%d indices for a tensor with %d dimension%s", count, t->ndim, t->ndim == 1 ? "" : "s");
  int64_t offset = 0;
  for (int d = 0; d < count; d++) offset += index_value(L, first + d, op, t, d) * t->stride[d];
  return offset;
}

static int tensor_get(lua_State *L) {
  pln_Tensor *t = pll_tensor(L, 1, "get", "t");
  uint64_t value = 0;
  int n = lua_gettop(L);
  bool int64 = n > 1 && lua_istable(L, n);
  int64_t offset = element_offset(L, t, 2, n - 1 - int64, "get");
  pll_refuse_in_capture(L, t->engine, "get: reading a tensor");
  pll_check(L, pln_tensor_read_at(t, offset, &value));
  pll_push_value(L, (pln_DType)t->dtype, &value, int64);
  return 1;
}

static int tensor_set(lua_State *L) {
  pln_Tensor *t = pll_tensor(L, 1, "set", "t");
  uint64_t value = 0;
  int n = lua_gettop(L);
  if (n < 2) return pll_argument(L, "set", "a value is needed");
  int64_t offset = element_offset(L, t, 2, n - 2, "set");
  pll_write_value(L, n, (pln_DType)t->dtype, &value, "set");
  t = pll_tensor(L, 1, "set", "t"); /* int64 values are split by Lua code */
  if (t->requires_grad && t->engine->hooks & PLN_HOOK_TAPE)
    return pll_raise(L, pln_fail(PLN_EGRAD, "set: writing in place is not allowed on a tensor that requires grad (eng:no_grad(fn) allows it)"));
  pll_refuse_in_capture(L, t->engine, "set: writing values to a tensor");
  pll_check(L, pln_tensor_write_at(t, offset, &value));
  lua_settop(L, 1);
  return 1;
}

static bool wants_int64(lua_State *L, int i) {
  if (!lua_istable(L, i)) return false;
  lua_pushliteral(L, "int64");
  lua_rawget(L, i);
  bool b = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return b;
}

static int tensor_item(lua_State *L) {
  pln_Tensor *t = pll_tensor(L, 1, "item", "t");
  uint64_t value = 0;
  char shape[PLN_SHAPE_TEXT];
  if (t->numel != 1)
    return pll_argument(L, "item", "a tensor with one element was expected, got shape %s", pln_shape_text(t->ndim, t->shape, shape));
  bool int64 = wants_int64(L, 2);
  t = pll_tensor(L, 1, "item", "t");
  pll_refuse_in_capture(L, t->engine, "item: reading a tensor");
  pll_check(L, pln_tensor_read_at(t, 0, &value));
  pll_push_value(L, (pln_DType)t->dtype, &value, int64);
  return 1;
}

static const char *push_nested(lua_State *L, const pln_Tensor *t, int dim, const char *at, bool int64) {
  int item = pln_dtype_size((pln_DType)t->dtype);
  lua_createtable(L, (int)t->shape[dim], 0);
  for (int64_t k = 0; k < t->shape[dim]; k++) {
    if (dim + 1 == t->ndim) {
      pll_push_value(L, (pln_DType)t->dtype, at, int64);
      at += item;
    } else {
      at = push_nested(L, t, dim + 1, at, int64);
    }
    lua_rawseti(L, -2, (int)k + 1);
  }
  return at;
}

#define MAX_TABLES (INT64_C(1) << 27)

/* Reads the whole tensor at index 1 into a userdata on the stack; *t_p is a copy of its header. */
static char *read_all(lua_State *L, pln_Tensor *t_p, const char *op) {
  pln_Tensor *t = pll_tensor(L, 1, op, "t");
  char what[40], text[PLN_SHAPE_TEXT + 16];
  snprintf(what, sizeof what, "%s: reading a tensor", op);
  pll_refuse_in_capture(L, t->engine, what);
  int64_t tables = 1; /* rows without elements are tables, too */
  for (int d = 0; d < t->ndim && t->shape[d]; d++)
    if (__builtin_mul_overflow(tables, t->shape[d], &tables)) tables = INT64_MAX;
  if (t->numel > PLL_MAX_USERDATA / pln_dtype_size((pln_DType)t->dtype) || tables > MAX_TABLES)
    pll_argument(L, op, "a %s is too large to be one Lua value, read it in parts", pln_tensor_text(t, text));
  char *host = lua_newuserdata(L, (size_t)(t->numel ? t->numel : 1) * (size_t)pln_dtype_size((pln_DType)t->dtype));
  t = pll_tensor(L, 1, op, "t");
  *t_p = *t;
  pll_check(L, pln_tensor_read(t, host));
  return host;
}

static int tensor_totable(lua_State *L) {
  bool int64 = wants_int64(L, 2);
  pln_Tensor t;
  const char *host = read_all(L, &t, "totable");
  luaL_checkstack(L, PLN_MAX_DIMS + 4, "totable");
  if (t.ndim == 0)
    pll_push_value(L, (pln_DType)t.dtype, host, int64);
  else
    push_nested(L, &t, 0, host, int64);
  return 1;
}

/* flat(t): all elements row-major in one table. */
static int tensor_flat(lua_State *L) {
  bool int64 = wants_int64(L, 2);
  pln_Tensor t;
  const char *host = read_all(L, &t, "flat");
  int item = pln_dtype_size((pln_DType)t.dtype);
  lua_createtable(L, (int)(t.numel < 1 << 26 ? t.numel : 1 << 26), 0);
  for (int64_t k = 0; k < t.numel; k++) {
    pll_push_value(L, (pln_DType)t.dtype, host + k * item, int64);
    lua_rawseti(L, -2, (int)k + 1);
  }
  return 1;
}

/* bytes(t): the elements row-major as a string of the machine's byte order. */
static int tensor_bytes(lua_State *L) {
  pln_Tensor t;
  const char *host = read_all(L, &t, "bytes");
  lua_pushlstring(L, host, (size_t)t.numel * (size_t)pln_dtype_size((pln_DType)t.dtype));
  return 1;
}

/* set_bytes(t, string): the reverse of bytes. */
static int tensor_set_bytes(lua_State *L) {
  pln_Tensor *t = pll_tensor(L, 1, "set_bytes", "t");
  size_t n, want = (size_t)t->numel * (size_t)pln_dtype_size((pln_DType)t->dtype);
  char text[PLN_SHAPE_TEXT + 16];
  if (lua_type(L, 2) != LUA_TSTRING) return pll_argument(L, "set_bytes", "argument 'bytes': a string was expected, got %s", pll_describe(L, 2, text));
  const char *bytes = lua_tolstring(L, 2, &n);
  if (n != want) return pll_argument(L, "set_bytes", "%zu bytes were expected, got %zu", want, n);
  pll_refuse_in_capture(L, t->engine, "set_bytes: uploading values");
  pll_check(L, pln_tensor_write(t, bytes));
  lua_settop(L, 1);
  return 1;
}

/* --- indexing: views ---------------------------------------------------------------------------- */

typedef struct Indexing {
  pln_Shape shape;
  int64_t stride[PLN_MAX_DIMS];
  int64_t offset;
} Indexing;

/* {first, last, step}, inclusive; {} is everything. */
static void index_range(lua_State *L, int i, const pln_Tensor *t, int dim, Indexing *x) {
  int64_t n = t->shape[dim], first = 1, last = n, step = 1;
  size_t given = lua_objlen(L, i);
  int64_t *slot[3] = {&first, &last, &step};
  if (given > 3) pll_argument(L, "index", "a range is {first, last, step}");
  for (size_t k = 0; k < given; k++) {
    lua_rawgeti(L, i, (int)k + 1);
    *slot[k] = pll_integer(L, -1, "index", "range");
    lua_pop(L, 1);
  }
  if (given == 1) last = first;
  if (given && (first == 0 || (last == 0 && first != 1))) pll_argument(L, "index", "index 0 in dimension %d: indices start at 1", dim + 1);
  if (first < 0) first += n + 1;
  if (last < 0) last += n + 1;
  if (step < 1) pll_argument(L, "index", "the step of a range is at least 1, got %lld", (long long)step);
  bool empty = last == first - 1; /* {k, k - 1} is the empty range */
  if (!empty && (first < 1 || last > n || last < first))
    pll_argument(L, "index", "range {%lld, %lld} in dimension %d is out of range, valid are 1 to %lld", (long long)first,
                 (long long)last, dim + 1, (long long)n);
  if (empty && (first < 1 || first > n + 1))
    pll_argument(L, "index", "range {%lld, %lld} in dimension %d is out of range", (long long)first, (long long)last, dim + 1);
  int64_t size = empty ? 0 : (last - first) / step + 1;
  x->offset += (first - 1) * t->stride[dim];
  x->stride[x->shape.ndim] = size > 1 ? t->stride[dim] * step : t->stride[dim]; /* an unused step may be any number */
  x->shape.size[x->shape.ndim++] = size;
}

static void index_view(lua_State *L, const pln_Tensor *t, int i, Indexing *x) {
  char text[PLN_SHAPE_TEXT + 16];
  x->shape.ndim = 0;
  x->offset = 0;
  int dims = 1;
  bool table = lua_istable(L, i);
  if (table) dims = (int)lua_objlen(L, i);
  if (dims > t->ndim) pll_argument(L, "index", "%d indices for a tensor with %d dimension%s", dims, t->ndim, t->ndim == 1 ? "" : "s");
  for (int d = 0; d < dims; d++) {
    if (table)
      lua_rawgeti(L, i, d + 1);
    else
      lua_pushvalue(L, i);
    int at = lua_gettop(L);
    if (lua_istable(L, at))
      index_range(L, at, t, d, x);
    else if (lua_type(L, at) == LUA_TNUMBER)
      x->offset += index_value(L, at, "index", t, d) * t->stride[d];
    else
      pll_argument(L, "index", "an integer or a range was expected, got %s", pll_describe(L, at, text));
    lua_pop(L, 1);
  }
  for (int d = dims; d < t->ndim; d++) {
    x->stride[x->shape.ndim] = t->stride[d];
    x->shape.size[x->shape.ndim++] = t->shape[d];
  }
  int64_t numel = 1;
  for (int d = 0; d < x->shape.ndim; d++) numel *= x->shape.size[d];
  if (numel == 0) x->offset = 0;
}

/* x[k], x[{...}] where gradients are recorded: the same view by `slice`, whose lists index_view has checked. */
static int recorded_index(lua_State *L, pln_Tensor *t) {
  const pln_OpDef *op = &pln_ops[PLN_OP_slice];
  pln_Args a;
  pln_args_init(op, &a);
  a.in[0] = t;
  a.place = pll_place_if(L, t->engine);
  pln_Shape *list[3] = {&a.opt[0].list, &a.opt[1].list, &a.opt[2].list};
  bool table = lua_istable(L, 2);
  int dims = table ? (int)lua_objlen(L, 2) : 1;
  for (int k = 0; k < 3; k++) {
    a.opt[k].given = 1;
    list[k]->ndim = dims;
  }
  for (int d = 0; d < dims; d++) {
    if (table)
      lua_rawgeti(L, 2, d + 1);
    else
      lua_pushvalue(L, 2);
    int64_t range[3] = {1, t->shape[d], 1};
    if (lua_istable(L, -1)) {
      int given = (int)lua_objlen(L, -1);
      for (int k = 0; k < given; k++) {
        lua_rawgeti(L, -1, k + 1);
        range[k] = (int64_t)lua_tonumber(L, -1);
        lua_pop(L, 1);
      }
      if (given == 1) range[1] = range[0];
    } else {
      range[0] = range[1] = (int64_t)lua_tonumber(L, -1);
      range[2] = 0;
    }
    for (int k = 0; k < 3; k++) list[k]->size[d] = range[k];
    lua_pop(L, 1);
  }
  uint64_t ends = pll_ends(L);
  pll_anchor_operands(L, t->engine, &a);
  pll_Handle *h = pll_box(L);
  pll_unended(L, ends, "index");
  pll_check(L, pln_op_run(t->engine, op, &a));
  pll_fill(L, -1, h, a.out[0]);
  return 1;
}

/* x[k], x[{...}] */
static int tensor_index(lua_State *L) {
  lua_settop(L, 2);
  pll_Handle *h = pll_box(L);
  pln_Tensor *t = pll_tensor(L, 1, "index", "t");
  Indexing x;
  index_view(L, t, 2, &x);
  if (PLN_UNLIKELY(t->requires_grad) && t->engine->hooks & PLN_HOOK_TAPE) return recorded_index(L, t);
  pln_Tensor *v;
  pll_check(L, pln_tensor_view(t, &x.shape, x.stride, x.offset, &v));
  v->place = pll_place_if(L, t->engine);
  pll_fill(L, -1, h, v);
  return 1;
}

const luaL_Reg pll_tensor_functions[] = {
  {"shape", tensor_shape}, {"strides", tensor_strides}, {"dtype", tensor_dtype}, {"engine", tensor_engine}, {"home", tensor_home},
  {"numel", tensor_numel}, {"ndim", tensor_ndim}, {"len", tensor_len}, {"is_contiguous", tensor_is_contiguous},
  {"same_storage", tensor_same_storage}, {"version", tensor_version}, {"address", tensor_address}, {"is_valid", tensor_is_valid},
  {"is_tensor", tensor_is_tensor}, {"place", tensor_place}, {"get", tensor_get}, {"set", tensor_set}, {"item", tensor_item},
  {"totable", tensor_totable}, {"flat", tensor_flat}, {"bytes", tensor_bytes}, {"set_bytes", tensor_set_bytes},
  {"index", tensor_index}, {NULL, NULL},
};
