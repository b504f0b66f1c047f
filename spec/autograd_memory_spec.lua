-- SPDX-License-Identifier: MIT
-- Autograd when memory runs out: every allocation fails once; the error says so, nothing is left pinned, the next step works.

local perilune = require "perilune"
local core = require "perilune.core"
local engines = require "spec.support.engines"

local library = core.library

local function collect() for _ = 1, 4 do collectgarbage() end end

local scale = perilune.op {
  name = "scale",
  forward = function(ctx, x, by) ctx:save(x, by) return x * by, x + by end,
  backward = function(ctx, g, h)
    local _, by = ctx:saved()
    return g * by + h
  end,
}

local programs = {
  ["a step"] = function(eng)
    local w, b = eng:param({ 4, 3 }, 0.5), eng:param({ 3 })
    local x = eng:tensor { { 1, 2, 3, 4 }, { 4, 3, 2, 1 } }
    local loss = (x:matmul(w) + b):tanh():cross_entropy(eng:tensor({ 1, 3 }, { dtype = "i64" }))
    loss:backward()
    eng:sgd(w, w.grad, 0.1)
  end,
  ["gradients of gradients"] = function(eng)
    local x = eng:param({ 3 }, 0.5)
    local g = perilune.grad((x * x * x):sum(), x, { create_graph = true })
    perilune.grad(g:sum(), x)
  end,
  ["ops in Lua"] = function(eng)
    local x = eng:param({ 3 }, 0.5)
    local a, b = scale(x:exp(), 2)
    local c = perilune.checkpoint(function(v) return v:tanh() * x end, a + b)
    c:backward(eng:ones { 3 })
  end,
  ["pieces"] = function(eng)
    local x = eng:param({ 40, 3 }, 0.5)
    local parts = { x:split(1) }
    eng:concat(parts, 2):layer_norm({ 120 }):sum():backward()
  end,
}

describe("autograd without memory", function()
  after_each(engines.close)

  engines.each(function(name, open)
    for what, program in pairs(programs) do
      it(("in %q on %s"):format(what, name), function()
        local n, failures = 1, 0
        repeat
          local eng = open { arena = name ~= "cpu" and "64KiB" or nil }
          library.alloc_fail_at(n)
          local ok, message = pcall(program, eng)
          local made = library.alloc_fail_at(0)
          if not ok then
            failures = failures + 1
            assert.matches("memory", message, 1, true)
          end
          collect()
          assert.equal(0, eng:stats().pins)
          assert.is_true(eng:recording())
          local again, why = pcall(program, eng)
          assert.is_true(again, why)
          collect()
          assert.equal(0, eng:stats().pins)
          if name ~= "cpu" then assert.equal("", eng.arena:check()) end
          eng:close()
          n = n + 1
          assert.is_true(n < 1000)
        until made < n - 1
        assert.is_true(failures > 0)
      end)
    end

    it("leaves nothing behind after the engine is closed on " .. name, function()
      local before
      for round = 1, 3 do
        local eng = open()
        local kept = {}
        for _, program in pairs(programs) do program(eng) end
        local p = eng:param({ 8 }, 1)
        for i = 1, 50 do kept[i] = (p * i):exp() end -- graphs that nobody goes back through
        eng:close()
        kept = nil -- luacheck: ignore
        collect()
        if round == 2 then before = library.alloc_live() end
        if round == 3 then assert.is_true(library.alloc_live() - before <= 2, "blocks were left: " .. library.alloc_live() - before) end
      end
    end)
  end)
end)
