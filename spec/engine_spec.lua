-- SPDX-License-Identifier: MIT
-- Opening engines, their options and environment, statistics, the raw arena, engines side by side.

local perilune = require "perilune"
local engines = require "spec.support.engines"

local launcher = os.getenv "PERILUNE_LAUNCHER"

local function run(environment, code)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(code)
  file:close()
  local pipe = io.popen(("cd /tmp && env %s '%s' %s 2>&1"):format(environment, launcher, path))
  local output = pipe:read "*a"
  pipe:close()
  os.remove(path)
  return (output:gsub("%s+$", ""))
end

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return message
end

describe("engine", function()
  after_each(engines.close)

  it("lists every kind with availability", function()
    local kinds = {}
    for _, e in ipairs(perilune.engines()) do
      kinds[e.kind] = e
      assert.is_boolean(e.available)
      if not e.available then assert.is_string(e.reason) end
    end
    assert.is_true(kinds.cpu.available)
    assert.is_true(kinds.stress.available)
  end)

  it("refuses wrong kinds and options at the caller's line, with the nearest name", function()
    for expected, spec in pairs {
      ["did you mean 'stress'"] = "stres", ["did you mean 'poison'"] = { "cpu", poisen = true }, ["'seed' is a number"] = { "cpu", seed = "x" },
      ["a size such as"] = { "cpu", arena = "64 parsecs" }, ["at least 4096"] = { "cpu", arena = 100 },
      ["stale is \"error\" or \"allow\""] = { "cpu", stale = "maybe" }, ["needs an arena"] = { "stress", arena = 0 },
      ["is none of reset, free, alloc"] = { "cpu", poison = { on = { "rest" } } }, ["seed is a whole number"] = { "cpu", seed = -1 },
      ["no file for \"nonsense\""] = { "cpu", poison = "nonsense" },
    } do
      local message = message_of(perilune.engine, spec)
      assert.matches(expected, message, 1, true)
    end
    local line = debug.getinfo(1, "l").currentline + 1
    local _, message = pcall(function() perilune.engine "nothing like it" end)
    assert.matches("engine_spec.lua:" .. line, message, 1, true)
    assert.matches("device = 2", message_of(perilune.engine, { "cpu", device = 2 }), 1, true)
  end)

  it("takes defaults from the environment", function()
    local code = [[
      local e = require "perilune".engine()
      local s, p = e:stats(), e:poison()
      print(e.kind, s.capacity, "poison " .. table.concat(p.on, "+"))]]
    assert.equal("cpu\t0\tpoison", run("-u PERILUNE_ENGINE", code))
    assert.equal("stress\t67108864\tpoison reset+free+alloc", run("PERILUNE_ENGINE=stress", code))
    assert.equal("stress\t131072\tpoison", run("PERILUNE_ENGINE=stress PERILUNE_ARENA=128KiB PERILUNE_POISON=0", code))
    assert.equal("stress\t67108864\tpoison reset+alloc", run("PERILUNE_ENGINE=stress PERILUNE_POISON=reset,alloc", code))
    assert.matches("there is no kind \"gpu9\"", run("PERILUNE_ENGINE=gpu9", code), 1, true)
    assert.matches("nan", run("PERILUNE_STALE=allow PERILUNE_ENGINE=stress", [[
      local e = require "perilune".engine()
      local x = e:tensor { 1 }
      e:reset()
      print(x + 1)]]), 1, true)
  end)

  it("sets no globals and loads in strict mode", function()
    assert.equal("fine", run("", [[
      local before = {}
      for k in pairs(_G) do before[k] = true end
      setmetatable(_G, { __newindex = function(_, k) error("global " .. k) end, __index = function(_, k) error("global " .. k) end })
      local perilune = require "perilune"
      local e = perilune.engine "stress"
      e:tensor { 1, 2 }:exp():sum():item()
      for k in pairs(_G) do assert(before[k], k) end
      print "fine"]]))
  end)

  it("starts fast", function()
    local started = os.clock()
    local n = 5
    for _ = 1, n do run("", 'require "perilune"') end
    assert.is_true(os.clock() - started < n) -- the processes' own time is not in os.clock: this only guards against hanging here
    assert.is_true(tonumber(run("", 'local t = os.clock() require "perilune" print(os.clock() - t)')) < 0.1)
  end)

  it("keeps engines apart", function()
    local a, b = engines.open "cpu", engines.open "stress"
    local x, y = a:tensor { 1 }, b:tensor { 2 }
    assert.matches("belongs to the engine \"stress\"", message_of(function() return x + y end), 1, true)
    assert.matches("another engine", message_of(function() a:pin(y) end), 1, true)
    assert.equal(a, x.engine)
    assert.is_true(perilune.is_engine(a))
    assert.is_false(perilune.is_engine(x))
    assert.is_true(perilune.is_tensor(x))
    assert.equal(3, (x + y:to(a)):item())
    local w = a:param({ 2 }, { 1, 2 })
    local ok, message = pcall(w.to, w, b)
    assert.is_false(ok)
    assert.matches("gradients stay on one engine", message, 1, true)
    assert.same({ 1, 2 }, w:detach():to(b):totable())
    assert.same({ 1, 2 }, a:no_grad(function() return w:to(b) end):totable())
    b:close()
    assert.equal(2, (x + 1):item())
  end)

  it("survives many engines that are closed, and states that end with open ones", function()
    for i = 1, 300 do
      local e = perilune.engine { "cpu", arena = "4KiB" }
      local x = e:tensor { i }
      assert.equal(i, x:item())
      e:close()
      assert.is_false(pcall(function() return x + 1 end))
    end
    assert.equal("end", run("", [[
      local perilune = require "perilune"
      keep = {}
      for i = 1, 20 do
        local e = perilune.engine "stress"
        keep[i] = { e, e:persistent({ 4 }, 1), e:full({ 4 }, 2), e:empty({ 100000 }) }
      end
      print "end"]]))
  end)

  it("names methods that do not exist", function()
    local eng = engines.open "cpu"
    assert.matches("did you mean 'reset'", message_of(function() eng:resett() end), 1, true)
    assert.matches("did you mean 'sum'", message_of(function() eng:tensor({ 1 }):smu() end), 1, true)
    assert.matches("did you mean 'shape'", message_of(function() return eng:tensor({ 1 }).shap end), 1, true)
    assert.has_error(function() eng.field = 1 end)
    assert.has_error(function() eng:tensor({ 1 }).field = 1 end)
  end)

  it("calls a method with a dot instead of a colon an error that says so", function()
    local eng = engines.open "cpu"
    assert.matches("colon", message_of(function() eng.reset() end), 1, true)
  end)

  it("shows the arena's blocks and takes raw ones on test engines", function()
    local eng = engines.open("stress", { arena = "64KiB", test = true, places = true })
    local block = eng.arena:alloc(1000)
    eng.arena:pin(block)
    local x = eng:full({ 8 }, 1)
    local blocks = eng.arena:blocks()
    assert.equal("live", blocks[1].state)
    assert.equal(1000, blocks[1].asked)
    assert.equal(1, blocks[1].pins)
    assert.matches("engine_spec.lua", blocks[1].place, 1, true)
    local covered = 0
    for _, b in ipairs(blocks) do
      assert.equal(covered, b.offset) -- no gap, no overlap
      covered = covered + b.bytes
    end
    assert.equal(eng:stats().capacity, covered)
    eng.arena:reset()
    assert.is_false(x:is_valid())
    assert.is_true(block:is_valid())
    eng.arena:unpin(block)
    eng.arena:free(block)
    assert.is_false(block:is_valid())
    assert.equal("", eng.arena:check())
    local plain = engines.open("stress", { arena = "64KiB" })
    assert.matches("test = true", message_of(function() plain.arena:alloc(10) end), 1, true)
    assert.matches("has no arena", message_of(function() engines.open("cpu").arena:blocks() end), 1, true)
  end)

  it("continues its random numbers from a saved state", function()
    local eng = engines.open("cpu", { seed = 7 })
    eng:rand { 3 }
    local state = eng:rng()
    local a = eng:rand({ 5 }):totable()
    eng:rng(state)
    assert.same(a, eng:rand({ 5 }):totable())
    assert.has_error(function() eng:rng "x" end)
  end)
end)

describe("tensor values", function()
  after_each(engines.close)

  engines.each(function(name, open)
    it("go in and out in every dtype on " .. name, function()
      local eng = open()
      for _, dtype in ipairs(perilune.dtypes) do
        local values = dtype == "bool" and { { true, false }, { false, true } } or { { 1, 2 }, { 3, 4 } }
        local t = eng:tensor(values, { dtype = dtype })
        assert.same(values, t:totable())
        assert.equal(dtype, t.dtype)
        assert.equal(values[2][1], t:get(2, 1))
        t:set(1, 2, values[1][1])
        assert.equal(values[1][1], t:get(-2, -1))
        assert.equal(#t:bytes(), 4 * (dtype == "f64" and 8 or dtype == "i64" and 8 or (dtype == "f32" or dtype == "i32") and 4 or 1))
      end
    end)

    it("of i64 beyond 2^53 come as int64 or raise on " .. name, function()
      local eng = open()
      local t = eng:tensor({ 9007199254740993LL, -9223372036854775807LL - 1 }, { dtype = "i64" })
      assert.matches("int64 = true", message_of(function() return t:totable() end), 1, true)
      assert.matches("int64 = true", message_of(function() return t:get(1) end), 1, true)
      local back = t:totable { int64 = true }
      assert.is_true(back[1] == 9007199254740993LL)
      assert.is_true(back[2] == -9223372036854775807LL - 1)
      assert.is_true(t:get(2, { int64 = true }) == back[2])
    end)

    it("are refused where they do not fit on " .. name, function()
      local eng = open()
      for expected, make in pairs {
        ["is not a value of i32"] = function() eng:tensor({ 1.5 }, { dtype = "i32" }) end,
        ["out of the range of u8"] = function() eng:tensor({ 256 }, { dtype = "u8" }) end,
        ["a number was expected as a value of f32, got the string"] = function() eng:tensor { 1, "2" } end,
        ["nested unevenly"] = function() eng:tensor { { 1, 2 }, { 3 } } end,
        ["nested unevenly: a table"] = function() eng:tensor { { 1, 2 }, 3 } end,
        ["4 values for shape (3)"] = function() eng:tensor({ 1, 2, 3, 4 }, { shape = { 3 } }) end,
        ["one of bool, u8"] = function() eng:tensor({ 1 }, { dtype = "f99" }) end,
        ["there is no option \"dtyp\""] = function() eng:tensor({ 1 }, { dtyp = "f32" }) end,
        ["values were expected"] = function() eng:tensor() end,
        ["is negative"] = function() eng:zeros { -1 } end,
        ["nested more than 8"] = function() eng:tensor { { { { { { { { { 1 } } } } } } } } } end,
      } do
        local message = message_of(make)
        assert.matches(expected, message, 1, true)
        assert.matches("^[^ ]*engine_spec.lua:%d+: ", message)
      end
    end)

    it("are indexed from 1, negative from the end, as views on " .. name, function()
      local eng = open()
      local t = eng:tensor { { 1, 2, 3 }, { 4, 5, 6 } }
      assert.same({ 4, 5, 6 }, t[2]:totable())
      assert.same({ 4, 5, 6 }, t[-1]:totable())
      assert.equal(6, t[{ 2, 3 }]:item())
      assert.same({ { 2, 3 }, { 5, 6 } }, t[{ {}, { 2, 3 } }]:totable())
      assert.same({ { 1, 3 }, { 4, 6 } }, t[{ {}, { 1, 3, 2 } }]:totable())
      assert.same({ {}, {} }, t[{ {}, { 2, 1 } }]:totable())
      assert.same({ {}, {} }, t[{ {}, { 1, 0 } }]:totable())
      assert.same({ 0, 2 }, eng:zeros({ 0, 3 })[{ {}, { 1, 2 } }].shape)
      assert.same({ 0 }, eng:zeros({ 0, 3 })[{ {}, 2 }].shape)
      t[1] = 9
      t[{ 2, { 1, 2 } }] = eng:tensor { 7, 8 }
      assert.same({ { 9, 9, 9 }, { 7, 8, 6 } }, t:totable())
      assert.equal(2, #t)
      for expected, use in pairs {
        ["indices start at 1"] = function() return t[0] end, ["out of range, valid are 1 to 2"] = function() return t[3] end,
        ["an integer was expected, got 1.5"] = function() return t[1.5] end, ["3 indices for a tensor with 2"] = function() return t[{ 1, 1, 1 }] end,
        ["step of a range is at least 1"] = function() return t[{ { 1, 2, 0 } }] end,
        ["1 indices for a tensor with 2"] = function() return t:get(1) end,
        ["index 0"] = function() return t:get(0, 1) end, ["index 4 in dimension 2"] = function() return t:set(1, 4, 0) end,
      } do
        local message = message_of(use)
        assert.matches(expected, message, 1, true)
      end
    end)
  end)
end)
