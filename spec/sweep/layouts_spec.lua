-- SPDX-License-Identifier: MIT
-- Every op, sample and dtype on every engine: all elements against the reference, and the same bits in every layout, on every engine of the
-- host and with any number of threads (C10).

local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

local L = samples.layouts
local PLAIN, MANY = { L.transposed, L.offset, L.stepped }, 30000

--- Operands laid out differently from each other.
local function mixed(first)
  local order = { L.contiguous, L.transposed, L.stepped, L.offset }
  return { name = "mixed", pick = function(slot) return order[(slot + first) % 4 + 1] end }
end

local MIXED = { mixed(0), mixed(1), mixed(2) }

local function has_operands(row)
  for _, slot in ipairs(row.slots) do
    if slot.kind == "tensor" or slot.kind == "tensor or number" or slot.kind == "mask" or slot.kind == "index" or slot.kind == "tensors" then
      return true
    end
  end
  return false
end

local function operands(values)
  local n = 0
  for k = 1, values.n do n = n + (samples.is_array(values[k]) and 1 or 0) end
  return n
end

-- What cannot be laid out freely: a view keeps its operand's memory, so not every layout has one.
local needs_row_major = { view = true }

describe("every op", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  local function layouts_on(e, row, sample, values, plain, what)
    local large = sweep.size(sample) > MANY
    for i, layout in ipairs(PLAIN) do
      if not large or i ~= 2 then
        sweep.same_bits(sweep.run(e.eng, row, sample, values, { layout = layout }), plain, what .. " " .. layout.name)
      end
    end
    if operands(values) > 1 then
      for i = 1, large and 1 or #MIXED do
        local mix = MIXED[i]
        local function make(eng, array, slot) return mix.pick(slot).make(eng, array) end
        sweep.same_bits(sweep.run(e.eng, row, sample, values, { make = make }), plain, what .. " mixed")
      end
    end
    if not large and not row.inplace then -- nothing is written through a broadcast view
      local wide = samples.adapt(row, values, L.expanded)
      sweep.same_bits(sweep.run(e.eng, row, sample, wide, { layout = L.expanded }), sweep.run(e.eng, row, sample, wide), what .. " expanded")
    end
  end

  for _, row in ipairs(sweep.rows) do
    if #samples.of(row) > 0 and row.name ~= "empty" then
      it(row.name, function()
        sweep.each(row, math.huge, function(sample, _, values, what)
          local want, first = sweep.reference(row, values), {}
          for _, e in ipairs(list) do
            local on = what .. " on " .. e.kind
            local plain = sweep.run(e.eng, row, sample, values)
            if not first[e.family] then
              first[e.family] = plain
              if want then sweep.check(row, values, plain, want, on) end
            else
              sweep.same_bits(plain, first[e.family], on)
            end
            if has_operands(row) and not needs_row_major[row.name] then
              layouts_on(e, row, sample, values, plain, on)
            end
          end
          sweep.settle(list)
        end)
      end)
    end
  end
end)

describe("threads do not change bits:", function()
  local list = {}

  setup(function()
    for _, threads in ipairs { 1, 2, 4 } do list[#list + 1] = engines.open("cpu", { threads = threads }) end
  end)
  teardown(engines.close)

  local function is_shared(sample) return not sample.bad and sweep.size(sample) >= 2000 end

  for _, row in ipairs(sweep.rows) do
    local shared = false
    for _, sample in ipairs(samples.of(row)) do shared = shared or is_shared(sample) end
    if shared and row.name ~= "empty" then
      it(row.name, function()
        sweep.each(row, math.huge, function(sample, _, values, what)
          if not is_shared(sample) then return end
          local plain = sweep.run(list[1], row, sample, values)
          for i = 2, #list do
            sweep.same_bits(sweep.run(list[i], row, sample, values), plain, ("%s with %d threads"):format(what, 2 ^ (i - 1)))
          end
        end)
      end)
    end
  end
end)
