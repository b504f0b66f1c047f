-- SPDX-License-Identifier: MIT
-- The perilune command: what it runs, what it says and how it ends.

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

--- Runs the launcher at the root with a ready-quoted argument line and none of the paths that these specs run with;
--- output of both streams and the exit status.
local function perilune(arguments)
  local pipe = assert(io.popen(("l=$(realpath '%s') && cd / && unset LUA_PATH LUA_CPATH; $l %s 2>&1; echo status $?")
    :format(launcher, arguments)))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

local function script(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  finally(function() os.remove(path) end)
  return path
end

describe("perilune FILE", function()
  it("runs a script with its arguments", function()
    local path = script "print(select('#', ...), arg[1], arg[2], arg[0], ...)"
    local output, status = perilune(path .. " a 'b c'")
    assert.are.equal("2\ta\tb c\t" .. path .. "\ta\tb c\n", output)
    assert.are.equal(0, status)
  end)

  it("finds the modules from any directory", function()
    local output = perilune(script "print(type(require 'perilune'), type(require 'perilune.core'))")
    assert.are.equal("table\ttable\n", output)
  end)

  it("reports an error with its place and ends with 1", function()
    local path = script "\nerror 'boom'"
    local output, status = perilune(path)
    assert.truthy(output:find(path .. ":2: boom", 1, true), output)
    assert.is_nil(output:find "cli.lua")
    assert.are.equal(1, status)
  end)

  it("says which file is missing", function()
    local output, status = perilune "./nowhere.lua"
    assert.truthy(output:find "nowhere.lua")
    assert.are.equal(2, status)
  end)
end)

describe("perilune -e", function()
  it("runs code with arguments", function()
    local output, status = perilune "-e 'print(1 + 1, ...)' x"
    assert.are.equal("2\tx\n", output)
    assert.are.equal(0, status)
  end)

  it("reports code that does not compile", function()
    local output, status = perilune "-e 'x ='"
    assert.truthy(output:find "command line")
    assert.are.equal(2, status)
  end)
end)

describe("perilune", function()
  it("says its version and LuaJIT's", function()
    local output, status = perilune "--version"
    assert.truthy(output:match "^perilune %d+%.%d+%.%d+, LuaJIT 2%.", output)
    assert.are.equal(0, status)
  end)

  it("refuses unknown commands and options", function()
    for _, word in ipairs { "frobnicate", "--frobnicate" } do
      local output, status = perilune(word)
      assert.truthy(output:find(word, 1, true))
      assert.truthy(output:find "usage:")
      assert.are.equal(2, status)
    end
  end)
end)
