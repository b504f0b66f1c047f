-- SPDX-License-Identifier: MIT
-- Broadcasting: all pairs of shapes of up to 4 dimensions with sizes 0 to 3 for add, on every engine, against an index formula; every other op
-- of two or three broadcasting operands on a fixed part of the pairs, against the reference. Pairs that do not broadcast are errors.

local ffi = require "ffi"
local core = require "perilune.core"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"
local reference = require "spec.support.reference"

local shapes = { {} }
do
  local first = 1
  for _ = 1, 4 do
    local last = #shapes
    for i = first, last do
      for size = 0, 3 do
        local longer = { unpack(shapes[i]) }
        longer[#longer + 1] = size
        shapes[#shapes + 1] = longer
      end
    end
    first = last + 1
  end
end

--- Size of the result at the dim counted from the end, or nil where the sizes do not fit.
local function joined(a, b)
  if a == b or b == 1 then return a end
  if a == 1 then return b end
end

--- The result's shape and the operands' offsets (from 0) of its elements, by index arithmetic; nil where the shapes do not broadcast.
local function formula(a, b)
  local n = math.max(#a, #b)
  local shape, step_a, step_b, run_a, run_b, count = {}, {}, {}, 1, 1, 1
  for back = 0, n - 1 do
    local p, q = a[#a - back] or 1, b[#b - back] or 1
    local size = joined(p, q)
    if not size then return nil end
    shape[n - back], count = size, count * size
    step_a[n - back], step_b[n - back] = p == 1 and 0 or run_a, q == 1 and 0 or run_b
    run_a, run_b = run_a * p, run_b * q
  end
  return shape, count, step_a, step_b
end

local expected = ffi.new "float[81]"

--- Bytes of first + 100 second, element by element.
local function wanted(shape, count, step_a, step_b)
  for i = 0, count - 1 do
    local rest, x, y = i, 0, 0
    for d = #shape, 1, -1 do
      local k = rest % shape[d]
      rest = (rest - k) / shape[d]
      x, y = x + k * step_a[d], y + k * step_b[d]
    end
    expected[i] = x + 100 * y
  end
  return ffi.string(expected, 4 * count)
end

local function numbers(shape, factor)
  local out = { shape = shape, dtype = "f32" }
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  for i = 1, n do out[i] = (i - 1) * factor end
  return out
end

local function text(a, b) return ("(%s) and (%s)"):format(table.concat(a, ","), table.concat(b, ",")) end

describe("broadcasting", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  it("adds every pair of shapes", function()
    local add, pairs_run, refused = core.ops.add, 0, 0
    for _, e in ipairs(list) do
      local make = samples.layouts.contiguous.make
      local left, right = {}, {}
      for i, shape in ipairs(shapes) do
        left[i], right[i] = e.eng:pin(make(e.eng, numbers(shape, 1))), e.eng:pin(make(e.eng, numbers(shape, 100)))
      end
      for i, a in ipairs(shapes) do
        for k, b in ipairs(shapes) do
          local shape, count, step_a, step_b = formula(a, b)
          if shape then
            local got = add(left[i], right[k])
            if table.concat(got.shape, ",") ~= table.concat(shape, ",") or got:bytes() ~= wanted(shape, count, step_a, step_b) then
              error(("add of %s on %s is wrong"):format(text(a, b), e.kind), 0)
            end
            pairs_run = pairs_run + 1
          elseif e == list[1] or (i + k) % 16 == 0 then
            local ok, message = pcall(add, left[i], right[k])
            if ok or not message:find("does not broadcast", 1, true) then
              error(("add of %s on %s: no error about broadcasting: %s"):format(text(a, b), e.kind, tostring(message)), 0)
            end
            refused = refused + 1
          end
        end
        e.eng:reset()
      end
    end
    assert.is_true(pairs_run > 10000 and refused > 10000)
  end)

  --- One draw of shapes for each op, from a fixed sequence.
  local function draw(state) return (state * 1103515245 + 12345) % 2147483648 end

  --- A shape that broadcasts with the given one: some dims become 1, leading ones go, more come.
  local function partner(shape, state)
    local out = {}
    state = draw(state)
    local first = 1 + math.floor(state / 65536) % (#shape + 1)
    for d = first, #shape do
      state = draw(state)
      out[#out + 1] = math.floor(state / 65536) % 3 == 0 and 1 or shape[d]
    end
    return out, state
  end

  local ternary = { where = true }
  local function operands_of(row)
    local list_of = {}
    for k, slot in ipairs(row.slots) do
      if slot.kind == "tensor or number" or slot.kind == "mask" or (slot.kind == "tensor" and row.slots[2] and row.slots[2].kind == "mask") then
        list_of[#list_of + 1] = k
      end
    end
    return list_of
  end

  for _, row in ipairs(sweep.rows) do
    local slots = operands_of(row)
    if row.pointwise and not row.internal and not row.inplace and #slots >= 2 and row.name ~= "add" then
      it(row.name .. " on part of them", function()
        assert.equal(ternary[row.name] and 3 or 2, #slots)
        local state, ran = #row.name * 7919 + row.name:byte(1) * 104729, 0
        for i = 1, 600 do
          state = draw(state)
          local base = shapes[math.floor(state / 65536) % #shapes + 1]
          local parts, chosen = {}, {}
          for k, slot in ipairs(row.slots) do
            if slot.kind == "num" then parts[k] = ("%s=2"):format(slot.name) end
          end
          for j, k in ipairs(slots) do
            local shape = base
            if j ~= i % #slots + 1 then shape, state = partner(base, state) end
            parts[k] = ("(%s)%s"):format(table.concat(shape, ","), row.slots[k].kind == "mask" and ":bool" or "")
            chosen[j] = shape
          end
          local sample = samples.parse(row, table.concat(parts, " "))[1]
          local dtype = i % 5 == 0 and row.dtypes[i / 5 % #row.dtypes + 1] or "f32"
          local values = samples.values(row, sample, { dtype = dtype })
          local what = ("%s %s %s"):format(row.name, sample.text, dtype)
          local want, first = sweep.reference(row, values), {}
          for _, e in ipairs(list) do
            local got = sweep.run(e.eng, row, sample, values)
            if first[e.family] then
              sweep.same_bits(got, first[e.family], what .. " on " .. e.kind)
            else
              sweep.check(row, values, got, want, what .. " on " .. e.kind)
            end
            first[e.family] = first[e.family] or got
          end
          ran = ran + 1
          if i % 100 == 0 then sweep.settle(list) end
        end
        assert.equal(600, ran)
      end)

      it(row.name .. " refuses the others", function()
        local e, refused = list[1], 0
        for i = 1, #shapes, 5 do
          for k = 1, #shapes, 7 do
            if not reference.broadcast_shape(shapes[i], shapes[k]) then
              local a, b = e.eng:empty(shapes[i]), e.eng:empty(shapes[k])
              local args = { e.eng }
              for j, slot in ipairs(slots) do args[slot + 1] = j == 1 and a or b end
              for j, slot in ipairs(row.slots) do
                if slot.kind == "num" then args[j + 1] = 2 end
              end
              local ok, message = pcall(core.ops[row.name], unpack(args, 1, #row.slots + 1))
              if ok or not message:find("does not broadcast", 1, true) then
                error(("%s of %s: no error about broadcasting: %s"):format(row.name, text(shapes[i], shapes[k]), tostring(message)), 0)
              end
              refused = refused + 1
            end
          end
        end
        assert.is_true(refused > 100)
      end)
    end
  end
end)
