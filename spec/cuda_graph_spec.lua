-- SPDX-License-Identifier: MIT
-- Captures as CUDA graphs, on every CUDA device that this machine offers. What holds for captures of any kind is in spec/contracts/c06_*.
-- Failures of the runtime are injected under the emulator; where that was not built these tests say so and are skipped.

local perilune = require "perilune"
local engines = require "spec.support.engines"
local footing = require "spec.support.footing"
local script = require "spec.support.script"
local steps = require "spec.support.steps"

local kinds = {}
for _, e in ipairs(perilune.engines()) do kinds[e.kind] = e end

local function collect() for _ = 1, 4 do collectgarbage() end end

--- Lets the arena's free memory be handed out and filled.
local function garbage(eng)
  for i = 1, 30 do eng:full({ 53 * i }, 0 / 0) end
end

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected: " .. text)
  assert.matches(text, message, 1, true)
  return message
end

local function same_state(want, got)
  for name, bytes in pairs(want) do assert.is_true(bytes == got[name], name .. " differs") end
end

local function captures_on(kind)
  local function open(options)
    local all = { arena = "1MiB" }
    for key, value in pairs(options or {}) do all[key] = value end
    return engines.open(kind, all)
  end

  it("are one graph: a node a launch, none for memory, one more where data can be at fault", function()
    local eng = open()
    local x, index = eng:persistent({ 64 }, 2), eng:persistent({ 2 }, 1, { dtype = "i64" })
    local step = eng:capture(function() return ((x * 3):exp() + 1):dropout(0.5) end)
    local s = step:stats()
    assert.equal(5, s.calls) -- the last one makes the next draw number
    assert.equal(5, s.pieces)
    local picks = eng:capture(function() return x:index_select(1, index) + 1 end)
    assert.equal(2, picks:stats().calls)
    assert.equal(3, picks:stats().pieces)
    local empty = eng:capture(function() end)
    empty:replay(3)
    assert.equal(0, empty:stats().pieces)
    local calls = eng:stats().calls
    step:replay(10)
    assert.equal(calls + 50, eng:stats().calls)
  end)

  it("give the bits of 1,000 eager steps from one call", function()
    local eager, captured = open { seed = 7 }, open { seed = 7 }
    local a, b = steps.mlp(eager), steps.mlp(captured)
    local step = captured:capture(b.step)
    captured:reset()
    garbage(captured)
    collect()
    step:replay(1000)
    for _ = 1, 1000 do
      a.step()
      eager:reset()
    end
    same_state(steps.read(a), steps.read(b))
    assert.equal(1001, b.state.count:item())
    assert.same(eager:rng(), captured:rng())
  end)

  it("follow the engine's draw number and seed, which steps between them move", function()
    local eager, captured = open(), open()
    local function noise(eng)
      local sum = eng:persistent { 7 }
      return sum, function() eng:add(sum, (eng:rand { 7 }):dropout(0.4) + eng:randn { 7 }, sum) end
    end
    local want, plain = noise(eager)
    local got, fn = noise(captured)
    local step = captured:capture(fn)
    for round = 1, 40 do
      if round % 10 == 0 then
        for _, eng in ipairs { eager, captured } do eng:rng { round, 3 * round } end
      end
      if round % 3 == 0 then
        for _, eng in ipairs { eager, captured } do eng:rand { 2 } end
      end
      for _ = 1, round % 4 do plain() end
      step:replay(round % 4)
      if round % 5 == 0 then captured:reset() end
    end
    assert.is_true(want:bytes() == got:bytes())
    assert.same(eager:rng(), captured:rng())
  end)

  it("hold what they use until they are released, which may be while replays wait", function()
    local eng = open()
    local sum, counter = eng:persistent({ 300 }, 0), eng:persistent({ 1 }, 1, { dtype = "i64" })
    local rows = eng:persistent({ 5, 300 }, 1)
    collect()
    local before = footing.of(eng)
    for round = 1, 20 do
      local step = eng:capture(function()
        local row = rows:index_select(1, counter)[1] * round
        eng:add(sum, row:sqrt() * row:sqrt() - row + 1, sum)
        eng:add(counter % 5, 1, counter)
      end)
      assert.is_true(step:stats().bytes > before.owned_bytes)
      collect()
      eng:reset()
      garbage(eng)
      eng:reset()
      step:replay(3)
      garbage(eng)
      step:replay(2)
      step:release()
      garbage(eng) -- the blocks serve again
      eng:reset()
    end
    assert.is_true(math.abs(sum:get(300) - 100) < 1e-3)
    assert.equal(1, counter:item())
    collect()
    local after = footing.of(eng)
    for _, what in ipairs { "offset", "live_blocks", "owned_bytes", "pins" } do assert.equal(before[what], after[what], what) end
    footing.check_arena(eng)
  end)

  it("replay beside each other on two engines, and end with their engine", function()
    local list = {}
    for i = 1, 2 do
      local eng = open { seed = i }
      local x = eng:persistent({ 100 }, 1)
      local step = eng:capture(function() eng:add(x * i, 1, x) end)
      list[i] = { eng = eng, x = x, step = step }
    end
    for _ = 1, 5 do
      for _, one in ipairs(list) do one.step:replay() end
    end
    assert.equal(6, list[1].x:get(100))
    assert.equal(63, list[2].x:get(100))
    list[1].step:replay(50)
    list[1].eng:close()
    fails("was closed at", list[1].step.replay, list[1].step)
    list[2].step:replay()
    assert.equal(127, list[2].x:get(1))
  end)

  it("name the first fault of the first replay that had one", function()
    local eng = open { places = true }
    local x, index = eng:persistent({ 3 }, { 1, 2, 3 }), eng:persistent({ 3 }, { 1, 1, 7 }, { dtype = "i64" })
    local move = eng:persistent({ 3 }, { 8, 8, -6 }, { dtype = "i64" })
    local y
    local step = eng:capture(function()
      y = x:gather(1, index)
      eng:add(index, move, index)
    end)
    step:replay(4) -- from the second on index 1 is wrong, too
    local message = fails("element 3 of 'index' is 7, valid are 1 to 3", eng.sync, eng)
    assert.matches("gather %(at .*cuda_graph_spec%.lua:%d+%)", message)
    step:replay()
    fails("element 1 of 'index' is 33", y.totable, y)
    index:copy(eng:tensor({ 3, 2, 1 }, { dtype = "i64" }))
    step:replay()
    assert.same({ 3, 2, 1 }, y:totable())
  end)
end

describe("captures on", function()
  after_each(engines.close)
  for _, kind in ipairs { "cuda", "cuda-emu" } do
    if kinds[kind].available then
      describe(kind, function() captures_on(kind) end)
    end
  end
end)

local emulated = kinds["cuda-emu"].available and it or function(name)
  it(name, function() pending("the emulator was not built: " .. kinds["cuda-emu"].reason) end)
end

describe("captures on the emulated device", function()
  local TRAIN = [[
    local perilune, steps = require "perilune", require "spec.support.steps"
    for _, make in ipairs { steps.hazard, steps.mlp } do
      local eng = perilune.engine { "cuda-emu", arena = "1MiB" }
      local program = make(eng)
      local step, made = eng:capture(program.step)
      for i = 1, 6 do
        step:replay(i)
        for k = 1, 20 do eng:full({ 37 * k }, 0 / 0) end
        eng:reset()
      end
      local names = {}
      for name in pairs(program.state) do names[#names + 1] = name end
      table.sort(names)
      for _, name in ipairs(names) do io.write(program.state[name]:bytes(), "|") end
      io.write(made:bytes(), "|")
      io.stderr:write(step:stats().pieces > step:stats().calls and "graph " or "records ")
      eng:close()
    end
  ]]

  emulated("give the same bits in every order of execution, with graphs and without", function()
    local want = {}
    for _, graphs in ipairs { "PERILUNE_CUDA_GRAPHS=0", "PERILUNE_CUDA_SYNC=1", "PERILUNE_CUDA_GRAPHS=1" } do
      local output, status = script.run("PLEMU_MODE=sync " .. graphs, TRAIN)
      assert.equal(0, status, output)
      local kind = graphs:match "GRAPHS=1" and "graph " or "records "
      local bits, found = output:gsub(kind, "")
      assert.equal(2, found, graphs)
      assert.is_true(#bits > 5000)
      want[1] = want[1] or bits
      assert.is_true(want[1] == bits, graphs)
    end
    for seed = 0, 3 do
      for _, mode in ipairs { "lazy", "async" } do
        local got = script.run(("PLEMU_MODE=%s PLEMU_SEED=%d PLEMU_JITTER_US=%d"):format(mode, seed, seed == 3 and 50 or 0), TRAIN)
        assert.is_true(want[1] == got:gsub("graph ", ""), mode .. seed)
      end
    end
    local guarded = script.run("PLEMU_MODE=lazy PLEMU_GUARD=1", TRAIN) -- a host access would end the process
    assert.is_true(want[1] == guarded:gsub("graph ", ""), "guarded")
  end)

  -- a capture, two replays of it, then both again; each failure is printed, and none may change what the rest gives
  local FAILS = [[
    local perilune, footing = require "perilune", require "spec.support.footing"
    local eng = perilune.engine { "cuda-emu", arena = "1MiB", poison = false }
    local x = eng:persistent({ 4 }, { 1, 2, 3, 4 })
    local counter = eng:persistent({ 1 }, 0, { dtype = "i64" })
    eng:sync()
    collectgarbage() collectgarbage()
    local before = footing.of(eng)
    local function capture()
      local y
      local step = eng:capture(function()
        y = (x:index_select(1, counter + 1) * 2):dropout(0.5) + eng:rand { 1 }
        eng:add(counter, 1, counter)
      end)
      return step, y
    end
    local ok, step, y = pcall(capture)
    if not ok then
      print(step)
      collectgarbage() collectgarbage()
      for what, value in pairs(footing.of(eng)) do assert(value == before[what], what) end
      footing.check_arena(eng)
      assert((x + 1):sum():item() == 14)
      step, y = capture()
    end
    local again, message = pcall(step.replay, step, 2)
    if not again then print(message) end
    local done = counter:item()
    assert(done == step:stats().replays and eng:rng()[2] == 2 * done, "steps that were done")
    step:replay(3 - done)
    assert(counter:item() == 3)
    local other = perilune.engine { "cuda-emu", arena = "1MiB" } -- no capture of this thread is left that forbids it
    assert(other:ones { 2 }:sum():item() == 2)
    local twin, noise = other:tensor { 3 }, nil
    other:rng { 0, 4 }
    noise = (twin * 2):dropout(0.5) + other:rand { 1 }
    assert(noise:bytes() == y:bytes(), "the third step's result")
    step:release()
    eng:close()
    print "went on"
  ]]

  for call, nth in pairs {
    cudaStreamCreateWithFlags = 2, cudaFuncGetAttributes = 4, cudaStreamBeginCapture = 1, cudaStreamEndCapture = 1, cudaGraphGetNodes = 1,
    cudaGraphInstantiate = 1, cudaGraphUpload = 1, cudaStreamDestroy = 1,
  } do
    emulated(("fail with its error when %s does, and the engine goes on"):format(call), function()
      local output, status = script.run(("PLEMU_FAIL=%s:%d:801"):format(call, nth), FAILS)
      assert.equal(0, status, output)
      local what = call == "cudaFuncGetAttributes" and "" or call .. ": "
      assert.matches(("%%.lua:%%d+: capture: .*%scudaErrorNotSupported: .*PERILUNE_CUDA_GRAPHS=0"):format(what), output)
      assert.matches("went on", output, 1, true)
      if call == "cudaStreamCreateWithFlags" then return end -- the second engine calls it
      output, status = script.run(("PERILUNE_CUDA_GRAPHS=0 PLEMU_FAIL=%s:%d:801"):format(call, nth), FAILS)
      assert.equal(0, status, output) -- nobody calls it, but at the end of an engine
      assert.not_matches("cudaErrorNotSupported", output, 1, true)
    end)
  end

  emulated("fail with op and launch when a launch does, in the capture too, and the engine goes on", function()
    local inside, outside = 0, 0
    for nth = 4, 16 do
      local output = script.run(("PLEMU_FAIL=cudaLaunchKernel:%d:1"):format(nth), FAILS)
      local message = output:match "[^\n]*: cudaErrorInvalidValue: [^\n]*"
      assert.is_not_nil(message, output)
      if message:find(": capture: ", 1, true) then
        inside = inside + 1
        assert.matches("went on", output, 1, true)
        assert.matches("with grid (", message, 1, true)
      else
        outside = outside + 1
      end
    end
    assert.is_true(inside >= 6 and outside >= 1, inside .. " " .. outside)
  end)

  emulated("stop at the step whose launch fails, and go on from there", function()
    for nth = 1, 2 do
      local output, status = script.run(("PLEMU_FAIL=cudaGraphLaunch:%d:1"):format(nth), FAILS)
      assert.equal(0, status, output)
      assert.matches("%.lua:%d+: replay: cudaGraphLaunch: cudaErrorInvalidValue: ", output)
      assert.matches("went on", output, 1, true)
    end
  end)
end)

describe("memory of the emulated device", function()
  local SYNCHRONOUS = "cudaMallocHost:3+:2,cudaHostAlloc:1+:2,cudaHostRegister:1+:2,cudaMallocPitch:1+:2,cudaMalloc3D:1+:2"
  local WORK = [[
    local perilune, steps = require "perilune", require "spec.support.steps"
    require("perilune.report").on_report(false)
    local eng = perilune.engine { "cuda-emu", arena = "256KiB", managed = %s, poison = { redzone = 64 } }
    for round = 1, 2 do
      local program = steps.mlp(eng)
      program.step()
      eng:reset()
      local step = eng:capture(program.step)
      step:replay(20)
      local large = eng:ones { 1e6 } -- beyond the arena
      assert(eng:stats().overflow_bytes > 0)
      large:set(1e6, 3)
      assert((large * 2):sum():item() == 2e6 + 4)
      assert(#large:bytes() == 4e6 and #tostring(program.state.p1) > 100)
      eng:persistent({ 3e5 }, 1):copy(eng:tensor(large:narrow(1, 1, 3e5):totable()))
      assert(eng:ones({ 40, 5000 }):sum(2):sum():item() == 2e5)
      local y = eng:rand { 64, 64 }
      assert((y:matmul(y)):get(1, 1) > 0)
      step:release()
      eng:reset()
      eng:sync()
    end
    eng:close()
    print "worked"
  ]]

  emulated("is allocated synchronously when an engine is made, and never after that", function()
    for managed, arena in pairs { ["false"] = "cudaMalloc:2+:2,cudaMallocManaged:1+:2", ["true"] = "cudaMalloc:1+:2,cudaMallocManaged:2+:2" } do
      local output, status = script.run(("PLEMU_FAIL=%s,%s"):format(arena, SYNCHRONOUS), WORK:format(managed))
      assert.equal(0, status, output)
      assert.matches("worked", output, 1, true)
    end
    for _, fault in ipairs { "cudaMalloc:1+:2", "cudaMallocHost:2+:2", "cudaMallocAsync:1+:2" } do -- these would be noticed
      local output = script.run("PLEMU_FAIL=" .. fault, WORK:format "false")
      assert.matches("out of", output, 1, true)
      assert.not_matches("worked", output, 1, true)
    end
  end)

  emulated("is managed on demand, where host and device may use it at once", function()
    local CODE = [[
      local perilune = require "perilune"
      local eng = perilune.engine { "cuda-emu", managed = true }
      local x = eng:tensor { 1, 2 }
      local step = eng:capture(function() eng:add(x, 1, x) end)
      eng:reset()
      step:replay(3)
      print(x:get(2))
    ]]
    local output, status = script.run("PLEMU_FAIL=cudaMalloc:1+:2", CODE)
    assert.equal(0, status, output)
    assert.equal("5", output:match "%d+")
    output, status = script.run("PLEMU_DEVICE=gb10", CODE)
    assert.equal(1, status)
    assert.matches("%.lua:2: managed = true: device 1 does not support concurrent access to managed memory", output)
    output = script.run("PLEMU_FAIL=cudaMallocManaged:1:801", CODE)
    assert.matches("%.lua:2: .*cudaMallocManaged: cudaErrorNotSupported", output)
    fails("engine: option 'managed' is for CUDA devices, not for cpu", perilune.engine, { "cpu", managed = true })
    fails("option 'managed' is a boolean, got number", perilune.engine, { "cuda-emu", managed = 1 })
  end)
end)
