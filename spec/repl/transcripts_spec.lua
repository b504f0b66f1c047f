-- SPDX-License-Identifier: MIT
-- Sessions of the REPL, spec/repl/transcripts/*.txt, typed on a pseudo-terminal and fed through a pipe. Of a file: lines that begin with "# " say what
-- it shows, "# options: " how the command is called; "> " stands before what is typed, ">> " before what goes on with it; "! " before what
-- goes to standard error. All else is what comes back; on the terminal the time of each command does too, through the pipe nothing more.

local Terminal = require "spec.support.terminal"

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"
local FOLDER = "spec/repl/transcripts"
local WIDE = 400 -- columns of the pseudo-terminal: what is typed is echoed on one line; results keep to the COLUMNS of the environment
local ENVIRONMENT = "-u PERILUNE_ENGINE -u NO_COLOR -u INPUTRC COLUMNS=80 LINES=24 TERM=xterm"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

--- { options =, { typed = { lines }, { text =, is_error = }, ... }, ... }
local function parse(path)
  local session = { options = "" }
  for line in read(path):gmatch "([^\n]*)\n" do
    local typed, more, complaint = line:match "^> ?(.*)$", line:match "^>> ?(.*)$", line:match "^! ?(.*)$"
    local entry = session[#session]
    if line:match "^# " and not entry then
      session.options = line:match "^# options: (.*)$" or session.options
    elseif more then
      entry.typed[#entry.typed + 1] = more
    elseif typed then
      session[#session + 1] = { typed = { typed } }
    else
      entry[#entry + 1] = { text = complaint or line, is_error = complaint ~= nil }
    end
  end
  assert(#session > 0, path)
  return session
end

local function lines_of(text)
  local list = {}
  for line in text:gmatch "([^\n]*)\n" do list[#list + 1] = line end
  return list
end

local function through_pipe(session)
  local input, out, err, fails = {}, {}, {}, false
  for _, entry in ipairs(session) do
    for _, line in ipairs(entry.typed) do input[#input + 1] = line .. "\n" end
    for _, line in ipairs(entry) do
      local list = line.is_error and err or out
      list[#list + 1] = line.text
      fails = fails or line.is_error or line.text:match "^status %d+$" ~= nil
    end
  end
  local base = os.tmpname()
  local file = assert(io.open(base, "w"))
  file:write(table.concat(input))
  file:close()
  local status = os.execute(("env %s '%s' %s <%s >%s.out 2>%s.err"):format(ENVIRONMENT, launcher, session.options, base, base, base))
  local got, complaints = read(base .. ".out"), read(base .. ".err")
  os.execute(("rm -f %s %s.out %s.err"):format(base, base, base))
  assert.equal(table.concat(out, "\n"), table.concat(lines_of(got), "\n"))
  assert.equal(table.concat(err, "\n"), table.concat(lines_of(complaints), "\n"))
  assert.equal(fails and 256 or 0, status)
end

local function on_terminal(session)
  local state = os.tmpname()
  os.remove(state)
  local terminal = Terminal.open(("exec env %s XDG_STATE_HOME=%s '%s' %s"):format(ENVIRONMENT, state, launcher, session.options), WIDE)
  terminal:expect "> "
  for _, entry in ipairs(session) do
    local want, got, seen = {}, {}, ""
    for i, line in ipairs(entry.typed) do
      want[i] = (i > 1 and ">> " or "") .. line
      terminal:type(line .. "\n")
      seen = seen .. terminal:expect(i < #entry.typed and "\n>> " or "\n> ", 20)
    end
    for _, line in ipairs(entry) do want[#want + 1] = line.text end
    for _, line in ipairs(lines_of(seen)) do
      if not line:match "^ +%[[%d.]+ [um]?s%]$" then got[#got + 1] = line end
    end
    assert.equal(table.concat(want, "\n"), table.concat(got, "\n"))
  end
  terminal:type "\4"
  assert.equal(0, terminal:close())
  os.execute("rm -rf " .. state)
end

local listing = io.popen("ls " .. FOLDER)
local names = lines_of(listing:read "*a")
listing:close()
assert(#names > 0, "no transcripts in " .. FOLDER)

for _, name in ipairs(names) do
  describe("the session " .. name, function()
    local session = parse(FOLDER .. "/" .. name)
    it("through a pipe", function() through_pipe(session) end)
    it("on a terminal", function() on_terminal(session) end)
  end)
end
