-- SPDX-License-Identifier: MIT
-- The REPL on a pseudo-terminal: banner, editing, history, completion, Ctrl-C, times.

local Terminal = require "spec.support.terminal"
local clock = require "perilune.clock"

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

describe("the REPL on a terminal", function()
  local state, terminal

  --- A REPL that is at its first prompt.
  local function open(arguments, environment, columns, unset)
    terminal = Terminal.open(("exec env -u PERILUNE_ENGINE -u COLUMNS -u NO_COLOR -u INPUTRC %s XDG_STATE_HOME=%s TERM=xterm %s '%s' %s")
      :format(unset or "", state, environment or "", launcher, arguments or ""), columns)
    return terminal:expect "> "
  end

  --- Types a line and gives what is on the screen before the next prompt, the line itself included.
  local function enter(line, seconds)
    terminal:type(line .. "\n")
    return terminal:expect("\n> ", seconds)
  end

  before_each(function()
    state = os.tmpname()
    os.remove(state)
    os.execute("mkdir " .. state)
  end)
  after_each(function()
    if terminal then terminal:close(0) end
    terminal = nil
    os.execute("rm -rf " .. state)
  end)

  it("begins with two lines: version and devices", function()
    local banner = open()
    assert.matches("^perilune %d+%.%d+%.%d+, LuaJIT 2%.1[^\n]*\ndevices: cpu[^\n]*\n> $", banner)
  end)

  it("ends with status 0 at Ctrl-D", function()
    open()
    enter "error 'whatever'"
    terminal:type "\4"
    assert.equal(0, terminal:close())
  end)

  it("prints results and the time of each command", function()
    open()
    assert.matches("^1 %+ 1\n2\n +%[%d+[%d.]* [um]?s%]\n> $", enter "1 + 1")
    assert.matches("^x = 1\n +%[%d+[%d.]* [um]?s%]\n> $", enter "x = 1")
    assert.matches("\27[36m2\27[0m", terminal.screen, 1, true)
  end)

  it("has no colour where NO_COLOR or a dumb terminal says so", function()
    open(nil, "NO_COLOR=1")
    enter "1 + 1"
    assert.is_nil(terminal.screen:find "\27%[3")
  end)

  it("lets a line be edited, and asks for more with another prompt", function()
    open()
    terminal:type "1 + 2\127" -- backspace
    assert.matches("\n4\n", enter "3")
    terminal:type "for i = 1, 2 do\n"
    terminal:expect "\n>> "
    assert.matches("1\n2\n", enter "print(i) end")
  end)

  it("takes pasted lines as one piece, and runs them once", function()
    open()
    terminal:type "\27[200~n = (n or 0) + 1\nprint('n', n)\nn + 10\27[201~"
    assert.matches("n\t1\n11\n +%[[^\n]*\n> $", enter "")
    assert.matches("\n1\n", enter "n")
  end)

  it("keeps its history in the state folder", function()
    open()
    enter "first = 11"
    enter "second = 22"
    terminal:type "\4"
    terminal:close()
    terminal = nil
    open()
    terminal:type "\27[A\27[A" -- twice up
    assert.matches("first = 11", enter "")
    assert.matches("\n11\n", enter "first")
  end)

  it("lives without a home for its history", function()
    open(nil, "XDG_STATE_HOME=", nil, "-u HOME")
    assert.matches("\n2\n", enter "1 + 1")
  end)

  it("completes at Tab", function()
    open()
    enter "x = eng:ones { 2, 3 }"
    terminal:type "x:matm\t"
    terminal:expect "x:matmul"
    terminal:type "\21" -- Ctrl-U
    terminal:type "eng.pers\t"
    terminal:expect "eng.persistent"
    terminal:type "\21perilune.nn.Embed\t"
    terminal:expect "perilune.nn.Embedding"
    terminal:type "\21io.open('/etc/host\t\t"
    terminal:expect "hostname"
  end)

  it("drops the line at Ctrl-C", function()
    open()
    terminal:type "this is no"
    terminal:pump(100)
    terminal:type "\3"
    terminal:expect "^C\n> "
    assert.matches("\n2\n", enter "1 + 1")
    terminal:type "for i = 1, 2 do\n"
    terminal:expect ">> "
    terminal:type "\3"
    terminal:expect "^C\n> "
    assert.matches("\n3\n", enter "3")
  end)

  --- What stands on the screen when `line` was interrupted after a while, and how long that took.
  local function interrupt(line)
    terminal:type(line .. "\n")
    terminal:expect "began"
    local stop = clock() + 0.4
    while clock() < stop do terminal:pump(50) end
    local start = clock()
    terminal:type "\3"
    return terminal:expect("\n> ", 20), clock() - start
  end

  it("stops a loop at Ctrl-C", function()
    open()
    local text, seconds = interrupt "print 'began' while true do end"
    assert.matches("interrupted", text)
    assert.is_true(seconds < 2, seconds)
    assert.matches("\n2\n", enter "1 + 1")
  end)

  it("stops a loop in a file at Ctrl-C", function()
    local path = state .. "/loop.lua"
    local file = io.open(path, "w")
    file:write "local n = 0\nprint 'began'\nwhile true do n = n + 1 end\n"
    file:close()
    open()
    assert.matches("loop.lua:3: interrupted", (interrupt(("dofile %q"):format(path))))
  end)

  it("stops a loop that catches errors, at most one Ctrl-C for each", function()
    open()
    enter "tries = 0"
    terminal:type "print 'began' repeat tries = tries + 1 local ok, message = pcall(function() while true do end end) print(message) until tries == 2\n"
    terminal:expect "\nbegan\n" -- what is printed, not what was typed
    for _ = 1, 2 do
      local stop = clock() + 0.4
      while clock() < stop do terminal:pump(50) end
      terminal:type "\3"
      terminal:expect "interrupted"
    end
    terminal:expect "\n> "
    assert.matches("\n2\n", enter "tries")
  end)

  it("stops a long op at Ctrl-C and leaves the engine usable", function()
    open()
    enter "a, x = eng:rand { 6000, 6000 }, eng:ones { 3 }"
    local text, seconds = interrupt "print 'began' b = a:matmul(a):matmul(a):matmul(a):matmul(a)"
    assert.matches("interrupted", text)
    assert.is_true(seconds < 3, seconds)
    assert.matches("\n3\n", enter "x:sum():item()")
    assert.matches("\n42\n", enter "eng:full({ 2, 3 }, 3):matmul(eng:full({ 3, 1 }, 7)):sum():item() / 3")
  end)

  it("stops what is queued at Ctrl-C", function()
    open(nil, "PERILUNE_ENGINE=stress PERILUNE_ARENA=1GiB")
    enter "a = eng:persistent({ 3000, 3000 }, 0.5)"
    local text, seconds = interrupt "print 'began' for i = 1, 1000 do b = a:matmul(a) eng:sync() eng:reset() end"
    assert.matches("interrupted", text)
    assert.is_true(seconds < 3, seconds)
    assert.matches("\n4\n", enter "eng:full({ 2, 2 }, 1):sum():item()")
  end)

  it("stops a long backward at Ctrl-C", function()
    open()
    enter "p = eng:param({ 300, 300 }, 0.001)"
    enter "y = p for i = 1, 2000 do y = y:matmul(p) end"
    local text = interrupt "print 'began' for i = 1, 1000 do y:sum():backward { retain = true } end"
    assert.matches("interrupted", text)
    assert.matches("\n9\n", enter "eng:ones { 9 }:sum():item()")
  end)

  it("stays after a script of -i", function()
    local path = state .. "/script.lua"
    local file = io.open(path, "w")
    file:write "answer = 42\n"
    file:close()
    open("-i " .. path)
    assert.matches("\n42\n", enter "answer")
  end)

  it("keeps to the width of the terminal", function()
    open(nil, nil, 40)
    for line in enter "eng:arange(0, 60):view { 2, 30 }":gmatch "[^\n]+" do assert.is_true(#line <= 40, line) end
  end)

  it("keeps to the width that the terminal gets", function()
    open(nil, nil, 60)
    for _, columns in ipairs { 40, 120, 50 } do
      terminal:resize(columns)
      local longest = 0
      for line in enter "eng:ones { 1, 900 }":gmatch "[^\n]+" do
        assert.is_true(#line <= columns, line)
        if line:match "^1  1" then longest = math.max(longest, #line) end
      end
      assert.is_true(longest > columns - 4, longest)
      enter "1" -- the editor has seen the size
    end
  end)

  it("reads plainly, and says so, where the line editor is missing", function()
    -- a module of this name is found first and knows no readline
    os.execute(("mkdir -p %s/lua/perilune/repl && echo 'return { open = function() return nil end }' >%s/lua/perilune/repl/editor.lua"):format(state, state))
    local script = io.open(state .. "/plain.lua", "w")
    script:write(("package.path = '%s/lua/?.lua;' .. package.path os.exit(require('perilune.repl').run())"):format(state))
    script:close()
    terminal = Terminal.open(("exec env -u PERILUNE_ENGINE TERM=xterm '%s' %s/plain.lua"):format(launcher, state))
    assert.matches("no line editing: [^\n]*libreadline", terminal:expect "> ")
    assert.matches("\n2\n", enter "1 + 1")
    terminal:type "\3"
    terminal:expect "\n> "
    assert.matches("\n3\n", enter "1 + 2")
  end)

  it("says how long a program ran and what ended it, and outlives a Ctrl-C that was for the program", function()
    open()
    assert.matches("\nhello\n +%[[%d.]+ ms%]\n> $", enter "$ echo hello")
    assert.matches("\nsignal 9\n +%[", enter "$ kill -9 $$")
    terminal:type "$ echo began; exec sleep 20\n"
    terminal:expect "\nbegan"
    terminal:pump(200)
    terminal:type "\3"
    assert.matches("signal 2\n", terminal:expect "\n> ")
    assert.matches("\n2\n", enter "1 + 1")
  end)

  it("writes no colour to a file of errors", function()
    open("2>" .. state .. "/errors")
    enter "error 'broken'"
    local file = io.open(state .. "/errors")
    assert.equal("broken\n", (file:read "*a"))
    file:close()
    assert.is_truthy((enter "5") and terminal.screen:find("\27[36m5", 1, true))
  end)

  it("ends the line of a bar whose loop was left early before it prints", function()
    open()
    assert.matches("\n  0 %% |[^\n]*left\n +%[[^\n]*\n> $", enter "for i in perilune.progress(9) do break end")
    assert.matches("\n  0 %% |[^\n]*left\nbroken\n> $", enter "for i in perilune.progress(9) do error 'broken' end")
  end)

  it("is at its prompt soon", function() -- within 50 ms on a machine that does nothing else
    local best = math.huge
    for _ = 1, 5 do
      local start = clock()
      open()
      best = math.min(best, clock() - start)
      terminal:close(0)
    end
    assert.is_true(best < 0.15, best)
  end)

  it("prints a tensor of 1e8 elements within 50 ms", function()
    open()
    enter "x = eng:zeros { 10000, 10000 }"
    local best = math.huge
    for _ = 1, 3 do
      local amount, unit = enter("x"):match "%[([%d.]+) ([um]?s)%]\n"
      best = math.min(best, tonumber(amount) * (unit == "us" and 1e-6 or unit == "ms" and 1e-3 or 1))
      local start = clock()
      enter "x"
      best = math.min(best, clock() - start)
    end
    assert.is_true(best < 0.05, best)
  end)
end)
