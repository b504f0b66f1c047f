-- SPDX-License-Identifier: MIT
-- Every op with a destination (C1): fresh and full of NaN, in every layout, the operand itself, overlapping an operand in part; and the ones that
-- are refused. The result has the bits of the call without a destination, lands in the same memory and is the same Lua value.

local ffi = require "ffi"
local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

local LIMIT, MOST = 1200, 10000 -- elements of operands and results

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

--- Bytes that no op of the samples gives: NaN in floats.
local function junk(n, dtype)
  if dtype == "bool" then return ("\1"):rep(n) end
  return ("\248\127"):rep(4 * n):sub(1, n * ffi.sizeof(dtype == "f32" and "float" or dtype == "i32" and "int32_t" or dtype == "u8"
    and "uint8_t" or "double"))
end

local function spoiled(t) return t:set_bytes(junk(t:numel(), t.dtype)) end

local function call(e, row, args, out)
  if row.random then e.eng:rng { 7, 3 } end
  return samples.call(e.eng, row, args, out)
end

--- Runs into the destinations and raises unless they hold the wanted results, as themselves, where they were.
local function into(e, row, args, outs, want, what)
  local address, home, version = {}, {}, {}
  for i, t in ipairs(outs) do address[i], home[i], version[i] = t:address(), t.home, t:version() end
  local got = call(e, row, args, #outs > 1 and outs or outs[1])
  for i, t in ipairs(outs) do
    if not rawequal(got[i], t) then error(what .. ": the destination is not what is returned", 0) end
    if t:address() ~= address[i] or t.home ~= home[i] then error(what .. ": the destination has moved", 0) end
    if t:numel() > 0 and t:version() == version[i] then error(what .. ": the write is not counted", 0) end
  end
  sweep.same_bits(sweep.results(got), want, what)
end

local function refused(e, row, args, outs, text, what)
  local before = {}
  for i, t in ipairs(outs) do before[i] = t:bytes() end
  local ok, message = pcall(call, e, row, args, #outs > 1 and outs or outs[1])
  if ok then error(what .. ": no error", 0) end
  if not message:find(text, 1, true) or not message:find(row.name .. ": ", 1, true) then
    error(("%s: an error with '%s' was expected, got: %s"):format(what, text, message), 0)
  end
  for i, t in ipairs(outs) do
    if t:bytes() ~= before[i] then error(what .. ": the refused destination has changed", 0) end
  end
end

local function fresh(eng, want, layout)
  local outs = {}
  for i, r in ipairs(want) do
    outs[i] = layout.make(eng, samples.decode(junk(count(r.shape), r.dtype), r.shape, r.dtype))
  end
  return outs
end

local function same_shape(a, b) return table.concat(a, ",") == table.concat(b, ",") end

--- The sample's tensors, but what slot k (item i of a list) is made by fn.
local function build_but(eng, row, sample, values, k, fn)
  return samples.build(eng, row, sample, values, { make = function(engine, array, slot)
    return slot == k and fn(engine, array) or samples.layouts.contiguous.make(engine, array)
  end })
end

--- Result `at` goes where an operand is: into it, or shifted by one element to either side, or transposed.
local function overlapping(e, row, sample, values, k, at, want, what)
  local array, r = values[k], want[at]
  local function with(out, args, form)
    local outs = fresh(e.eng, want, samples.layouts.contiguous)
    outs[at] = out
    into(e, row, args, outs, want, ("%s into slot %d, %s"):format(what, k, form))
  end
  local operand
  if same_shape(array.shape, r.shape) then
    local args = build_but(e.eng, row, sample, values, k, function(engine, a)
      operand = samples.layouts.contiguous.make(engine, a)
      return operand
    end)
    with(operand, args, "itself")
    if #r.shape == 2 and r.shape[1] == r.shape[2] then
      args = build_but(e.eng, row, sample, values, k, function(engine, a)
        operand = samples.layouts.contiguous.make(engine, a)
        return operand
      end)
      with(operand:t(), args, "transposed")
    end
  end
  local nx, nr = count(array.shape), count(r.shape)
  if nx == 0 or nr == 0 then return end
  for shift = -1, 1, 2 do
    local buffer = spoiled(e.eng:empty({ math.max(nx, nr) + 1 }, { dtype = array.dtype }))
    local x0, r0 = shift > 0 and 1 or 2, shift > 0 and 2 or 1
    local args = build_but(e.eng, row, sample, values, k, function(_, a)
      return buffer[{ { x0, x0 + nx - 1 } }]:view(a.shape):set_bytes(samples.encode(a))
    end)
    with(buffer[{ { r0, r0 + nr - 1 } }]:view(r.shape), args, shift > 0 and "one element on" or "one element back")
  end
end

local function refusals(e, row, sample, values, want, what)
  local args = samples.build(e.eng, row, sample, values)
  local C = samples.layouts.contiguous
  for at, r in ipairs(want) do
    local function with(t, text, form)
      local outs = fresh(e.eng, want, C)
      outs[at] = spoiled(t)
      refused(e, row, args, outs, text, ("%s, %s"):format(what, form))
    end
    local longer = { unpack(r.shape) }
    longer[#longer + 1] = 1
    with(e.eng:empty(longer, { dtype = r.dtype }), "argument 'out'", "another shape")
    with(e.eng:empty(r.shape, { dtype = r.dtype == "f64" and "f32" or "f64" }), "argument 'out'", "another dtype")
    for d, size in ipairs(r.shape) do
      if size > 1 and count(r.shape) > 0 then
        local flat = { unpack(r.shape) }
        flat[d] = 1
        local outs = fresh(e.eng, want, C)
        outs[at] = spoiled(e.eng:empty(flat, { dtype = r.dtype })):expand(r.shape)
        refused(e, row, args, outs, "argument 'out'", what .. ", stride 0")
        break
      end
    end
    for other = 1, at - 1 do
      if want[other].dtype == r.dtype and same_shape(want[other].shape, r.shape) and #r.bytes > 0 then
        local outs = fresh(e.eng, want, C)
        outs[at] = outs[other]
        refused(e, row, args, outs, "share memory", what .. ", one destination twice")
      end
    end
  end
  local outs = fresh(e.eng, want, C)
  outs[#outs + 1] = C.make(e.eng, { shape = {}, dtype = "f32", 0 })
  if row.nout > 0 and #want == row.nout then refused(e, row, args, outs, "too many arguments", what .. ", one destination too many") end
end

describe("destinations of", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  for _, row in ipairs(sweep.rows) do
    local exempt = row.inplace or row.nout == 0 or row.name == "empty" or #samples.of(row) == 0
    if not exempt then
      it(row.name, function()
        local ran = 0
        sweep.each(row, LIMIT, function(sample, _, values, what)
          for _, e in ipairs(list) do
            local on = what .. " on " .. e.kind
            local want = sweep.run(e.eng, row, sample, values)
            if #want > 0 and count(want[1].shape) > MOST then return end
            for _, name in ipairs { "contiguous", "transposed", "offset", "stepped" } do
              into(e, row, samples.build(e.eng, row, sample, values), fresh(e.eng, want, samples.layouts[name]), want, on .. " " .. name)
            end
            local args = samples.build(e.eng, row, sample, values)
            local persistent = {}
            for i, r in ipairs(want) do persistent[i] = spoiled(e.eng:persistent(r.shape, nil, { dtype = r.dtype })) end
            into(e, row, args, persistent, want, on .. " persistent")
            for k = 1, values.n do
              if samples.is_array(values[k]) then
                for at, r in ipairs(want) do
                  if values[k].dtype == r.dtype then overlapping(e, row, sample, values, k, at, want, on) end
                end
              end
            end
            refusals(e, row, sample, values, want, on)
          end
          ran = ran + 1
          sweep.settle(list)
        end)
        assert.is_true(ran > 0)
      end)
    end
  end
end)

-- What an in-place op writes is its first operands; they may overlap the others.
describe("operands in place of", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  --- Buffers in which tensor `k` starts one element before or behind tensor 1.
  local function overlap(e, row, sample, values, k, shift)
    local n = math.max(count(values[1].shape), count(values[k].shape))
    local buffer = e.eng:empty({ n + 1 }, { dtype = values[1].dtype })
    local function place(array, first)
      return buffer[{ { first, first + count(array.shape) - 1 } }]:view(array.shape)
    end
    local args = samples.build(e.eng, row, sample, values)
    args[1] = place(values[1], shift > 0 and 1 or 2)
    args[k] = place(values[k], shift > 0 and 2 or 1)
    args[1]:set_bytes(samples.encode(values[1]))
    args[k]:set_bytes(samples.encode(values[k]))
    return args
  end

  --- Slots that the op writes.
  local function written(e, row, sample, values)
    local args, version, set = samples.build(e.eng, row, sample, values), {}, {}
    for k = 1, values.n do version[k] = samples.is_array(values[k]) and args[k]:version() end
    samples.call(e.eng, row, args)
    for k = 1, values.n do set[k] = version[k] and args[k]:version() > version[k] end
    return set
  end

  local function overlapped(e, row, sample, values, k, shift, what)
    local args = overlap(e, row, sample, values, k, shift)
    local seen = { n = values.n, unpack(values, 1, values.n) }
    seen[1] = samples.read(args[1]) -- the other operand lies in it
    if written(e, row, sample, values)[k] then
      local ok, message = pcall(samples.call, e.eng, row, args)
      if ok or not message:find("share memory", 1, true) then error(("%s: no error about shared memory: %s"):format(what, message), 0) end
      assert.equal(samples.encode(seen[1]), args[1]:bytes(), what)
    else
      local got = samples.call(e.eng, row, args)
      sweep.check(row, seen, sweep.results { got[1] }, { (sweep.reference(row, seen))[1] }, what)
    end
  end

  for _, row in ipairs(sweep.rows) do
    if row.inplace then
      it(row.name, function()
        sweep.each(row, LIMIT, function(sample, _, values, what)
          for _, e in ipairs(list) do
            local on = what .. " on " .. e.kind
            local want = sweep.reference(row, values)
            for _, name in ipairs { "contiguous", "transposed", "offset", "stepped" } do
              local args = samples.build(e.eng, row, sample, values, { layout = samples.layouts[name] })
              local address, version = args[1]:address(), args[1]:version()
              local got = samples.call(e.eng, row, args)
              assert.is_true(rawequal(got[1], args[1]), on)
              assert.equal(address, got[1]:address(), on)
              assert.is_true(got[1]:numel() == 0 or got[1]:version() > version, on)
              sweep.check(row, values, sweep.results(got), want, on .. " " .. name)
            end
            for k = 2, values.n do
              if samples.is_array(values[k]) and values[k].dtype == values[1].dtype and count(values[k].shape) > 1 and count(values[1].shape) > 1 then
                for shift = -1, 1, 2 do
                  overlapped(e, row, sample, values, k, shift, ("%s slot %d, shifted by %d"):format(on, k, shift))
                end
              end
            end
            if #want[1].shape > 0 and want[1].shape[1] > 1 then
              local args = samples.build(e.eng, row, sample, values)
              args[1] = e.eng:zeros({ 1 }, { dtype = values[1].dtype }):expand(values[1].shape)
              local ok, message = pcall(samples.call, e.eng, row, args)
              assert.is_false(ok, on)
              assert.is_truthy(message:find("broadcast view", 1, true), message)
            end
          end
          sweep.settle(list)
        end)
      end)
    end
  end
end)
