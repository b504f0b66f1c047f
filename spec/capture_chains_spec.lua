-- SPDX-License-Identifier: MIT
-- Captured elementwise ops over long rows run as chains, block by block: programs of random ops on tensors that share memory in all ways give
-- the bits of eager calls and of an engine without chains, with any number of threads.

local core = require "perilune.core"
local engines = require "spec.support.engines"

local LONG, SHORT = 70001, 4095 -- more than two blocks of a thread; too short for a chain

--- Elementwise ops of tensors and numbers alone, of floats.
local function rows()
  local list = {}
  for _, row in ipairs(core.ops.rows) do
    local fits = row.pointwise and not row.inplace and not row.random and not row.internal and row.nout == 1 and #row.slots <= 3
    for _, slot in ipairs(row.slots) do
      fits = fits and (slot.kind == "tensor" or slot.kind == "tensor or number")
    end
    if fits then list[#list + 1] = row end
  end
  return list
end

local function generator(seed)
  return function(n)
    seed = (seed * 1103515245 + 12345) % 2 ^ 31
    return math.floor(seed / 65536) % n + 1
  end
end

local function ramp(n, phase)
  local values = {}
  for i = 1, n do values[i] = math.sin(phase + 0.37 * i) * 2 end
  return values
end

--- Tensors of n elements: some of their own, some views that overlap by all but a few elements, one that is a single element.
local function pool(eng, n)
  local list = {}
  for i = 1, 4 do list[i] = eng:persistent({ n }, ramp(n, i)) end
  local wide = eng:persistent({ n + 8 }, ramp(n + 8, 9))
  for i, start in ipairs { 1, 1, 2, 9 } do list[4 + i] = wide:narrow(1, start, n) end
  list[9] = wide:narrow(1, 5, 1)
  return list, wide
end

--- A list of calls: op, operands (numbers of tensors of the pool, or numbers), destination or nil for a new tensor.
local function program(random, ops, length)
  local calls = {}
  for i = 1, length do
    local row = ops[random(#ops)]
    local call = { row = row, out = random(3) > 1 and random(8) or nil }
    for k, slot in ipairs(row.slots) do
      call[k] = slot.kind == "tensor or number" and random(4) == 1 and { random(5) - 2.5 } or random(9)
    end
    calls[i] = call
  end
  return calls
end

local function run(eng, calls, list)
  local made = {}
  for i, call in ipairs(calls) do
    local args = {}
    for k = 1, #call.row.slots do
      local a = call[k]
      args[k] = type(a) == "table" and a[1] or a <= 8 and (made[i - a] or list[a]) or list[a]
    end
    if type(args[1]) == "number" and (not args[2] or type(args[2]) == "number") then args[1] = list[1] end
    local n = #call.row.slots
    local out = call.out and list[call.out]
    local ok, result = pcall(core.ops[call.row.name], eng, args[1], n > 1 and args[2] or out, n > 1 and out or nil)
    made[i] = ok and result:numel() == list[1]:numel() and result.dtype == "f32" and result or nil
  end
end

local function bytes(list, wide)
  local all = { wide:bytes() }
  for i = 1, 4 do all[i + 1] = list[i]:bytes() end
  return all
end

describe("captured chains", function()
  after_each(engines.close)

  local ops = rows()

  it("cover the elementwise ops", function() assert.is_true(#ops > 30, "only " .. #ops .. " ops") end)

  for _, n in ipairs { LONG, SHORT } do
    it(("give the bits of eager calls for random programs on %d elements"):format(n), function()
      local random, calls, pieces = generator(n), 0, 0
      for _ = 1, 12 do
        local list = program(random, ops, 14)
        local want
        for _, spec in ipairs { { "cpu", threads = 1 }, { "cpu", threads = 3 }, { "stress", arena = "256MiB" }, { "cpu", arena = "256MiB", threads = 2 } } do
          local eng = engines.open(spec[1], { arena = spec.arena, threads = spec.threads, poison = false })
          local tensors, wide = pool(eng, n)
          if not want then
            for _ = 1, 2 do run(eng, list, tensors) end
            want = bytes(tensors, wide)
            tensors, wide = pool(eng, n)
          end
          local step = eng:capture(function() run(eng, list, tensors) end)
          if spec[1] == "cpu" then calls, pieces = calls + step:stats().calls, pieces + step:stats().pieces end
          step:replay(2)
          local got = bytes(tensors, wide)
          for i = 1, #want do assert.is_true(want[i] == got[i], "tensor " .. i .. " differs") end
          engines.close()
        end
      end
      if n == LONG then
        assert.is_true(pieces < 0.8 * calls, ("%d calls in %d pieces"):format(calls, pieces))
      else
        assert.equal(calls, pieces)
      end
    end)
  end

  it("keep every result, those in between too", function()
    local eng = engines.open "cpu"
    local x = eng:persistent({ LONG }, 3)
    local a, b, c
    local step = eng:capture(function()
      a = x * 2
      b = a + x
      c = b:square()
    end)
    assert.equal(3, step:stats().calls)
    assert.equal(1, step:stats().pieces)
    step:replay()
    assert.equal(6, a:get(LONG))
    assert.equal(9, b:get(1))
    assert.equal(81, c:get(LONG))
  end)

  it("end at an op that may find a fault, so that the first one is named", function()
    local eng = engines.open "cpu"
    local x, y = eng:persistent({ LONG }, 7, { dtype = "i64" }), eng:persistent({ LONG }, 2, { dtype = "i64" })
    local step = eng:capture(function()
      local m = (x + 1) % y
      return (m + 1):pow(y - 3)
    end)
    y:set(LONG, 0)
    local ok, message = pcall(step.replay, step)
    assert.is_false(ok)
    assert.matches(("mod %%(at [^ ]*capture_chains_spec.lua:%%d+%%): element %d of 'b' is 0"):format(LONG), message)
  end)
end)
