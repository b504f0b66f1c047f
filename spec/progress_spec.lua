-- SPDX-License-Identifier: MIT
-- Progress bars: the loop is the same with them, they are seen on a terminal only, and they end their line.

local perilune = require "perilune"
local progress = require "perilune.progress"
local Terminal = require "spec.support.terminal"
local engines = require "spec.support.engines"

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

--- Runs a script on a terminal; what the screen got, raw, and the exit status.
local function on_terminal(text)
  local path = os.tmpname()
  local f = assert(io.open(path, "w"))
  f:write('local perilune = require "perilune"\n', text, '\nprint "end of script"\n')
  f:close()
  local terminal = Terminal.open(("exec env -u COLUMNS TERM=xterm '%s' %s"):format(launcher, path))
  terminal:expect "end of script"
  local status = terminal:close()
  os.remove(path)
  return terminal.screen, status
end

describe("progress", function()
  after_each(engines.close)

  it("gives what it goes through gives", function()
    local function all(...)
      local list = {}
      for a, b in progress(...) do list[#list + 1] = { a, b } end
      return list
    end
    assert.same({ { 1 }, { 2 }, { 3 } }, all(3))
    assert.same({}, all(0))
    assert.same({ { "a" }, { "b" } }, all { "a", "b" })
    assert.same({ { 1, "a" }, { 2, "b" } }, all(ipairs { "a", "b" }))
    assert.same({ { "k", 7 } }, all(pairs { k = 7 }))
    assert.same({ { "x" }, { "y" } }, all(("x y"):gmatch "%a"))
    assert.same({ { 1 }, { 2 } }, all { 2, title = "two" })
    local eng = engines.open "cpu"
    local t = eng:arange(10)
    local loader = perilune.data.batches({ t, t }, { size = 4, shuffle = false })
    local sizes = {}
    for _ = 1, 2 do
      for x, y in progress(loader) do sizes[#sizes + 1] = { x.shape[1], y.shape[1] } end
    end
    assert.same({ { 4, 4 }, { 4, 4 }, { 2, 2 }, { 4, 4 }, { 4, 4 }, { 2, 2 } }, sizes)
  end)

  it("says how far, how fast and how long", function()
    assert.equal(" 25 % |======                  | 25/100  5/s  0:15 left", progress.line(nil, 25, 100, 5))
    assert.equal("t  100 % |========================| 3/3  1500/s  0:00", progress.line("t", 3, 3, 0.002))
    assert.equal("7  3.5/s  0:02", progress.line(nil, 7, nil, 2))
    assert.equal("  0 % |                        | 0/10  ?/s  ? left", progress.line(nil, 0, 10, 0))
    assert.equal("  1 % |                        | 1/100  7.2e+03 s each  198:00:00 left",
      progress.line(nil, 1, 100, 7200))
    assert.equal("100 % |========================| 0/0  ?/s  0:00", progress.line(nil, 0, 0, 0))
  end)

  it("is silent through a pipe", function()
    local pipe = io.popen(([['%s' -e 'for _ in require("perilune").progress(3) do io.write "x" end' 2>&1]]):format(launcher))
    assert.equal("xxx", (pipe:read "*a"))
    pipe:close()
  end)

  it("is drawn on a terminal over itself and ends its line", function()
    local screen, status = on_terminal [[
      local stop = perilune.clock() + 0.4
      for _ in perilune.progress { 40, title = "work" } do while perilune.clock() < stop - 0.3 do end stop = stop + 0.01 end]]
    assert.equal(0, status)
    assert.is_truthy(screen:find("\rwork    0 % |", 1, true), screen)
    assert.is_truthy(screen:find("work  100 % |========================| 40/40", 1, true), screen)
    assert.matches("40/40[^\n]*\27%[K\r?\nend of script", screen)
    assert.equal(1, select(2, screen:gsub("\n[^\n]*end of script", "")))
  end)

  it("leaves lines whole when the loop is left early", function()
    local screen = on_terminal [[
      for i in perilune.progress(5) do if i == 2 then break end end
      for _ in perilune.progress { 3, title = "next" } do end]]
    assert.matches("0/5[^\n]*\n\rnext", screen)
    assert.matches("0/5[^\n]*\nend of script", (on_terminal "for i in perilune.progress(5) do break end perilune.progress.finish() perilune.progress.finish()"))
  end)

  it("ends its line with the program, and before an error is told", function()
    for text, behind in pairs {
      ["for i in perilune.progress(5) do break end"] = "$",
      ["for i in perilune.progress(5) do error 'broken' end"] = "perilune: [^\n]*broken",
    } do
      local terminal = Terminal.open(([[exec env -u COLUMNS TERM=xterm '%s' -e "perilune = require 'perilune' %s"]]):format(launcher, text))
      terminal:close()
      assert.matches("0/5[^\n]*left\n" .. behind, terminal:plain())
    end
  end)

  it("refuses what cannot be gone through", function()
    local cases = {
      { "progress: a loader, a number, a list or an iterator was expected, got string", "x" },
      { "progress: a number of steps is whole and not negative, got -1", -1 },
      { "progress: a number of steps is whole and not negative, got 1.5", 1.5 },
      { "progress: there is no option 'totl'", { 3, totl = 1, title = "t" } },
      { "progress: what shall be gone through?", { title = "t" } },
      { "progress: total is a number of steps, got -1", { 3, total = -1 } },
    }
    for _, case in ipairs(cases) do
      local ok, message = pcall(function() for _ in progress(case[2]) do end end)
      assert.is_false(ok)
      assert.is_truthy(message:find(case[1], 1, true), message)
      assert.matches("progress_spec.lua:%d+: ", message)
    end
  end)
end)
