-- SPDX-License-Identifier: MIT
-- The gate itself: scripts/check.lua must turn red for everything that can go wrong with a spec file.

local source = os.getenv "PERILUNE_SRCDIR" or "."

--- Runs check.lua on a tree of its own with one spec file of this text; output and exit status.
local function check(text)
  local dir = os.tmpname()
  os.remove(dir)
  finally(function() os.execute("rm -rf " .. dir) end)
  os.execute(("mkdir -p %s/spec && ln -s $(cd '%s' && pwd)/scripts %s/scripts && ln -s $(cd '%s' && pwd)/spec/support %s/spec/support")
    :format(dir, source, dir, source, dir))
  local file = assert(io.open(dir .. "/spec/planted_spec.lua", "w"))
  file:write(text)
  file:close()
  local pipe = io.popen(("env -u PERILUNE_SPEC -u PERILUNE_RESULT -u PERILUNE_TOTAL -u PERILUNE_PRELOAD PERILUNE_SRCDIR=%s "
    .. "PERILUNE_BUILDDIR=%s PERILUNE_CHECK_SECONDS=2 %s %s/scripts/check.lua 2>&1; echo status $?")
    :format(dir, dir, os.getenv "LUAJIT" or "luajit", dir))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status), output:match "([^\n]*)\n$"
end

local function red(text, ...)
  local output, status, total = check(text)
  assert.are_not.equal(0, status)
  assert.are.equal("0 passed, 1 failed", total)
  for _, word in ipairs { "FAILED spec/planted_spec.lua", ... } do assert.truthy(output:find(word, 1, true), output) end
end

describe("make check", function()
  it("is green on a test that passes", function()
    local _, status, total = check "it('holds', function() assert.are.equal(1, 1) end)"
    assert.are.equal(0, status)
    assert.are.equal("1 passed, 0 failed", total)
  end)

  it("counts skips by themselves and names them", function()
    local output, status, total = check "it('a', function() end) it('waits', function() pending 'no GPU' end)"
    assert.are.equal(0, status)
    assert.are.equal("1 passed, 0 failed, 1 skipped", total)
    assert.truthy(output:find("skipped spec/planted_spec.lua:1: waits", 1, true), output)
    assert.truthy(output:find("no GPU", 1, true))
  end)

  it("is red when everything was skipped", function()
    local _, status, total = check "it('waits', function() pending 'no GPU' end)"
    assert.are_not.equal(0, status)
    assert.are.equal("0 passed, 0 failed, 1 skipped", total)
  end)

  it("is red on a failure, with place and message", function()
    red("\nit('differs', function() assert.are.equal(1, 2) end)", ":2: differs", "Expected")
  end)

  it("is red on an error", function() red("it('raises', function() error 'boom' end)", ": raises", "boom") end)

  it("is red on a file that does not compile", function() red("it('", "unfinished string") end)

  it("is red on a file without tests", function() red("", "ran no test") end)

  it("is red on a crash", function()
    red("it('crashes', function() require('ffi').cast('int *', 0)[0] = 1 end)", "signal 11")
  end)

  it("is red on an exit in the middle", function() red("it('exits', function() os.exit(0) end)", "ended early") end)

  it("is red on a test that hangs", function()
    red("it('hangs', function() while true do end end)", "ran past the limit of 2 s")
  end)

  it("is red on a crash after the tests", function()
    local output, status, total = check [[
      it('holds', function() end)
      local proxy = newproxy(true)
      getmetatable(proxy).__gc = function() require('ffi').cast('int *', 0)[0] = 1 end
      _G.kept = proxy]]
    assert.are_not.equal(0, status)
    assert.are.equal("1 passed, 1 failed", total)
    assert.truthy(output:find("signal 11", 1, true), output)
  end)
end)
