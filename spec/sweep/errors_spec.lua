-- SPDX-License-Identifier: MIT
-- Errors of every op (C11): its bad samples, missing and wrong arguments, operands of two engines, indices that only data shows to be wrong. Each error
-- names the op, changes nothing, leaks nothing, and the engine works on.

local core = require "perilune.core"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

local function contains(message, text, what)
  if not tostring(message):find(text, 1, true) then error(("%s: '%s' is missing in: %s"):format(what, text, tostring(message)), 0) end
end

--- What an error must not change.
local function footprint(e)
  local s = e.eng:stats()
  return { s.live_bytes, s.live_blocks, s.offset, s.pinned_bytes, s.owned_bytes, core.library.alloc_live() }
end

local function bytes_of(args)
  local list = {}
  for k = 1, args.n do
    if type(args[k]) == "userdata" then list[#list + 1] = args[k]:bytes() end
  end
  return table.concat(list, "/")
end

describe("bad samples of", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  local function refuses(e, row, sample, what)
    local args = samples.build(e.eng, row, sample, samples.values(row, sample))
    local outs = {}
    for i = 1, row.nout do outs[i] = e.eng:full({ 2, 3 }, 7) end
    local operands = bytes_of(args)
    for _, out in ipairs { false, outs } do
      if not (out and (row.nout == 0 or row.inplace)) then
        local ok, message = pcall(samples.call, e.eng, row, args, out or nil)
        if ok then error(what .. ": no error", 0) end
        contains(message, row.name .. ": ", what)
        if not out then contains(message, sample.bad, what) end
        -- once more: the first error may have kept the text of a place
        collectgarbage()
        collectgarbage "stop"
        local before = footprint(e)
        assert.is_false((pcall(samples.call, e.eng, row, args, out or nil)))
        assert.same(before, footprint(e), what)
        collectgarbage "restart"
      end
    end
    assert.equal(operands, bytes_of(args), what)
    for _, t in ipairs(outs) do assert.equal(e.eng:full({ 2, 3 }, 7):bytes(), t:bytes(), what) end
    assert.equal(5, (e.eng:full({}, 2) + 3):item())
  end

  for _, row in ipairs(sweep.rows) do
    local bad = {}
    for _, sample in ipairs(samples.of(row)) do
      if sample.bad then bad[#bad + 1] = sample end
    end
    if #bad > 0 then
      it(row.name, function()
        for _, e in ipairs(list) do
          for _, sample in ipairs(bad) do refuses(e, row, sample, ("%s %s on %s"):format(row.name, sample.text, e.kind)) end
        end
        sweep.settle(list)
      end)
    end
  end
end)

describe("arguments of", function()
  local list, other

  setup(function()
    list = sweep.open()
    other = engines.open "cpu"
  end)
  teardown(engines.close)

  -- values that a slot does not take; where nil is one, the slot is required
  local wrong = {
    tensor = { "text", true, {}, 3 }, ["tensor or number"] = { "text", {}, print }, index = { "text", {}, 3 }, mask = { "text", {}, true },
    tensors = { "text", 3, { 1 } }, num = { "text", {}, true }, int = { "text", 1.5, {} }, bool = { 1, "true" }, dim = { "text", 1.5, {} },
    dims = { "text", 1.5, { "x" } }, ints = { "text", 1.5, { "x" } }, dtype = { "f99", 3 }, word = { "nosuch", 3 },
  }

  --- Calls the op and raises unless it fails at this line, naming op and slot.
  local function fails(e, row, args, slot, what)
    local line
    local ok, message = pcall(function()
      line = debug.getinfo(1, "l").currentline + 1
      local result = core.ops[row.name](e.eng, unpack(args, 1, args.n))
      return result
    end)
    if ok then error(what .. ": no error", 0) end
    contains(message, ("errors_spec.lua:%d: %s: "):format(line, row.name), what)
    contains(message, "'" .. slot, what)
  end

  local function first_sample(row)
    for _, sample in ipairs(samples.of(row)) do
      if not sample.bad then return sample end
    end
  end

  local function refuses(e, row, sample)
    local made = samples.build(e.eng, row, sample, samples.values(row, sample, { dtype = samples.dtypes(row, sample)[1] }))
    local function with(k, v)
      local args = { n = made.n, unpack(made, 1, made.n) }
      args[k] = v
      return args
    end
    for k, slot in ipairs(row.slots) do
      local what = ("%s, slot '%s' on %s"):format(row.name, slot.name, e.kind)
      if not slot.optional and slot.kind ~= "tensor or number" then fails(e, row, with(k, nil), slot.name, what .. ", nil") end
      for _, v in ipairs(wrong[slot.kind]) do
        fails(e, row, with(k, v), slot.name, ("%s, %s"):format(what, tostring(v)))
      end
      if type(made[k]) == "userdata" and k > 1 then
        local message = select(2, pcall(core.ops[row.name], e.eng, unpack(with(k, other:ones { 2 }), 1, made.n)))
        contains(message, "engine", what .. ", another engine")
      end
    end
    -- required ones that are not there at all
    for k, slot in ipairs(row.slots) do
      if not slot.optional then
        local args = { n = k - 1, unpack(made, 1, k - 1) }
        fails(e, row, args, slot.name, ("%s, %d arguments on %s"):format(row.name, k - 1, e.kind))
      end
    end
    local named = with(made.n + 1, { nosuch = 1 })
    named.n = made.n + 1
    fails(e, row, named, "nosuch", row.name .. ", an unknown option")
    assert.equal(5, (e.eng:full({}, 2) + 3):item())
  end

  for _, row in ipairs(sweep.rows) do
    local sample = first_sample(row)
    if sample then
      it(row.name, function()
        for _, e in ipairs(list) do refuses(e, row, sample) end
        sweep.settle(list)
      end)
    end
  end

  it("an unknown method suggests the nearest", function()
    for _, row in ipairs(sweep.rows) do
      if not row.internal and #row.name > 3 then
        for _, name in ipairs { row.name .. "x", row.name:sub(1, -2) .. "q" } do
          local message = select(2, pcall(function() return list[1].eng[name] end))
          contains(message, ("an engine has no method '%s' (did you mean '"):format(name), name)
        end
      end
    end
    contains(select(2, pcall(function() return list[1].eng:ones { 2 }.sofmax end)), "did you mean 'softmax'", "sofmax")
  end)
end)

-- An element of an index tensor that is out of range is found when the kernel reads it, and raised by the next wait.
describe("wrong data:", function()
  local list

  setup(function() list = sweep.open { places = true, poison = { on = { "reset", "free", "alloc" }, redzone = 64 } } end)
  teardown(engines.close)

  local LARGE = { i32 = 2 ^ 31 - 1, i64 = 2 ^ 40 }

  local function faulty(e, row, sample, values, k, i, value, hi)
    local what = ("%s %s, element %d of '%s' is %s, on %s"):format(row.name, sample.text, i, row.slots[k].name, value, e.kind)
    local good = sweep.results(samples.call(e.eng, row, samples.build(e.eng, row, sample, values)))
    local kept = values[k][i]
    values[k][i] = value
    local args = samples.build(e.eng, row, sample, values)
    values[k][i] = kept
    local line = debug.getinfo(1, "l").currentline + 1
    local result = core.ops[row.name](e.eng, unpack(args, 1, args.n))
    local ok, message = pcall(e.eng.sync, e.eng)
    if ok then error(what .. ": no error", 0) end
    contains(message, ("%s (at "):format(row.name), what)
    contains(message, ("errors_spec.lua:%d)"):format(line), what)
    contains(message, ("element %d of '%s' is %s"):format(i, row.slots[k].name, tostring(value)), what)
    contains(message, ("valid are 1 to %d"):format(hi), what)
    if value == 0 then contains(message, "indices start at 1", what) end
    assert.is_true((pcall(e.eng.sync, e.eng)), what) -- raising has cleared it
    -- what the fault does not reach is as it was
    local got, changed = samples.read(result), 0
    local before = samples.decode(good[1].bytes, good[1].shape, good[1].dtype)
    for j = 1, #got do
      if got[j] ~= before[j] then changed = changed + 1 end
    end
    assert.is_true(changed <= math.max(#got, sweep.size(sample)) / #values[k] or row.name:match "^cross_entropy" ~= nil, what)
  end

  local function option(row, sample, name)
    for k, slot in ipairs(row.slots) do
      if slot.name == name then return sample.args[k].value end
    end
  end

  for _, row in ipairs(sweep.rows) do
    local indexed = {}
    for _, sample in ipairs(samples.of(row)) do
      for k, spec in ipairs(sample.args) do
        local index = row.slots[k].kind == "index" or row.slots[k].name == "target"
        if not sample.bad and index and spec and spec.max and sweep.size(sample) < 4000 then
          indexed[#indexed + 1] = { sample = sample, slot = k, max = option(row, sample, "classes") or option(row, sample, "rows") or spec.max }
        end
      end
    end
    if #indexed > 0 then
      it(row.name, function()
        local ran = 0
        for _, case in ipairs(indexed) do
          local sample, k = case.sample, case.slot
          local values = samples.values(row, sample)
          -- nothing is read for a result without elements
          local results = samples.call(list[1].eng, row, samples.build(list[1].eng, row, sample, values))
          local n = results[1]:numel() > 0 and #values[k] or 0
          for part = 0, n > 0 and 2 or -1 do
            local i = 1 + math.floor((n - 1) * part / 2)
            for _, e in ipairs(list) do
              for _, value in ipairs { 0, -1, case.max + 1, LARGE[values[k].dtype], -LARGE[values[k].dtype] } do
                faulty(e, row, sample, values, k, i, value, case.max)
                ran = ran + 1
              end
            end
          end
          -- a red zone that was written to shows here
          sweep.settle(list)
        end
        assert.is_true(ran > 0)
      end)
    end
  end

  it("an integer divided by zero", function()
    for _, e in ipairs(list) do
      for _, dtype in ipairs { "u8", "i32", "i64" } do
        local a, b = e.eng:full({ 5 }, 7, dtype), e.eng:tensor({ 2, 3, 0, 4, 5 }, { dtype = dtype })
        local r = e.eng:mod(a, b)
        local ok, message = pcall(e.eng.sync, e.eng)
        assert.is_false(ok)
        contains(message, "mod (at ", dtype)
        contains(message, "element 3 of 'b' is 0", dtype)
        e.eng:sync()
        assert.same({ 1, 1, 0, 3, 2 }, r:totable())
        contains(select(2, pcall(e.eng.mod, e.eng, a, 0)), "mod: ", dtype)
      end
      assert.same({ math.huge, -math.huge }, (e.eng:tensor { 1, -1 } / 0):totable())
      assert.same({ math.huge, -math.huge }, (e.eng:tensor({ 1, -1 }, { dtype = "i64" }) / 0):totable())
    end
  end)

  it("is raised by reset and close as well, and no wait raises it twice", function()
    for _, e in ipairs(list) do
      local x, i = e.eng:persistent({ 3 }, 1), e.eng:persistent({ 2 }, { 1, 4 }, { dtype = "i64" })
      for _, wait in ipairs { "sync", "reset" } do
        e.eng:index_select(x, 1, i)
        if wait == "reset" then
          -- the stream may not have come to it yet: then a later reset raises it
          local ok, message = pcall(e.eng.reset, e.eng)
          if ok then ok, message = pcall(e.eng.sync, e.eng) end
          assert.is_false(ok)
          contains(message, "element 2 of 'index' is 4", e.kind)
        else
          contains(select(2, pcall(e.eng.sync, e.eng)), "element 2 of 'index' is 4", e.kind)
        end
        e.eng:sync()
        e.eng:reset()
      end
      local message = select(2, pcall(function() return e.eng:index_select(x, 1, i):totable() end))
      contains(message, "element 2 of 'index' is 4", e.kind .. ", reading")
    end
    local e = engines.open "cpu"
    e:index_select(e:ones { 3 }, 1, e:tensor({ 0 }, { dtype = "i64" }))
    contains(select(2, pcall(e.close, e)), "element 1 of 'index' is 0", "close")
  end)

  it("keeps the first one, whatever the threads", function()
    for _, threads in ipairs { 1, 4 } do
      local e = engines.open("cpu", { threads = threads })
      local values = {}
      for i = 1, 200000 do values[i] = i % 70000 == 0 and 0 or 1 end
      e:index_select(e:ones { 3 }, 1, e:tensor(values, { dtype = "i64" }))
      contains(select(2, pcall(e.sync, e)), "element 70000 of 'index' is 0", threads .. " threads")
    end
  end)
end)
