/* SPDX-License-Identifier: MIT
** values.c -- numbers, lists and dtypes between Lua and C.
*/
#include "binding.h"

#include <math.h>
#include <string.h>

#define CDATA 10 /* LuaJIT's type number of FFI values */

/* LuaJIT's int64 as C value: split by a Lua function, since the C API knows no FFI. The helper is in the registry, put there by
** perilune/init.lua through the library function `int64_helpers`. */
static bool read_int64(lua_State *L, int i, int64_t *v_p) {
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.int64.split");
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return false;
  }
  lua_pushvalue(L, i);
  lua_call(L, 1, 2); /* high and low half, or nil */
  bool ok = lua_isnumber(L, -1);
  if (ok) *v_p = (int64_t)((uint64_t)(int64_t)lua_tonumber(L, -2) << 32 | (uint64_t)lua_tonumber(L, -1));
  lua_pop(L, 2);
  return ok;
}

static void push_int64(lua_State *L, int64_t v) {
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.int64.join");
  lua_pushnumber(L, (lua_Number)(v >> 32));
  lua_pushnumber(L, (lua_Number)(v & 0xffffffff));
  lua_call(L, 2, 1);
}

static int64_t integer_value(lua_State *L, int i, pln_DType dtype, const char *op) {
  int64_t lo = dtype == PLN_U8 ? 0 : dtype == PLN_I32 ? INT32_MIN : INT64_MIN;
  int64_t hi = dtype == PLN_U8 ? UINT8_MAX : dtype == PLN_I32 ? INT32_MAX : INT64_MAX;
  int64_t v = 0;
  char text[PLN_SHAPE_TEXT + 16];
  if (lua_type(L, i) == LUA_TNUMBER) {
    double x = lua_tonumber(L, i);
    if (floor(x) != x || x < -9223372036854775808.0 || x >= 9223372036854775808.0)
      pll_argument(L, op, "%.14g is not a value of %s", x, pln_dtype_name(dtype));
    v = (int64_t)x;
  } else if (lua_type(L, i) != CDATA || !read_int64(L, i, &v)) {
    pll_argument(L, op, "a number was expected as a value of %s, got %s", pln_dtype_name(dtype), pll_describe(L, i, text));
  }
  if (v < lo || v > hi) pll_argument(L, op, "%lld is out of the range of %s", (long long)v, pln_dtype_name(dtype));
  return v;
}

void pll_write_value(lua_State *L, int i, pln_DType dtype, void *to, const char *op) {
  char text[PLN_SHAPE_TEXT + 16];
  if (dtype == PLN_BOOL) {
    uint8_t b;
    if (lua_isboolean(L, i))
      b = (uint8_t)lua_toboolean(L, i);
    else if (lua_type(L, i) == LUA_TNUMBER)
      b = lua_tonumber(L, i) != 0;
    else
      b = (uint8_t)pll_argument(L, op, "a boolean was expected as a value of bool, got %s", pll_describe(L, i, text));
    memcpy(to, &b, 1);
    return;
  }
  if (pln_dtype_is_float(dtype)) {
    if (lua_type(L, i) != LUA_TNUMBER)
      pll_argument(L, op, "a number was expected as a value of %s, got %s", pln_dtype_name(dtype), pll_describe(L, i, text));
    double x = lua_tonumber(L, i);
    float f = (float)x;
    memcpy(to, dtype == PLN_F64 ? (void *)&x : (void *)&f, (size_t)pln_dtype_size(dtype));
    return;
  }
  int64_t v = integer_value(L, i, dtype, op);
  uint8_t u8 = (uint8_t)v;
  int32_t i32 = (int32_t)v;
  memcpy(to, dtype == PLN_U8 ? (void *)&u8 : dtype == PLN_I32 ? (void *)&i32 : (void *)&v, (size_t)pln_dtype_size(dtype));
}

void pll_push_value(lua_State *L, pln_DType dtype, const void *from, bool int64) {
  switch (dtype) {
    case PLN_BOOL: lua_pushboolean(L, *(const uint8_t *)from != 0); return;
    case PLN_U8: lua_pushnumber(L, *(const uint8_t *)from); return;
    case PLN_I32: {
      int32_t v;
      memcpy(&v, from, sizeof v);
      lua_pushnumber(L, v);
      return;
    }
    case PLN_I64: {
      int64_t v, limit = (int64_t)1 << 53;
      memcpy(&v, from, sizeof v);
      if (int64) {
        push_int64(L, v);
        return;
      }
      if (v > limit || v < -limit)
        pll_raise(L, pln_fail(PLN_EARG, "the i64 value %lld is beyond 2^53, which a Lua number cannot hold: read it with "
                              "{ int64 = true }", (long long)v));
      lua_pushnumber(L, (lua_Number)v);
      return;
    }
    case PLN_F32: {
      float v;
      memcpy(&v, from, sizeof v);
      lua_pushnumber(L, v);
      return;
    }
    default: {
      double v;
      memcpy(&v, from, sizeof v);
      lua_pushnumber(L, v);
    }
  }
}

int64_t pll_integer(lua_State *L, int i, const char *op, const char *arg) {
  char text[PLN_SHAPE_TEXT + 16];
  if (PLN_UNLIKELY(lua_type(L, i) != LUA_TNUMBER))
    pll_argument(L, op, "argument '%s': an integer was expected, got %s", arg, pll_describe(L, i, text));
  double x = lua_tonumber(L, i);
  if (PLN_UNLIKELY(!(fabs(x) <= 9007199254740992.0)) || PLN_UNLIKELY((double)(int64_t)x != x))
    pll_argument(L, op, "argument '%s': an integer was expected, got %.14g", arg, x);
  return (int64_t)x;
}

void pll_integers(lua_State *L, int i, const char *op, const char *arg, pln_Shape *list) {
  char text[PLN_SHAPE_TEXT + 16];
  if (lua_type(L, i) == LUA_TNUMBER) {
    list->ndim = 1;
    list->size[0] = pll_integer(L, i, op, arg);
    return;
  }
  if (!lua_istable(L, i))
    pll_argument(L, op, "argument '%s': a list of integers was expected, got %s", arg, pll_describe(L, i, text));
  size_t n = lua_objlen(L, i);
  if (n > PLN_MAX_DIMS) pll_argument(L, op, "argument '%s': at most %d numbers, got %d", arg, PLN_MAX_DIMS, (int)n);
  list->ndim = (int)n;
  for (size_t k = 0; k < n; k++) {
    lua_rawgeti(L, i, (int)k + 1);
    list->size[k] = pll_integer(L, -1, op, arg);
    lua_pop(L, 1);
  }
}

pln_DType pll_dtype(lua_State *L, int i, const char *op) {
  char text[PLN_SHAPE_TEXT + 16], names[100];
  int len = 0;
  pln_DType d = lua_type(L, i) == LUA_TSTRING ? pln_dtype_find(lua_tostring(L, i)) : PLN_NODTYPE;
  if (d != PLN_NODTYPE) return d;
  for (int k = 0; k < PLN_NDTYPE; k++)
    pln_append(names, sizeof names, &len, k ? ", %s" : "%s", pln_dtype_name((pln_DType)k));
  pll_argument(L, op, "argument 'dtype': one of %s was expected, got %s", names, pll_describe(L, i, text));
  return PLN_F32;
}
