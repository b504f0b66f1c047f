-- SPDX-License-Identifier: MIT
-- The CUDA device under the emulator: which engines there are, orders of execution, errors of the device. Where the emulator was not built
-- these tests say so and are skipped.

local perilune = require "perilune"
local engines = require "spec.support.engines"
local script = require "spec.support.script"

local run = script.run

local kinds = {}
for _, e in ipairs(perilune.engines()) do kinds[e.kind] = e end

describe("the engine list", function()
  it("has cuda and cuda-emu, with the reason where one is absent", function()
    for _, kind in ipairs { "cuda", "cuda-emu" } do
      assert.is_not_nil(kinds[kind], kind)
      if not kinds[kind].available then
        assert.is_true(#kinds[kind].reason > 10)
        local ok, message = pcall(perilune.engine, kind)
        assert.is_false(ok)
        assert.matches(("engine: %s is not available: "):format(kind), message, 1, true)
      end
    end
  end)
end)

local emulated = kinds["cuda-emu"].available and it or function(name)
  it(name, function() pending("the emulator was not built: " .. kinds["cuda-emu"].reason) end)
end

describe("the emulated device", function()
  after_each(engines.close)

  local TRAIN = [[
    local perilune = require "perilune"
    local hazard, attention = dofile "examples/hazard_loop.lua", dofile "examples/attention_loop.lua"
    local function bits(train, loop, names)
      local eng = perilune.engine { "cuda-emu", arena = "1MiB" }
      local run = train(eng, loop.defaults)
      for _, name in ipairs(names) do
        for _, row in ipairs(run[name]) do for _, v in ipairs(row) do io.write(("%.17g "):format(v)) end end
      end
      for _, v in ipairs(run.losses) do io.write(("%.17g "):format(v)) end
      eng:close()
    end
    bits(hazard.train, hazard, { "W1", "W2" })
    bits(hazard.train_autograd, hazard, { "W1", "W2" })
    bits(attention.train, attention, { "Wq", "Wk", "Wv" })
    print()
  ]]

  emulated("gives the same bits in every order of execution", function()
    local want, status = run("PLEMU_MODE=sync", TRAIN)
    assert.equal(0, status, want)
    assert.is_true(#want > 5000)
    for seed = 0, 3 do
      for _, mode in ipairs { "lazy", "async" } do
        local got = run(("PLEMU_MODE=%s PLEMU_SEED=%d PLEMU_JITTER_US=%d"):format(mode, seed, seed == 3 and 50 or 0), TRAIN)
        assert.equal(want, got, mode .. seed)
      end
    end
  end)

  emulated("is never touched by the host", function()
    local output, status = run("PLEMU_GUARD=1 PLEMU_MODE=lazy", TRAIN)
    assert.equal(0, status, output)
  end)

  emulated("keeps two engines on one device apart, and copies between them", function()
    local a, b = engines.open "cuda-emu", engines.open "cuda-emu"
    local x = a:tensor { 1, 2, 3 } * 2
    local y = x:to(b) + 1
    assert.same({ 3, 5, 7 }, y:totable())
    assert.same({ 3, 5, 7 }, y:to(engines.open "stress"):totable())
    assert.has_error(function() return x + y end)
    a:reset()
    assert.same({ 4, 6, 8 }, (y + 1):totable())
    a:close()
    assert.same({ 3, 5, 7 }, y:totable())
  end)

  emulated("refuses a device that is not there", function()
    local ok, message = pcall(perilune.engine, { "cuda-emu", device = 9 })
    assert.is_false(ok)
    assert.matches("device = 9 was asked for", message, 1, true)
  end)

  emulated("names op, error and launch of a kernel that fails", function()
    local output = run("PLEMU_FAIL=cudaLaunchKernel:40+:1 PERILUNE_CUDA_SYNC=1", [[
      local eng = require("perilune").engine "cuda-emu"
      local x = eng:ones { 1000 }
      for _ = 1, 100 do x = x:exp():tanh() end
      print(x:sum():item())
    ]])
    assert.matches("%.lua:%d+: ", output)
    assert.matches("with grid (", output, 1, true)
    assert.matches("cudaErrorInvalidValue", output, 1, true)
  end)

  emulated("goes on after it was out of memory", function()
    local output, status = run("PLEMU_MEMORY=64M", [[
      local eng = require("perilune").engine { "cuda-emu", arena = "1MiB" }
      require("perilune.report").on_report(false)
      local ok, message = pcall(function() return eng:zeros { 1e8 } end)
      assert(not ok and message:find "out of memory: 400000000 bytes asked", message)
      assert((eng:ones { 10 } + 1):sum():item() == 20)
      print "fine"
    ]])
    assert.equal(0, status, output)
    assert.matches("fine", output, 1, true)
  end)

  emulated("raises at the wait what only data can tell, and goes on", function()
    local eng = engines.open("cuda-emu", { places = true })
    local x = eng:tensor { 1, 2, 3 }
    local y = x:gather(1, eng:tensor({ 2, 9 }, { dtype = "i64" }))
    local ok, message = pcall(y.totable, y)
    assert.is_false(ok)
    assert.matches("gather (at ", message, 1, true)
    assert.matches("element 2 of 'index' is 9, valid are 1 to 3", message, 1, true)
    assert.equal(6, x:sum():item())
  end)
end)
