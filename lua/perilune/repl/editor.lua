-- SPDX-License-Identifier: MIT
-- editor: a line from the keyboard with editing, history and completion, by GNU readline (libreadline.so.8), which is loaded here and
-- nowhere else.
--
-- Readline's callback interface is used: this file waits for the keyboard itself, so that Ctrl-C drops the line at once and the signal's handler stays
-- the REPL's. Calls into readline may call back, so nothing here is compiled.

local ffi = require "ffi"
local core = require "perilune.core"
local keyboard = require "perilune.repl.keyboard"

ffi.cdef [[
typedef char *pln_Generator(const char *text, int state);
typedef char **pln_Completion(const char *text, int first, int last);
typedef void pln_LineHandler(char *line);
void rl_callback_handler_install(const char *prompt, pln_LineHandler *handler);
void rl_callback_read_char(void);
void rl_callback_handler_remove(void);
char **rl_completion_matches(const char *text, pln_Generator *generator);
void using_history(void);
void add_history(const char *line);
void stifle_history(int most);
int read_history(const char *path);
int append_history(int lines, const char *path);
int history_truncate_file(const char *path, int lines);
const char *rl_readline_name;
const char *rl_basic_word_break_characters;
char *rl_line_buffer;
int rl_catch_signals;
int rl_completion_append_character;
int rl_attempted_completion_over;
int rl_persistent_signal_handlers;
int rl_change_environment;
int history_write_timestamps;
char history_comment_char;
pln_Completion *rl_attempted_completion_function;
char *strdup(const char *text);
void free(void *pointer);
]]

local HISTORY_LINES = 10000

local editor = {}
editor.__index = editor

--- Candidates for readline: those that begin with `text`, one a call, nil after the last.
local function generator(candidates)
  local at = 0
  return ffi.cast("pln_Generator *", function()
    at = at + 1
    return candidates[at] and ffi.C.strdup(candidates[at]) or nil
  end)
end

function editor:set_completion(complete)
  local rl = self.rl
  self.complete = ffi.cast("pln_Completion *", function(_, first, last)
    rl.rl_attempted_completion_over = 1 -- no file names but ours
    local ok, matches = pcall(function()
      local line = ffi.string(rl.rl_line_buffer)
      local candidates, append = complete(line:sub(1, last), first)
      rl.rl_completion_append_character = append and append:byte() or 0
      if #candidates == 0 then return nil end
      local next_candidate = generator(candidates)
      local matches = rl.rl_completion_matches("", next_candidate)
      next_candidate:free()
      return matches
    end)
    return ok and matches or nil
  end)
  rl.rl_attempted_completion_function = self.complete
end

--- Nothing where no library for it is there. complete(line, first) -> candidates for the text from byte `first` (from 0) to the line's end, and the
--- character that follows a single one.
---@param complete fun(line: string, first: integer): string[], string?
---@param history? string  path of the file that keeps lines
function editor.open(complete, history)
  local ok, rl = pcall(ffi.load, "libreadline.so.8")
  if not ok then return nil end
  local self = setmetatable({ rl = rl, history = history }, editor)
  self.program = ffi.new("char[9]", "perilune") -- readline keeps these pointers
  rl.rl_readline_name = self.program
  rl.rl_catch_signals = 0 -- but those that say that the window has another size
  rl.rl_persistent_signal_handlers = 1
  rl.rl_change_environment = 0 -- a COLUMNS of its own would hide the terminal's size from all that prints
  rl.history_write_timestamps, rl.history_comment_char = 1, ("#"):byte() -- so entries of several lines stay one
  self.breaks = ffi.new("char[?]", 64, " \t\n\"'`@$><=;|&{([,+-*/%^#~?.:)]}")
  rl.rl_basic_word_break_characters = self.breaks
  self:set_completion(complete)
  rl.using_history()
  rl.stifle_history(HISTORY_LINES)
  if history then
    rl.read_history(history)
    rl.history_truncate_file(history, HISTORY_LINES)
    local file = io.open(history, "a") -- append_history wants one
    if file then file:close() else self.history = nil end
  end
  self.on_line = ffi.cast("pln_LineHandler *", function(line)
    self.done = true
    self.rl.rl_callback_handler_remove() -- here, so that the terminal is restored before the line runs
    if line ~= nil then
      self.line = ffi.string(line)
      ffi.C.free(line)
    end
  end)
  return self
end

function editor:wait()
  while not self.done do
    if keyboard.ready() then
      self.rl.rl_callback_read_char()
    elseif core.library.interrupt(false) then
      self.rl.rl_callback_handler_remove()
      io.stdout:write "^C\n"
      return false
    end
  end
  return self.line
end

--- The line; nil at the end of input; false where Ctrl-C dropped it.
---@param prompt string
---@return string|false|nil
function editor:read(prompt)
  self.done, self.line = false, nil
  keyboard.hold()
  self.rl.rl_callback_handler_install(prompt, self.on_line)
  local ok, line = pcall(self.wait, self)
  keyboard.release()
  if not ok then error(line, 0) end
  return line
end

--- Keeps what was typed, at once in the file too; several lines are one entry.
---@param text string
function editor:remember(text)
  if not text:match "%S" or text == self.last then return end
  self.last = text
  self.rl.add_history(text)
  if self.history then self.rl.append_history(1, self.history) end
end

jit.off(true, true)

return editor
