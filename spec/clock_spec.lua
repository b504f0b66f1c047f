-- SPDX-License-Identifier: MIT
-- perilune.clock, and options of scripts over their defaults.

local perilune = require "perilune"
local options = require "perilune.options"

describe("the clock", function()
  it("never goes back and counts seconds that pass", function()
    local before = perilune.clock()
    for _ = 1, 1000 do
      local now = perilune.clock()
      assert.is_true(now >= before)
      before = now
    end
    local function date() -- of the system, in seconds
      local pipe = io.popen "date +%s.%N"
      local text = pipe:read "*a"
      pipe:close()
      return tonumber(text)
    end
    local first, started = perilune.clock(), date()
    local second = perilune.clock()
    assert.equal(0, os.execute "sleep 0.3")
    local third, ended = perilune.clock(), date()
    local fourth = perilune.clock()
    assert.is_true(third - second >= 0.3)
    assert.is_true(ended - started >= third - second - 0.02 and ended - started <= fourth - first + 0.02)
  end)
end)

describe("options over defaults", function()
  local DEFAULTS = { steps = 10, name = "x" }

  it("are numbers where the default is one", function()
    local found, words = options.read_over({ "--steps", "3", "FILE", "--fast" }, "usage", DEFAULTS, { fast = "be quick", save = "FILE to write" })
    assert.same({ steps = 3, name = "x", fast = true }, found)
    assert.same({ "FILE" }, words)
    found = options.read_over({ "--name", "5", "--save", "a" }, "usage", DEFAULTS, { save = "FILE to write" })
    assert.same({ steps = 10, name = "5", save = "a" }, found)
  end)
end)
