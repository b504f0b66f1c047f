-- SPDX-License-Identifier: MIT
-- Every op called again and again: the record that is remembered (src/plan.h) must give the bits of one made anew, whatever addresses,
-- numbers, options and sharing of memory come in between.

local perilune = require "perilune"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

local LIMIT = 1200

--- The results; nil and the message where this way of handing over the values is an error.
local function call(eng, row, args, out)
  if row.random then eng:rng { 7, 3 } end
  local ok, results = pcall(function() return sweep.results(samples.call(eng, row, args, out)) end)
  if ok then return results end
  pcall(eng.sync, eng)
  return nil, results
end

--- Ways to hand over the same values: layouts, and one tensor in all slots that can hold it.
local ways = {}
for _, name in ipairs { "contiguous", "transposed", "offset", "stepped" } do
  ways[#ways + 1] = function(eng, row, sample, values) return samples.build(eng, row, sample, values, { layout = samples.layouts[name] }) end
end
ways[#ways + 1] = function(eng, row, sample, values)
  local args, first = samples.build(eng, row, sample, values), nil
  for k = 1, values.n do
    local v = values[k]
    if samples.is_array(v) and not row.inplace then
      first = first or { array = v, t = args[k] }
      local same = first.array.dtype == v.dtype and table.concat(first.array.shape, ",") == table.concat(v.shape, ",")
      if same then args[k] = first.t end
    end
  end
  return args
end

describe("plans of", function()
  local list, fresh

  setup(function()
    list = sweep.open()
    fresh = perilune.engine { "cpu", plans = false }
  end)
  teardown(function()
    fresh:close()
    engines.close()
  end)

  for _, row in ipairs(sweep.rows) do
    if #samples.of(row) > 0 and row.name ~= "empty" then
      it(row.name, function()
        local ran = 0
        for _, e in ipairs(list) do
          sweep.each(row, LIMIT, function(sample, dtype, _, what)
            for round = 1, 4 do
              local values = samples.values(row, sample, { dtype = dtype, seed = round })
              for w, way in ipairs(ways) do
                local on = ("%s on %s, way %d, round %d"):format(what, e.kind, w, round)
                local want = call(fresh, row, way(fresh, row, sample, values))
                local got = call(e.eng, row, way(e.eng, row, sample, values))
                if not want ~= not got then error(on .. ": an error on one engine only", 0) end
                if want and e.family == "host" then sweep.same_bits(got, want, on) end
                if want then ran = ran + 1 end
                if want and not row.inplace and row.nout > 0 and #want == row.nout then
                  local outs = {}
                  for i, r in ipairs(want) do outs[i] = e.eng:empty(r.shape, { dtype = r.dtype }) end
                  sweep.same_bits(call(e.eng, row, way(e.eng, row, sample, values), #outs > 1 and outs or outs[1]), got, on .. " into")
                end
              end
            end
          end)
          sweep.settle(list)
        end
        assert.is_true(ran > 0)
      end)
    end
  end
end)

describe("plans", function()
  after_each(engines.close)

  engines.each(function(name, open)
    local function made(eng, fn)
      local before = eng:stats().planned
      fn()
      return eng:stats().planned - before
    end

    it("are used from the third call on by " .. name, function()
      local eng = open()
      local x, y = eng:tensor { 1, 2 }, eng:tensor { 3, 4 }
      eng:add(y, x) eng:add(y, x) eng:add(y, x)
      assert.equal(1, made(eng, function() assert.same({ 4, 6 }, eng:add(x, y):totable()) end))
      assert.equal(0, made(eng, function() assert.same({ 2, 3 }, eng:add(x, 1):totable()) end))
      for _ = 1, 3 do local _ = x + 1 end
      assert.equal(1, made(eng, function() assert.same({ 4, 5 }, (y + 1):totable()) end))
      assert.equal(0, made(eng, function() assert.same({ 5, 6 }, (y + 2):totable()) end))
    end)

    it("know when operands and destinations are one on " .. name, function()
      local eng = open()
      local x, y = eng:tensor { 2, 3 }, eng:tensor { 5, 7 }
      for _ = 1, 4 do
        assert.same({ 10, 21 }, eng:mul(x, y):totable())
        assert.same({ 4, 9 }, eng:mul(x, x):totable())
        local z = x:clone()
        assert.same({ 10, 21 }, eng:mul(z, y, z):totable())
        assert.same({ 50, 147 }, eng:mul(y, z, z):totable())
        local w = eng:tensor { 1, 2, 3 }
        assert.same({ 1, 2 }, w[{ { 1, 2 } }]:totable())
        eng:add(w[{ { 1, 2 } }], w[{ { 1, 2 } }], w[{ { 2, 3 } }])
        assert.same({ 1, 2, 4 }, w:totable())
      end
      assert.same({ 2, 3 }, x:totable())
    end)

    it("of views carry offset and epoch on " .. name, function()
      local eng = open()
      for i = 1, 5 do
        local x = eng:tensor { { 1, 2, 3 }, { 4, 5, 6 * i } }
        assert.same({ { 1, 4 }, { 2, 5 }, { 3, 6 * i } }, x:t():totable())
        assert.same({ 3, 6 * i }, x:select(2, 3):totable())
        local kept = x:t()
        eng:reset()
        if name ~= "cpu" then assert.has_error(function() return kept:totable() end) end
      end
    end)

    if name ~= "cpu" then
      it("are not made of dead tensors, whose addresses are others' by now, on " .. name, function()
        local eng = open { stale = "allow", poison = false, plans = true }
        local x = eng:persistent({ 4 }, { 1, 2, 3, 4 })
        for _ = 1, 5 do
          local dead = x + 1
          eng:reset()
          local alive = x + 2 -- where `dead` was
          for _ = 1, 3 do assert.same({ 9, 16, 25, 36 }, (alive * dead):totable()) end
          assert.same({ 3, 8, 15, 24 }, (alive * x):totable())
          eng:reset()
        end
      end)
    end

    it("neither hide errors nor outlive them on " .. name, function()
      local eng = open()
      local x, y = eng:tensor { 1, 2 }, eng:tensor { 1, 2, 3 }
      for _ = 1, 4 do
        assert.has_error(function() return x + y end)
        assert.has_error(function() return eng:add(x, x, y) end)
        assert.has_error(function() return x:sum(3) end)
        assert.same({ 2, 4 }, (x + x):totable())
        assert.equal(3, x:sum():item())
      end
    end)

    it("are not made of numbers alone, which do not fit a key, on " .. name, function()
      local eng = open()
      for _, row in ipairs(sweep.rows) do
        local a, b = row.slots[1], row.slots[2]
        if #row.slots == 2 and a.kind == "tensor or number" and b.kind == a.kind then
          local right = {}
          for i = 1, 3 do right[i] = eng[row.name](eng, eng:tensor(i), 2):item() end
          for _ = 1, 3 do
            for i = 1, 3 do assert.equal(right[i], eng[row.name](eng, i, 2):item(), row.name) end
          end
        end
      end
    end)

    it("stay within bounds under 20,000 layouts on " .. name, function()
      local eng = open { arena = name ~= "cpu" and "1MiB" or nil }
      for i = 1, 20000 do
        local n = i % 5000
        local x = eng:full({ n % 50 + 1, math.floor(n / 50) % 10 + 1 }, i)
        if (x + x):get(1, 1) ~= 2 * i then error "wrong" end
        if i % 10 == 0 then eng:reset() end
      end
    end)
  end)

  it("can be switched off", function()
    local eng = engines.open("cpu", { plans = false })
    local x = eng:tensor { 1 }
    for _ = 1, 10 do local _ = x + x end
    assert.equal(0, eng:stats().planned)
  end)
end)
