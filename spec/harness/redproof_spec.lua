-- SPDX-License-Identifier: MIT
-- Every planted fault is caught by the harness that must catch it; and a fault that is none, or is caught for something else, is not counted.

local faults = require "perilune.faults"
local redproof = require "perilune.redproof"

describe("red proofs", function()
  it("are 24 or more, each with a name of its own", function()
    local seen = {}
    for _, entry in ipairs(faults.list) do
      assert.is_nil(seen[entry.name])
      seen[entry.name] = true
    end
    assert.is_true(#faults.list >= 24)
  end)

  for _, entry in ipairs(faults.list) do
    it(("catch %s by %s"):format(entry.name, entry.harness), function()
      local proof = redproof.prove(entry, "stress")
      assert.is_nil(proof.why)
      assert.is_true(proof.caught)
      assert.matches(entry.expect, proof.attributed, 1, true)
      for _, key in ipairs { "op", "schedule", "place" } do assert.is_string(proof[key], key) end
    end)
  end

  it("are all in the page's table, and nothing else is", function()
    local file = assert(io.open "docs/harnesses.md")
    local page = file:read "*a"
    file:close()
    local rows = {}
    for row in page:match("\n## Red proofs\n(.*)"):gmatch "\n(| `[^\n]*)" do rows[#rows + 1] = row end
    local expected = {}
    for k, entry in ipairs(faults.list) do expected[k] = redproof.row(entry) end
    assert.same(expected, rows)
  end)

  local function planted(name, changes)
    for _, entry in ipairs(faults.list) do
      if entry.name == name then
        local copy = {}
        for k, v in pairs(entry) do copy[k] = v end
        for k, v in pairs(changes) do copy[k] = v end
        return copy
      end
    end
  end

  it("miss a fault that changes nothing", function()
    local sound = planted("cached_in_field", {}).plant
    local proof = redproof.prove(planted("cached_in_field", { plant = function() return sound(false) end }), "stress")
    assert.is_false(proof.caught)
    assert.matches("stayed green", proof.why, 1, true)
  end)

  it("miss a fault that is blamed on something else", function()
    local proof = redproof.prove(planted("wrong_axis", { expect = "something else" }), "stress")
    assert.is_false(proof.caught)
    assert.matches("nothing says", proof.why, 1, true)
  end)

  it("miss a fault that is not blamed on its own place", function()
    local plant = planted("wrong_axis", {}).plant
    local elsewhere = loadstring("local plant = ... return function(faulty) return plant(faulty) end", "@elsewhere.lua")(plant)
    local proof = redproof.prove(planted("wrong_axis", { plant = elsewhere }), "stress")
    assert.is_false(proof.caught)
    assert.matches("elsewhere.lua", proof.why, 1, true)
  end)

  it("miss a fault whose sound twin fails", function()
    local twin = planted("wrong_axis", {}).plant
    local proof = redproof.prove(planted("wrong_axis", { plant = function() return twin(true) end }), "stress")
    assert.is_false(proof.caught)
    assert.matches("without the fault", proof.why, 1, true)
  end)

  it("leave no fault switched on", function()
    local core = require "perilune.core"
    for name in pairs(core.library.fault()) do core.library.fault(name, false) end
    assert.is_true(redproof.run({ names = { "cached_in_field" } }).pass)
  end)

  it("fail as a whole when one is missed, or too few ran", function()
    assert.is_false(redproof.run({ names = { "no_such_fault" } }).pass)
    assert.is_false(redproof.run({ names = { "wrong_axis" }, minimum = 2 }).pass)
  end)
end)
