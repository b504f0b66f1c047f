-- SPDX-License-Identifier: MIT
-- Scaled dot-product attention: sizes beyond one block, masks, rows with nothing kept, layouts, gradients of every way.

local perilune = require "perilune"
local core = require "perilune.core"
local reference = require "spec.support.reference"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"

local function near(want, got, tolerance)
  assert.equal(#want, #got)
  for i = 1, #want do
    if not (math.abs(want[i] - got[i]) <= tolerance * math.max(1, math.abs(want[i]))) then
      error(("element %d: %.12g, expected %.12g"):format(i, got[i], want[i]), 2)
    end
  end
end

local function array_of(t) return samples.read(t) end
local flat = core.tensor.flat

describe("sdpa", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      -- values that need no random numbers, the same on every engine
      local function waves(eng, shape, phase, dtype)
        local n, values = 1, {}
        for _, s in ipairs(shape) do n = n * s end
        for i = 1, n do values[i] = math.sin(phase + 0.37 * i + 0.11 * (i % 7)) end
        return eng:tensor(values, { shape = shape, dtype = dtype or "f64" })
      end

      it("agrees with the definition across blocks, with masks and broadcast batches", function()
        local eng = open { arena = name ~= "cpu" and "16MiB" or nil }
        for _, case in ipairs {
          { { 33, 5 }, { 65, 5 }, 3 }, { { 2, 70, 8 }, { 2, 130, 8 }, 4, causal = true }, { { 3, 1, 40, 4 }, { 2, 70, 4 }, 2 },
          { { 2, 40, 4 }, { 2, 70, 4 }, 4, keep = { 40, 70 } }, { { 40, 4 }, { 130, 4 }, 2, add = { 130 }, causal = true, scale = 0.3 },
        } do
          local q, k = waves(eng, case[1], 0.1), waves(eng, case[2], 0.5)
          local v_shape = { unpack(case[2]) }
          v_shape[#v_shape] = case[3]
          local v, mask = waves(eng, v_shape, 0.9), nil
          if case.keep then mask = waves(eng, case.keep, 2):gt(0.2) end
          if case.add then mask = waves(eng, case.add, 3) end
          local want = reference.ops.sdpa(array_of(q), array_of(k), array_of(v), mask and array_of(mask), case.causal, case.scale)
          local got = eng:sdpa(q, k, v, mask, case.causal, case.scale)
          assert.same(want.shape, got.shape)
          near(want, flat(got), 1e-12)
          local single = eng:sdpa(q:to "f32", k:to "f32", v:to "f32", case.add and mask:to "f32" or mask, case.causal, case.scale)
          near(want, flat(single), 2e-6)
        end
      end)

      it("gives zeros and no gradient in rows with nothing kept", function()
        local eng = open()
        local q, k, v = eng:param({ 3, 2 }, waves(eng, { 3, 2 }, 1, "f32")), eng:param({ 4, 2 }, 0.5), eng:param({ 4, 2 }, 2)
        local keep = eng:tensor({ { 1, 1, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 1, 1 } }, { dtype = "bool" })
        local y = eng:sdpa(q, k, v, keep)
        assert.same({ { 2, 2 }, { 0, 0 }, { 2, 2 } }, y:totable())
        y:backward(eng:ones { 3, 2 })
        assert.same({ 0, 0 }, q.grad:totable()[2])
        for _, t in ipairs { q.grad, k.grad, v.grad } do assert.is_true(t:isfinite():all():item()) end
        local low = eng:full({ 3, 4 }, -math.huge)
        assert.same({ { 0, 0 }, { 0, 0 }, { 0, 0 } }, eng:sdpa(q:detach(), k:detach(), v:detach(), low):totable())
      end)

      it("has the gradients of the formula, fused, recorded and for the mask", function()
        local eng = open { arena = name ~= "cpu" and "64MiB" or nil }
        for _, case in ipairs { { L = 40, S = 70 }, { L = 70, S = 130, causal = true }, { L = 33, S = 40, keep = true }, { L = 5, S = 70, add = true } } do
          local q, k = eng:param({ 2, case.L, 4 }, waves(eng, { 2, case.L, 4 }, 1), { dtype = "f64" }), eng:param({ 1, case.S, 4 },
            waves(eng, { 1, case.S, 4 }, 2), { dtype = "f64" })
          local v = eng:param({ 2, case.S, 3 }, waves(eng, { 2, case.S, 3 }, 3), { dtype = "f64" })
          local mask = case.keep and waves(eng, { case.L, case.S }, 4):gt(0) or case.add and eng:param({ case.S }, waves(eng, { case.S }, 4), { dtype = "f64" })
          local g = waves(eng, { 2, case.L, 3 }, 5)
          local function by_ops()
            local s = q:matmul(k:transpose(2, 3)) * 0.5
            if case.keep then s = s:masked_fill(mask:logical_not(), -1e30) end
            if case.add then s = s + mask end
            if case.causal then s = s:masked_fill(eng:ones { case.L, case.S }:tril():eq(0), -1e30) end
            return s:softmax(3):matmul(v)
          end
          local inputs = { q, k, v }
          if case.add then inputs[4] = mask end
          local want = perilune.grad(by_ops(), inputs, { grad_outputs = g })
          local got = perilune.grad(eng:sdpa(q, k, v, mask or nil, case.causal), inputs, { grad_outputs = g })
          local recorded = perilune.grad(eng:sdpa(q, k, v, mask or nil, case.causal), inputs, { grad_outputs = g, create_graph = true })
          for i = 1, #inputs do
            near(flat(want[i]), flat(got[i]), 1e-11)
            near(flat(want[i]), flat(recorded[i]), 1e-11)
          end
        end
      end)

      it("gives the same bits for any layout and destination", function()
        local eng = open { arena = name ~= "cpu" and "16MiB" or nil }
        local q, k, v = waves(eng, { 2, 40, 6 }, 1, "f32"), waves(eng, { 2, 70, 6 }, 2, "f32"), waves(eng, { 2, 70, 5 }, 3, "f32")
        local want = eng:sdpa(q, k, v):bytes()
        local function turned(t) return t:transpose(2, 3):contiguous():transpose(2, 3) end
        assert.equal(want, eng:sdpa(turned(q), turned(k), turned(v)):bytes())
        local out = eng:zeros { 2, 5, 40 }:transpose(2, 3)
        assert.equal(out, eng:sdpa(q, k, v, nil, nil, nil, out))
        assert.equal(want, out:bytes())
        eng:sdpa(k, k, k, nil, nil, nil, k)
      end)

      it("gives NaN where a value depends on one", function()
        local eng = open()
        local q, k, v = waves(eng, { 2, 2 }, 1, "f32"), waves(eng, { 3, 2 }, 2, "f32"), waves(eng, { 3, 2 }, 3, "f32")
        q:set(1, 1, 0 / 0)
        local y = eng:sdpa(q, k, v)
        assert.is_true(y[1]:isnan():all():item())
        assert.is_true(y[2]:isfinite():all():item())
        q:set(1, 1, 1)
        v:set(2, 1, 0 / 0)
        y = eng:sdpa(q, k, v)
        assert.same({ { true, false }, { true, false } }, y:isnan():totable())
      end)
    end)
  end)
end)
