-- SPDX-License-Identifier: MIT
-- keyboard: waits for what is typed. Between hold() and release() Ctrl-C is let through only while ready() waits, so that none comes between looking
-- for it and waiting.

local ffi = require "ffi"

ffi.cdef [[
typedef struct { int fd; short events, revents; } pln_PollFd;
typedef struct { unsigned long bits[16]; } pln_SignalSet;
int ppoll(pln_PollFd *fds, unsigned long count, const void *timeout, const pln_SignalSet *mask);
int sigemptyset(pln_SignalSet *set);
int sigaddset(pln_SignalSet *set, int signal);
int sigprocmask(int how, const pln_SignalSet *set, pln_SignalSet *before);
]]

local POLLIN, SIGINT, SIG_BLOCK, SIG_SETMASK = 1, 2, 0, 2 -- of Linux

local poll = ffi.new("pln_PollFd[1]", { { fd = 0, events = POLLIN } })
local interrupts, before = ffi.new "pln_SignalSet[1]", ffi.new "pln_SignalSet[1]"
ffi.C.sigemptyset(interrupts)
ffi.C.sigaddset(interrupts, SIGINT)

local keyboard = {}

function keyboard.hold() ffi.C.sigprocmask(SIG_BLOCK, interrupts, before) end

function keyboard.release() ffi.C.sigprocmask(SIG_SETMASK, before, nil) end

--- Waits until standard input has something; false where a signal came first.
---@return boolean
function keyboard.ready() return ffi.C.ppoll(poll, 1, nil, before) > 0 end

return keyboard
