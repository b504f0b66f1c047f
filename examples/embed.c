/* SPDX-License-Identifier: MIT
** A host program that has Perilune inside its own Lua state: it hands a script its measurements, a function of its own to report to, and takes
** back numbers. Whatever goes wrong in the script comes back as a message; the library sets no globals and no signal handlers and never exits.
**
**   cc -o embed examples/embed.c $(pkg-config --cflags --libs luajit) -Wl,-E
**   ./embed SCRIPT.lua          (without a script: fits a line; LUA_PATH and LUA_CPATH say where perilune lies)
**
** -Wl,-E makes LuaJIT's functions visible to the module where LuaJIT is linked in statically. */
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* The script gets xs, ys and report(step, loss) as arguments and returns slope and intercept. */
static const char fit[] =
    "local xs, ys, report = ...\n"
    "local perilune = require 'perilune'\n"
    "local eng = perilune.engine { 'cpu', arena = '1MiB' }\n"
    "local x, y = eng:persistent({ #xs, 1 }, xs), eng:persistent({ #ys, 1 }, ys)\n"
    "local line = perilune.nn.Linear(eng, 1, 1)\n"
    "local opt = perilune.optim.SGD(line, { lr = 0.1, momentum = 0.9 })\n"
    "for step = 1, 200 do\n"
    "  local loss = perilune.nn.loss.mse(line(x), y)\n"
    "  opt:zero_grad()\n"
    "  loss:backward()\n"
    "  opt:step()\n"
    "  if step % 50 == 0 then report(step, loss:item()) end\n"
    "  eng:reset()\n"
    "end\n"
    "local slope, intercept = line.weight:item(), line.bias:item()\n"
    "eng:close()\n"
    "return slope, intercept\n";

/* report(step, loss): what the script tells the host while it runs. */
static int report(lua_State *L) {
  printf("  step %3d, loss %.6f\n", (int)luaL_checkinteger(L, 1), luaL_checknumber(L, 2));
  return 0;
}

static int traceback(lua_State *L) {
  lua_getfield(L, LUA_GLOBALSINDEX, "debug");
  lua_getfield(L, -1, "traceback");
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

static void push_numbers(lua_State *L, const double *values, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushnumber(L, values[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Loads the script and calls it; 0 and its two numbers, or 1 and the message on stderr. The stack is as it was. */
static int run(lua_State *L, const char *path, double result[2]) {
  static const double xs[] = {-1, -0.5, 0, 0.5, 1}, ys[] = {-2.5, -1, 0.5, 2, 3.5};
  int top = lua_gettop(L), status;
  lua_pushcfunction(L, traceback);
  status = path ? luaL_loadfile(L, path) : luaL_loadbuffer(L, fit, strlen(fit), "=fit");
  if (status == 0) {
    push_numbers(L, xs, 5);
    push_numbers(L, ys, 5);
    lua_pushcfunction(L, report);
    status = lua_pcall(L, 3, 2, top + 1);
  }
  if (status == 0 && lua_isnumber(L, -2) && lua_isnumber(L, -1)) {
    result[0] = lua_tonumber(L, -2);
    result[1] = lua_tonumber(L, -1);
  } else if (status == 0) {
    fprintf(stderr, "embed: the script must return two numbers\n");
    status = 1;
  } else {
    fprintf(stderr, "embed: %s\n", lua_tostring(L, -1));
  }
  lua_settop(L, top);
  return status != 0;
}

int main(int argc, char **argv) {
  double line[2];
  lua_State *L = luaL_newstate();
  if (!L) return 1;
  luaL_openlibs(L);
  int status = run(L, argc > 1 ? argv[1] : NULL, line);
  if (status == 0) printf("y = %.3f x + %.3f\n", line[0], line[1]);
  lua_close(L); /* engines and tensors that are left end here */
  return status;
}
