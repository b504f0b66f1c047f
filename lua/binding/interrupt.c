/* SPDX-License-Identifier: MIT
** interrupt.c -- Ctrl-C for programs that ask for it: library.handle_interrupts(true) installs the handler, (false) puts the former back. The
** library never asks by itself; the command does while the REPL runs what was typed.
**
** The handler sets the flag that kernels poll (interrupt.h) and a hook that raises "interrupted" in the next line of the user's Lua code.
** It never raises in the library's own files: what they restore after an error is restored. Compiled code calls no hooks, so whoever wants to
** stop it does not compile it.
*/
#include "binding.h"

static struct {
  lua_State *L;            /* NULL: not installed */
  struct sigaction before; /* the handler that was there */
} interrupt;

static const char *const raiser = "perilune.interrupted";

/* interrupted(source): raises if the source is not one of the library's. A C function with the module's upvalues. */
static int interrupted(lua_State *L) {
  if (pll_is_own(pll_state(L), lua_tostring(L, 1))) return 0;
  lua_sethook(L, NULL, 0, 0);
  return pll_raise(L, pln_fail(PLN_EINTERRUPT, "interrupted"));
}

static void hook(lua_State *L, lua_Debug *ar) {
  lua_getinfo(L, "S", ar);
  if (*ar->what == 'C') return;
  lua_getfield(L, LUA_REGISTRYINDEX, raiser);
  lua_pushstring(L, ar->source);
  lua_call(L, 1, 0);
}

/* Only what is safe in a handler: a flag, and the hook's switch, which Lua's own interpreter sets the same way. */
static void handle(int sig) {
  (void)sig;
  pln_interrupted = 1;
  if (interrupt.L) lua_sethook(interrupt.L, hook, LUA_MASKCOUNT, 1);
}

/* handle_interrupts(on); the state that installed the handler is the one that is interrupted. */
static int handle_interrupts(lua_State *L) {
  bool on = lua_toboolean(L, 1);
  if (on && !interrupt.L) {
    struct sigaction action = {.sa_handler = handle}; /* no SA_RESTART: a read that waits for the keyboard ends, too */
    sigemptyset(&action.sa_mask);
    interrupt.L = L;
    sigaction(SIGINT, &action, &interrupt.before);
  } else if (!on && interrupt.L) {
    sigaction(SIGINT, &interrupt.before, NULL);
    interrupt.L = NULL;
  }
  return 0;
}

/* interrupt(on) -> whether the flag was set before; off drops a hook that waits for its line, too. */
static int set_interrupt(lua_State *L) {
  lua_pushboolean(L, pln_interrupted);
  pln_interrupted = lua_toboolean(L, 1);
  if (!pln_interrupted && interrupt.L) lua_sethook(L, NULL, 0, 0);
  return 1;
}

static const luaL_Reg functions[] = {
  {"handle_interrupts", handle_interrupts}, {"interrupt", set_interrupt}, {raiser, interrupted}, {NULL, NULL},
};

void pll_interrupt_open(lua_State *L) {
  pll_register(L, functions);
  lua_getfield(L, -1, raiser);
  lua_setfield(L, LUA_REGISTRYINDEX, raiser);
  lua_pushnil(L);
  lua_setfield(L, -2, raiser);
}
