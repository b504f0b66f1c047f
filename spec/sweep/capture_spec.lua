-- SPDX-License-Identifier: MIT
-- Every op captured and replayed (C6), forward and backward: nothing runs in the capture, and each replay, also after a reset and with the rest
-- of the arena full of NaN, gives the bits of an eager call. An op that the table declares to need data on the host is refused by name.

local core = require "perilune.core"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

local LIMIT, GRADIENTS = 70000, 1000 -- elements of operands
local STATE = { 7, 3 }

--- Lets the arena's free memory be handed out and filled.
local function garbage(eng)
  for i = 1, 40 do eng:full({ 37 * i }, 0 / 0) end
end

local function tensors(args)
  local list = {}
  for k = 1, args.n do
    local v = args[k]
    if core.tensor.is_tensor(v) then list[#list + 1] = v end
    if type(v) == "table" then
      for _, one in ipairs(v) do
        if core.tensor.is_tensor(one) then list[#list + 1] = one end
      end
    end
  end
  return list
end

local function bytes(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = t:bytes() end
  return table.concat(out, "|")
end

--- Results of n eager calls on the same tensors.
local function eagerly(e, row, sample, values, n)
  local args = samples.build(e.eng, row, sample, values)
  e.eng:rng(STATE)
  local results = {}
  for i = 1, n do results[i] = sweep.results(samples.call(e.eng, row, args)) end
  return results, e.eng:rng()
end

local function captured(e, row, sample, values, want, after, what)
  local eng = e.eng
  local args = samples.build(eng, row, sample, values)
  local before = bytes(tensors(args))
  eng:rng(STATE)
  local calls, out = eng:stats().calls, nil
  local step = eng:capture(function() out = samples.call(eng, row, args) end)
  if eng:stats().calls ~= calls then error(what .. ": something ran in the capture", 0) end
  if bytes(tensors(args)) ~= before then error(what .. ": an operand has changed in the capture", 0) end
  for i = 1, #want do
    eng:reset()
    garbage(eng)
    step:replay()
    sweep.same_bits(sweep.results(out), want[i], ("%s, replay %d"):format(what, i))
  end
  if eng:rng()[2] ~= after[2] then error(("%s: draw number %d, not %d"):format(what, eng:rng()[2], after[2]), 0) end
  step:release()
end

local function refused(e, row, sample, values, what)
  local args = samples.build(e.eng, row, sample, values)
  local ok, message = pcall(e.eng.capture, e.eng, function() samples.call(e.eng, row, args) end)
  if ok or not message:find(row.name .. " is not possible during a capture", 1, true) then
    error(("%s: an error was expected, got %s"):format(what, tostring(message)), 0)
  end
end

--- The gradients of the float operands after n backwards, from one tensor of ones per result.
local function gradients(eng, row, args, n, replayed)
  local leaves = {}
  for _, t in ipairs(tensors(args)) do
    if t.dtype:match "^f" then leaves[#leaves + 1] = t:requires_grad(true) end
  end
  eng:rng(STATE)
  local function step()
    for _, y in ipairs(samples.call(eng, row, args)) do
      if y:requires_grad() then y:backward(y:detach():cos(), { retain = true }) end
    end
  end
  if replayed then
    local captured_step = eng:capture(step)
    eng:reset()
    garbage(eng)
    captured_step:replay(n)
  else
    for _ = 1, n do step() end
  end
  local list = {}
  for _, t in ipairs(leaves) do
    if t.grad then list[#list + 1] = t.grad end
  end
  return list
end

local function persistent(eng, row, sample, values)
  return samples.build(eng, row, sample, values, { make = function(engine, array)
    local t = engine:persistent(array.shape, nil, { dtype = array.dtype })
    return t:set_bytes(samples.encode(array))
  end })
end

describe("every op in a capture:", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  for _, row in ipairs(sweep.rows) do
    if #samples.of(row) > 0 and row.name ~= "empty" then
      it(row.name, function()
        local tried, went_back = 0, 0
        sweep.each(row, LIMIT, function(sample, _, values, what)
          tried = tried + 1
          for _, e in ipairs(list) do
            local on = what .. " on " .. e.kind
            if row.host_read then
              refused(e, row, sample, values, on)
            else
              local want, after = eagerly(e, row, sample, values, 2)
              captured(e, row, sample, values, want, after, on)
            end
            if row.differentiable and not row.host_read and sweep.size(sample) <= GRADIENTS then
              local a = gradients(e.eng, row, persistent(e.eng, row, sample, values), 3, false)
              local b = gradients(e.eng, row, persistent(e.eng, row, sample, values), 3, true)
              sweep.same_bits(sweep.results(b), sweep.results(a), on .. ", gradients")
              went_back = went_back + #a
            end
          end
          sweep.settle(list)
        end)
        assert.is_true(tried > 0)
        if row.differentiable and not row.host_read then assert.is_true(went_back > 0, "no gradient was compared") end
      end)
    end
  end
end)
