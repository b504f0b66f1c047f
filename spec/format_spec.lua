-- SPDX-License-Identifier: MIT
-- Tensors as text.

local engines = require "spec.support.engines"

describe("tostring of a tensor", function()
  after_each(engines.close)

  local eng
  before_each(function() eng = engines.open "cpu" end)

  it("shows rows without brackets and a footer", function()
    assert.equal("1  2  3\n4  5  6\n[f32 tensor 2x3 on cpu, owned]", tostring(eng:tensor { { 1, 2, 3 }, { 4, 5, 6 } }))
    assert.equal(" 1.5000  -2.0000\n[f64 tensor 2 on cpu, owned]", tostring(eng:tensor({ 1.5, -2 }, { dtype = "f64" })))
    assert.equal("7\n[i64 tensor () on cpu, owned]", tostring(eng:tensor(7, { dtype = "i64" })))
    assert.equal(" true  false\n[bool tensor 2 on cpu, owned]", tostring(eng:tensor { true, false }))
    assert.equal("[f32 tensor 0x3 on cpu, owned]", tostring(eng:zeros { 0, 3 }))
  end)

  it("says the arena's epoch", function()
    local stress = engines.open "stress"
    stress:reset()
    assert.matches("[f32 tensor 1 on stress, arena epoch 2]", tostring(stress:tensor { 1 }), 1, true)
  end)

  it("aligns NaN and infinities and keeps them out of the choice of format", function()
    local text = tostring(eng:tensor { { 0 / 0, 1.25 }, { math.huge, -math.huge } })
    assert.equal("   nan  1.2500\n   inf    -inf\n", (text:gsub("%[.*", "")))
  end)

  it("is scientific only where needed, without a common factor", function()
    assert.matches("2.0000e%-05", tostring(eng:tensor { 2e-5, 1.5 }))
    assert.matches("1.0000e%+09", tostring(eng:tensor { 1e9 }))
    assert.matches("1000.5000", tostring(eng:tensor { 1000.5, 0.25 }), 1, true)
    assert.matches("9007199254740993", tostring(eng:full({ 1 }, 2 ^ 53, { dtype = "i64" }) + 1), 1, true)
  end)

  it("shows three at each edge beyond 1,000 elements, and reads only those", function()
    local t = eng:arange(0, 2000):view { 40, 50 }
    local lines = {}
    for line in tostring(t):gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal(8, #lines)
    assert.matches("^ +0 +1 +2 +%.%.%. +47 +48 +49$", lines[1])
    assert.matches("^ +%.%.%. ", lines[4])
    assert.matches("1997 +1998 +1999$", lines[7])
    local big = eng:zeros { 10000, 10000 }
    local started = os.clock()
    assert.matches("10000x10000", tostring(big), 1, true)
    assert.is_true(os.clock() - started < 0.05)
  end)

  it("shows matrices of higher dimensions under their index", function()
    local text = tostring(eng:arange(0, 8):view { 2, 2, 2 })
    assert.equal("(1, ., .) =\n0  1\n2  3\n(2, ., .) =\n4  5\n6  7\n", (text:gsub("%[.*", "")))
  end)

  it("of many dimensions shows the outermost matrices, in a bounded time", function()
    local t = eng:arange(0, 8 * 7 * 7 * 7 * 2):view { 8, 7, 7, 7, 2 } -- 6^3 matrices at three each edge are too many
    local text = tostring(t)
    local heads = {}
    for head in text:gmatch "%((%d+, %d+, %d+), %., %.%)" do heads[#heads + 1] = head end
    assert.same({ "1, 1, 1", "1, 1, 7", "1, 7, 1", "1, 7, 7", "8, 1, 1", "8, 1, 7", "8, 7, 1", "8, 7, 7" }, heads)
    assert.matches(("(8, 7, 7, ., .) =\n5474  5475\n5476  5477\n5478  5479\n ...   ...\n5482  5483\n5484  5485\n5486  5487\n["), text, 1, true)
    assert.equal(36, select(2, tostring(eng:zeros { 10, 10, 9, 3 }):gsub("%., %.%) =", ""))) -- three at each edge where that is few
    for _, shape in ipairs { { 10, 10, 10, 10, 10, 10, 10 }, { 5, 5, 5, 5, 5, 5, 5, 5 }, { 1, 10, 1, 10, 10, 10, 10, 10 } } do
      local x, started = eng:zeros(shape, { dtype = "u8" }), os.clock()
      assert.is_true(#tostring(x) < 50000)
      assert.is_true(os.clock() - started < 0.05)
    end
  end)

  it("breaks long rows into blocks of columns", function()
    local text = tostring(eng:arange(0, 100):view { 2, 50 })
    assert.matches("Columns 1 to ", text, 1, true)
    for line in text:gmatch "[^\n]+" do assert.is_true(#line <= 80, line) end
  end)
end)
