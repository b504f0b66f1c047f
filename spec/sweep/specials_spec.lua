-- SPDX-License-Identifier: MIT
-- NaN, infinities, zeros of both signs, the largest and the smallest numbers, and the values where a derivative has a kink: elementwise ops take
-- them all, alone and in pairs; every other op takes a NaN or an infinity at each end and in the middle of each operand. Where the reference has
-- NaN the op has NaN, and nowhere else; an op without the flag EATS_NAN never loses one (C8).

local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"
local reference = require "spec.support.reference"

local nan, inf = 0 / 0, math.huge

local extremes = {
  f32 = { largest = 2 ^ 127 * (2 - 2 ^ -23), smallest = 2 ^ -126, denormal = 2 ^ -149 },
  f64 = { largest = 2 ^ 1023 * (2 - 2 ^ -52), smallest = 2 ^ -1022, denormal = 2 ^ -1074 },
}

local function specials(dtype)
  local e = extremes[dtype]
  return { nan, inf, -inf, 0, -0.0, e.largest, -e.largest, e.smallest, -e.smallest, e.denormal, -e.denormal, 1, -1, 0.5, -2.5, 3, 88.9, -88.9, 1e30,
    2 ^ 24 + 2 }
end

local function array(list, dtype)
  local out = { shape = { #list }, dtype = dtype }
  for i, v in ipairs(list) do out[i] = dtype == "f32" and reference.round({ shape = { 1 }, dtype = "f32", v })[1] or v end
  return out
end

--- All pairs of the values.
local function pairs_of(list)
  local a, b = {}, {}
  for i = 1, #list do
    for k = 1, #list do
      a[#a + 1], b[#b + 1] = list[i], list[k]
    end
  end
  return a, b
end

local function has_nan(r)
  for i = 1, #r do
    if r[i] ~= r[i] then return true end
  end
  return false
end

-- sin and cos of arguments beyond 2^20 or so need more bits of pi than they are promised to have.
local periodic = { sin = true, cos = true }

describe("special values through", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  --- Results on every engine equal the reference's, rounded to their dtype.
  local function compare(row, sample, values, what)
    local want, first = sweep.reference(row, values), {}
    for i, r in ipairs(want) do want[i] = reference.round(r) end
    for _, e in ipairs(list) do
      local on, got = what .. " on " .. e.kind, sweep.run(e.eng, row, sample, values)
      if first[e.family] then sweep.same_bits(got, first[e.family], on) else sweep.check(row, values, got, want, on) end
      first[e.family] = first[e.family] or got
    end
    return want
  end

  local function operands(row)
    local slots = {}
    for k, slot in ipairs(row.slots) do
      if slot.kind == "tensor" or slot.kind == "tensor or number" then slots[#slots + 1] = k end
    end
    return slots
  end

  local function elementwise_sample(row, n)
    local parts = {}
    for k, slot in ipairs(row.slots) do
      if slot.kind == "tensor" or slot.kind == "tensor or number" then parts[k] = ("(%d)"):format(n)
      elseif slot.kind == "mask" then parts[k] = ("(%d):bool"):format(n)
      elseif slot.kind == "dtype" then parts[k] = "dtype=f64"
      elseif not slot.optional or row.name == "clamp" then parts[k] = slot.name .. "=0.5" end
    end
    return samples.parse(row, table.concat(parts, " "))[1]
  end

  local function each_value(row)
    local slots = operands(row)
    for _, dtype in ipairs { "f32", "f64" } do
      local values = specials(dtype)
      local a, b = values, values
      if #slots == 2 then a, b = pairs_of(values) end
      local sample = elementwise_sample(row, #a)
      local made = samples.values(row, sample, { dtype = dtype })
      made[slots[1]] = array(a, dtype)
      if slots[2] then made[slots[2]] = array(b, dtype) end
      if periodic[row.name] then
        for i = 1, #a do
          if math.abs(made[1][i]) > 1e5 and math.abs(made[1][i]) < inf then made[1][i] = 2 end
        end
      end
      local what = ("%s of special values, %s"):format(row.name, dtype)
      local want = compare(row, sample, made, what)
      if not row.eats_nan then
        for i = 1, #a do
          local gone = made[slots[1]][i] ~= made[slots[1]][i] or (slots[2] and made[slots[2]][i] ~= made[slots[2]][i])
          -- the reference itself must not lose a NaN either
          if gone and want[1][i] == want[1][i] then error(("%s: element %d is %g, not NaN"):format(what, i, want[1][i]), 0) end
        end
      end
    end
  end

  --- Kinks hit: every fourth element.
  local function each_kink(row)
    sweep.each(row, 300, function(sample, _, values, what) compare(row, sample, values, what .. " at kinks") end, { kinks = "hit" })
  end

  --- A NaN or an infinity in one place of one operand at a time.
  local function each_place(row)
    for _, sample in ipairs(samples.of(row)) do
      if not sample.bad and sweep.size(sample) <= 2000 and sweep.size(sample) > 0 then
        for _, dtype in ipairs(samples.dtypes(row, sample)) do
          for _, k in ipairs(operands(row)) do
            -- inf - inf depends on how a derivative or a step is written
            for _, special in ipairs((row.internal or row.inplace) and { nan } or { nan, inf, -inf }) do
              local seen = {}
              for part = 0, 2 do
                local values = samples.values(row, sample, { dtype = dtype })
                local target = values[k]
                local float = samples.is_array(target) and #target > 0 and (target.dtype == "f32" or target.dtype == "f64")
                local i = float and 1 + math.floor((#target - 1) * part / 2)
                if i and not seen[i] then
                  seen[i], target[i] = true, special
                  compare(row, sample, values, ("%s %s %s with %g at %d of %s"):format(row.name, sample.text, dtype, special, i, row.slots[k].name))
                end
              end
            end
          end
        end
        sweep.settle(list)
      end
    end
  end

  for _, row in ipairs(sweep.rows) do
    if not row.create and not row.random and not row.view and #samples.of(row) > 0 and sweep.has_reference(row) then
      if row.pointwise and not row.inplace and row.name ~= "tril" and row.name ~= "triu" then
        it(row.name, function() each_value(row) end)
      end
      it(row.name .. " at kinks", function() each_kink(row) end)
      it(row.name .. " in one place", function() each_place(row) end)
    end
  end

  it("is asked of no sum, product, extreme or norm in vain", function()
    for _, row in ipairs(sweep.rows) do
      if ({ sum = 1, mean = 1, prod = 1, max = 1, min = 1, var = 1, norm = 1, logsumexp = 1, softmax = 1, cumsum = 1, matmul = 1, layer_norm = 1 })[row.name] then
        assert.is_false(row.eats_nan)
        local sample = samples.of(row)[1]
        local values = samples.values(row, sample)
        values[1][1] = nan
        assert.is_true(has_nan(sweep.reference(row, values)[1]), row.name)
      end
    end
  end)
end)
