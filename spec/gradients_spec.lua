-- SPDX-License-Identifier: MIT
-- Every op with a derivative: its gradient, and the gradient of that, against central differences in f64 of every element. Small samples
-- only; perilune.gradcheck is the harness for all of them.

local core = require "perilune.core"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"

local STEP, TOLERANCE, MOST = 1e-5, 2e-6, 60

local gradients, flat = core.autograd.gradients, core.tensor.flat

-- Ops whose second derivative is that of another op, or which have none by nature.
local first_only = { cast = "to another dtype" }

local function noise(i)
  local v = math.sin(12.9898 * i + 4.1) * 43758.5453
  return (v - math.floor(v)) * 2 - 1
end

local function is_real(array) return array.dtype == "f64" end

-- The op on fresh tensors; with `leaf` the f64 ones require grad. Results, and those tensors in order.
local function run(eng, row, sample, values, leaf)
  if row.random then eng:rng { 5, 2 } end
  local leaves = {}
  local args = samples.build(eng, row, sample, values, {
    make = function(e, array)
      local t = samples.layouts.contiguous.make(e, array)
      if is_real(array) then leaves[#leaves + 1] = leaf and t:requires_grad(true) or t end
      return t
    end,
  })
  return samples.call(eng, row, args), leaves
end

-- Results that require grad, and a cotangent for each.
local function outputs_of(eng, results)
  local outputs, cotangents = {}, {}
  for i, r in ipairs(results) do
    if r:requires_grad() then
      local values = {}
      for k = 1, r:numel() do values[k] = noise(k + 31 * i) end
      outputs[#outputs + 1] = r
      cotangents[#cotangents + 1] = eng:tensor(values, { dtype = r.dtype, shape = r.shape })
    end
  end
  return outputs, cotangents
end

-- sum over i and k of t_i[k] * noise, as a number or recorded.
local function weighed(eng, list, recorded)
  local total = 0
  for i, t in ipairs(list) do
    local values = {}
    for k = 1, t:numel() do values[k] = noise(7 * k + i) end
    local part = (t * eng:tensor(values, { dtype = t.dtype, shape = t.shape })):sum()
    total = total + (recorded and part or part:item())
  end
  return total
end

local function compare(values, row, found, value_of)
  local number = 0
  samples.map(row, values, function(array)
    if not is_real(array) then return array end
    number = number + 1
    for k = 1, #array do
      local kept = array[k]
      array[k] = kept + STEP
      local above = value_of()
      array[k] = kept - STEP
      local below = value_of()
      array[k] = kept
      local want, got = (above - below) / (2 * STEP), found and found[number][k] or 0
      if not (math.abs(want - got) <= TOLERANCE * math.max(1, math.abs(want))) and (want == want or got == got) then
        error(("operand %d, element %d: %.10g, differences give %.10g"):format(number, k, got, want), 0)
      end
    end
    return array
  end)
end

local function flats(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = flat(t) end
  return out
end

local function check_first(eng, row, sample, values)
  local results, leaves = run(eng, row, sample, values, true)
  local outputs, cotangents = outputs_of(eng, results)
  if #outputs == 0 then return false end
  local found = flats(gradients(outputs, leaves, cotangents, { allow_unused = true }))
  local differentiable = {}
  for i, r in ipairs(results) do differentiable[i] = r:requires_grad() end
  compare(values, row, found, function()
    local list, again = run(eng, row, sample, values, false), {}
    for i, r in ipairs(list) do if differentiable[i] then again[#again + 1] = r end end
    local total = 0
    for i, r in ipairs(again) do total = total + (r * cotangents[i]):sum():item() end
    return total
  end)
  return true
end

local function check_second(eng, row, sample, values)
  local results, leaves = run(eng, row, sample, values, true)
  local outputs, cotangents = outputs_of(eng, results)
  local first = gradients(outputs, leaves, cotangents, { allow_unused = true, create_graph = true })
  local scalar = weighed(eng, first, true)
  local found = scalar:requires_grad() and flats(gradients({ scalar }, leaves, nil, { allow_unused = true })) or nil
  compare(values, row, found, function()
    local again, inputs = run(eng, row, sample, values, true)
    return weighed(eng, gradients(outputs_of(eng, again), inputs, cotangents, { allow_unused = true }))
  end)
end

local function count(row, values)
  local n = 0
  samples.map(row, values, function(array) n = n + #array return array end)
  return n
end

-- Ties and kinks have no derivative.
local function is_smooth(row, sample) return not (sample.text:find("=1", 1, true) and (row.domain:find "tie" or row.name:find "imum$")) end

describe("gradients", function()
  after_each(engines.close)

  for _, row in ipairs(core.ops.rows) do
    if row.differentiable then
      it("of " .. row.name .. " are those of differences, and so are theirs", function()
        local eng = engines.open "cpu"
        local checked, tried = 0, 0
        for _, sample in ipairs(samples.of(row)) do
          if not sample.bad and is_smooth(row, sample) then
            local values = samples.values(row, sample, { dtype = "f64", kinks = "avoid" })
            local wanted = not first_only[row.name] or sample.text:find "f64"
            if count(row, values) <= MOST and wanted then
              tried = tried + 1
              local ok, message = pcall(function()
                if not check_first(eng, row, sample, values) then return end
                checked = checked + 1
                if not (row.name == "norm" and sample.text:find "inf") then check_second(eng, row, sample, values) end
              end)
              if not ok then error(("%s %s: %s"):format(row.name, sample.text, message), 0) end
            end
          end
        end
        assert.is_true(checked > 0 or tried == 0, "no sample was checked")
        collectgarbage() collectgarbage()
        assert.equal(0, eng:stats().pins)
      end)
    end
  end

  it("of dropout follow its mask", function()
    local eng = engines.open "cpu"
    local x = eng:param({ 1000 }, 1)
    local y = x:dropout(0.3)
    y:sum():backward()
    assert.equal(y:bytes(), x.grad:bytes())
    x.grad = 0
    x:dropout(0.3, false):sum():backward()
    assert.equal(eng:ones({ 1000 }):bytes(), x.grad:bytes())
  end)

  it("of norms are zero where the norm is", function()
    local eng = engines.open "cpu"
    for _, p in ipairs { 2, 3, 1, 0.5 } do
      local x = eng:param({ 2, 2 }, { 0, 0, 3, 4 })
      x:norm(p, 2):sum():backward()
      assert.same({ 0, 0 }, x.grad:totable()[1])
    end
  end)

  it("of products are right beside zeros", function()
    local eng = engines.open "cpu"
    local x = eng:param({ 3, 3 }, { 2, 3, 4, 2, 0, 4, 0, 0, 4 })
    x:prod(2):sum():backward()
    assert.same({ { 12, 8, 6 }, { 0, 8, 0 }, { 0, 0, 0 } }, x.grad:totable())
  end)
end)
