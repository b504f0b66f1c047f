-- SPDX-License-Identifier: MIT
-- The command through a pipe: its status, and what its options do. What sessions print is in transcripts_spec.lua.

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

--- Output, errors and status of the command fed with text.
local function repl(input, options)
  local base = os.tmpname()
  write(base, input)
  local status = os.execute(("env -u PERILUNE_ENGINE COLUMNS=80 '%s' %s <%s >%s.out 2>%s.err"):format(launcher, options or "", base, base, base))
  local out, err = read(base .. ".out"), read(base .. ".err")
  os.execute(("rm -f %s %s.out %s.err"):format(base, base, base))
  return out, err, status >= 256 and status / 256 or status
end

describe("the REPL through a pipe", function()
  it("ends with what an unfinished piece lacks at the end of input", function()
    local _, err, status = repl "for i = 1, 3 do\n"
    assert.equal("'end' expected near '<eof>'\n", err)
    assert.equal(1, status)
  end)
end)

describe("strict globals", function()
  it("let the whole library load and work", function()
    local script = os.tmpname() .. ".lua"
    write(script, [[
      local perilune = require "perilune"
      local eng = perilune.engine "stress"
      for _, name in ipairs { "nn", "optim", "data", "parity", "gradcheck", "oracle", "composites", "redproof" } do require("perilune." .. name) end
      local model = perilune.nn.Linear(eng, 3, 2)
      local opt = perilune.optim.AdamW(model, { lr = 0.1 })
      perilune.nn.loss.mse(model(eng:ones { 4, 3 }), eng:zeros { 4, 2 }):backward()
      opt:step()
      print "fine"]])
    local pipe = io.popen(("'%s' -g %s 2>&1"):format(launcher, script))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(script)
    assert.equal("fine\n", output)
  end)
end)

describe("-i", function()
  it("stays after a script, with its globals and arguments", function()
    local script = os.tmpname() .. ".lua"
    write(script, "y = 5 print('script', ...)")
    local out, err, status = repl("y + 1\narg[1]\n", "-i " .. script .. " one")
    assert.equal("script\tone\n6\none\n", out)
    assert.equal("", err)
    assert.equal(0, status)
    write(script, "y = 5 error 'broken'")
    out, err, status = repl("y\n", "-i " .. script)
    os.remove(script)
    assert.equal("5\n", out)
    assert.matches("broken", err, 1, true)
    assert.equal(1, status)
  end)

  it("needs a script", function()
    local _, err, status = repl("", "-i")
    assert.matches("-i needs a script", err, 1, true)
    assert.equal(2, status)
  end)
end)

describe("-e", function()
  it("ends with 0, with 1 after an error and with 2 where it does not compile", function()
    for code, want in pairs { ["x = 1"] = 0, ["error 'x'"] = 1, ["x ="] = 2, ["os.exit(7)"] = 7 } do
      local _, _, status = repl("", ("-e \"%s\""):format(code))
      assert.equal(want, status, code)
    end
  end)
end)
