-- SPDX-License-Identifier: MIT
-- The ops that show or move elements: views share memory, the others do not, and each agrees with the reference
-- in every layout and dtype.

local perilune = require "perilune"
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"

local DTYPES = { "f32", "f64", "i64", "i32", "u8", "bool" }

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

--- A tensor's values in the reference's form.
local function values(t)
  local out = { shape = t.shape, dtype = t.dtype }
  if t:numel() == 0 then return out end
  for i, v in ipairs(t:reshape{ -1 }:totable()) do out[i] = v == true and 1 or v == false and 0 or v end
  return out
end

local function same(want, got)
  local ok, message = reference.allclose(values(got), want, 0, 0)
  assert(ok, message)
end

-- The same values in different memory: row-major; the dims backwards; every second element of a larger tensor.
local layouts = {
  contiguous = function(e, r) return e:tensor(r, { dtype = r.dtype, shape = r.shape }) end,
  transposed = function(e, r)
    local shape, dims, n = {}, {}, #r.shape
    for d = 1, n do shape[d], dims[d] = r.shape[n + 1 - d], n + 1 - d end
    return e:empty(shape, { dtype = r.dtype }):permute(dims):copy(e:tensor(r, { dtype = r.dtype, shape = r.shape }))
  end,
  strided = function(e, r)
    local shape, ranges = {}, {}
    for d, n in ipairs(r.shape) do shape[d], ranges[d] = 2 * n + 1, { 2, n > 0 and 2 * n or 1, 2 } end
    return e:ones(shape, { dtype = r.dtype })[ranges]:copy(e:tensor(r, { dtype = r.dtype, shape = r.shape }))
  end,
}

local function each_layout(e, r, fn)
  for name, make in pairs(layouts) do
    local ok, message = pcall(fn, make(e, r))
    if not ok then error(name .. " " .. r.dtype .. ": " .. tostring(message), 2) end
  end
end

engines.each(function(kind, open)
  describe("views on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("share memory with x, and a destination shares none", function()
      local x = e:arange(1, 13):reshape{ 3, 4 }
      local calls = {
        view = { { 4, 3 } }, reshape = { { 12 } }, flatten = {}, permute = { { 2, 1 } }, transpose = { 1, 2 }, t = {}, narrow = { 2, 2, 3 },
        select = { 1, 3 }, squeeze = {}, unsqueeze = { 2 }, contiguous = {}, expand = { { 2, 3, 4 } }, broadcast_to = { { 1, 3, 4 } },
      }
      for name, arguments in pairs(calls) do
        local v = x[name](x, unpack(arguments))
        assert.is_true(v:same_storage(x), name)
        local out = e:empty(v.shape)
        arguments[#arguments + 1] = { out = out }
        assert.is_true(rawequal(out, x[name](x, unpack(arguments))), name)
        assert.is_false(out:same_storage(x), name)
        same(values(v), out)
      end
      x:view{ 12 }:set(5, 50)
      assert.equal(50, x:get(2, 1))
      assert.equal(50, x:t():get(1, 2))
    end)

    it("transpose and permute agree with the index formula when sizes are equal", function()
      for _, shape in ipairs { { 5, 5 }, { 2, 3, 3 }, { 3, 1, 3 }, { 1, 4 }, { 2, 3, 2 } } do
        local r = reference.random(shape, "f32", -3, 3, 7)
        local x = e:tensor(r, { shape = shape })
        for a = 1, #shape do
          for b = -#shape, -1 do same(reference.ops.transpose(r, a, b), x:transpose(a, b)) end
        end
        if #shape == 3 then
          for _, dims in ipairs { { 1, 2, 3 }, { 1, 3, 2 }, { 2, 1, 3 }, { 2, 3, 1 }, { 3, 1, 2 }, { 3, 2, 1 } } do
            same(reference.ops.permute(r, dims), x:permute(dims))
          end
        end
      end
    end)

    it("write x transposed into x itself", function()
      local x = e:arange(9):reshape{ 3, 3 }
      assert.is_true(rawequal(x, x:transpose(1, 2, x)))
      assert.same({ { 0, 3, 6 }, { 1, 4, 7 }, { 2, 5, 8 } }, x:totable())
    end)

    it("view refuses where only a copy can do it, reshape copies there", function()
      local x = e:arange(6):reshape{ 2, 3 }:t()
      fails("use reshape", x.view, x, { 6 })
      local y = x:reshape{ 6 }
      assert.is_false(y:same_storage(x))
      assert.same({ 0, 3, 1, 4, 2, 5 }, y:totable())
      assert.is_true(x:view(3, 1, 2):same_storage(x))
      assert.is_false(x:contiguous():same_storage(x))
      local out = e:zeros{ 6 }
      assert.is_true(rawequal(out, x:reshape({ 6 }, out)))
      assert.same({ 0, 3, 1, 4, 2, 5 }, out:totable())
    end)

    it("reshape infers -1 and says what does not fit", function()
      local x = e:zeros{ 2, 3 }
      assert.same({ 3, 2 }, x:reshape(-1, 2).shape)
      assert.same({ 0, 3 }, e:zeros({ 0, 3 }):reshape(-1, 3).shape)
      fails("-1 is ambiguous", x.reshape, e:zeros{ 0, 3 }, { 0, -1 })
      fails("only one size can be -1", x.reshape, x, { -1, -1 })
      fails("argument 'shape': (4, 2) holds 8 elements, x has shape (2, 3), 6 elements", x.reshape, x, { 4, 2 })
      fails("too many elements", x.reshape, x, { 2 ^ 32, 2 ^ 32 })
      fails("negative", x.reshape, x, { -2, -3 })
    end)

    it("a tensor without dimensions has dimension 1 and -1 where PyTorch has it", function()
      local x = e:full({}, 3)
      for _, d in ipairs { 1, -1 } do
        assert.same({}, x:transpose(d, 1).shape)
        assert.same({}, x:squeeze(d).shape)
        assert.same({ 1 }, x:unsqueeze(d).shape)
      end
      assert.same({ 1 }, x:flatten().shape)
      assert.same({}, x:permute({}).shape)
      assert.same({ 2, 2 }, x:expand(2, 2).shape)
      fails("without dimensions", x.select, x, 1, 1)
      fails("without dimensions", x.narrow, x, 1, 1, 1)
      fails("without dimensions", x.split, x, 1)
    end)

    it("narrow, select and ranges count from 1, negative from the end", function()
      local x = e:arange(12):reshape{ 4, 3 }
      assert.same({ { 3, 4, 5 }, { 6, 7, 8 } }, x:narrow(1, -3, 2):totable())
      assert.same({ 0, 3 }, x:narrow(1, 5, 0).shape)
      assert.same({ 2, 5, 8, 11 }, x:select(-1, -1):totable())
      assert.same({ { 0, 2 }, { 6, 8 } }, x[{ { 1, -1, 2 }, { 1, 3, 2 } }]:totable())
      assert.same({ 7, 8 }, x[{ 3, { 2, 3 } }]:totable())
      assert.same({ 0, 3 }, x[{ { 3, 2 } }].shape)
      fails("indices start at 1, got 0", x.narrow, x, 1, 0, 1)
      fails("3 from 3 on is more than the size of dimension 1, 4", x.narrow, x, 1, 3, 3)
      fails("index 5 is outside 1..4 of dimension 1", x.select, x, 1, 5)
      fails("index -5 is outside 1..4", x.select, x, 1, -5)
      fails("dimension 3 of a tensor with 2 dimensions", x.select, x, 3, 1)
    end)

    it("expand keeps -1, adds dimensions in front and refuses writes", function()
      local x = e:tensor{ { 1 }, { 2 } }
      local y = x:expand{ 3, -1, 2 }
      assert.same({ { { 1, 1 }, { 2, 2 } }, { { 1, 1 }, { 2, 2 } }, { { 1, 1 }, { 2, 2 } } }, y:totable())
      fails("broadcast view", e.fill, e, y, 1)
      fails("does not expand", x.expand, x, { 3, 2 })
      fails("no size to keep", x.expand, x, { -1, 2, 2 })
      fails("too many elements", x.expand, x, { 2 ^ 40, 2, 2 ^ 40 })
    end)

    it("split and chunk give views that cover x", function()
      local x = e:arange(10):reshape{ 5, 2 }
      local a, b, c, none = x:split(2)
      assert.same({ { 8, 9 } }, c:totable())
      assert.is_nil(none)
      assert.is_true(a:same_storage(x) and b:same_storage(x))
      b:fill(-1)
      assert.equal(-1, x:get(3, 1))
      local p, q, r = x:split({ 1, 0, 4 }, 1)
      assert.same({ { 1, 2 }, { 0, 2 }, { 4, 2 } }, { p.shape, q.shape, r.shape })
      assert.same({ { 2, 2 }, { 2, 2 }, { 1, 2 } }, { a.shape, select(2, x:chunk(3)).shape, select(3, x:chunk(3)).shape })
      assert.equal(3, select("#", e:zeros({ 0, 3 }):chunk(3)))
      assert.equal(1, select("#", e:zeros({ 0, 3 }):split(3)))
      assert.equal(5000, select("#", e:zeros({ 5000 }):split(1)))
      fails("results are too many", x.split, e:zeros({ 1 }):expand{ 2 ^ 40 }, 1)
      fails("add up to 3, dimension 1 has size 5", x.split, x, { 1, 2 })
      fails("at least 1", x.split, x, 0)
      fails("at least 1", x.chunk, x, 0)
    end)

    it("no tensor has more than 8 dimensions", function()
      local x = e:zeros{ 1, 1, 1, 1, 1, 1, 1, 1 }
      fails("at most 8 dimensions", x.unsqueeze, x, 1)
      fails("at most 8 dimensions", e.stack, e, { x, x })
    end)
  end)

  describe("moved elements on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("agree with the reference in every layout and dtype", function()
      local calls = {
        { "flip", { 3, 4, 2 }, { 1, 3 } }, { "flip", { 3, 4 }, 2 }, { "flip", { 70, 90 } },
        { "repeat", { 3, 2 }, { 2, 1, 3 } }, { "repeat", { 3, 1 }, { 1, 5 } }, { "repeat", { 3, 2 }, { 4, 1 } }, { "repeat", { 0, 2 }, { 4, 2 } },
        { "tile", { 2, 3 }, { 2 } }, { "tile", { 3 }, { 0 } }, { "tile", { 2, 1, 2, 1, 2, 1, 2, 1 }, { 2, 1, 1, 2, 2, 1, 1, 2 } },
        { "repeat_interleave", { 2, 3 }, 3 }, { "repeat_interleave", { 2, 3, 2 }, 2, 2 }, { "repeat_interleave", { 2, 3 }, 0, 1 },
        { "tril", { 2, 3, 4 } }, { "tril", { 4, 3 }, -1 }, { "triu", { 2, 3, 3 }, 1 }, { "triu", { 3, 0 } }, { "triu", { 3, 4 }, -7 },
        { "reshape", { 4, 6 }, { 3, 8 } }, { "contiguous", { 3, 4 } }, { "flatten", { 2, 3, 4 } },
      }
      for _, call in ipairs(calls) do
        local name = call[1]
        for _, dtype in ipairs(DTYPES) do
          local r = reference.random(call[2], dtype, dtype == "u8" and 0 or -3, 3, 5)
          local want = name == "flatten" and reference.ops.reshape(r, { 24 }) or reference.ops[name](r, unpack(call, 3))
          each_layout(e, r, function(x)
            same(want, x[name](x, unpack(call, 3)))
            same(r, x)
            for layout, make in pairs(layouts) do
              local out = make(e, reference.random(want.shape, dtype, 0, 1, 6))
              local list = { unpack(call, 3) }
              list[#list + 1] = { out = out }
              assert.is_true(rawequal(out, x[name](x, unpack(list))), layout)
              same(want, out)
            end
          end)
        end
      end
    end)

    it("join in every layout, dtype and dim, promoting as PyTorch does", function()
      for _, dtype in ipairs(DTYPES) do
        local a = reference.random({ 2, 3, 2 }, dtype, 0, 3, 1)
        local b = reference.random({ 2, 3, 2 }, "i32", 0, 3, 2)
        for dim = 1, 3 do
          each_layout(e, a, function(x)
            each_layout(e, b, function(y)
              same(reference.ops.concat({ a, b, a }, dim), e:concat({ x, y, x }, dim))
              same(reference.ops.concat({ a, b }, dim), e:cat({ x, y }, dim - 4))
              same(reference.ops.stack({ a, b }, dim), e:stack({ x, y }, dim))
            end)
          end)
        end
        each_layout(e, a, function(x) same(reference.ops.stack({ a, a }, 4), e:stack({ x, x }, -1)) end)
      end
    end)

    it("join into a destination that overlaps operands", function()
      local base = e:arange(10)
      local a, b, out = base:narrow(1, 1, 3), base:narrow(1, 4, 3), base:narrow(1, 2, 6)
      assert.is_true(rawequal(out, e:concat({ b, a }, 1, out)))
      assert.same({ 0, 3, 4, 5, 0, 1, 2, 7, 8, 9 }, base:totable())
      local x = e:arange(4):reshape{ 2, 2 }
      e:stack({ x[2], x[1] }, 2, x)
      assert.same({ { 2, 0 }, { 3, 1 } }, x:totable())
    end)

    it("join empty tensors only where the other sizes agree", function()
      local x = e:ones{ 2, 3 }
      assert.same({ 2, 3 }, e:concat({ x, e:zeros{ 0, 3 } }).shape)
      assert.same({ 3 }, e:concat({ e:zeros{ 0 }, e:ones{ 3 } }).shape)
      fails("must agree", e.concat, e, { x, e:zeros{ 0 } })
      fails("must agree", e.concat, e, { x, e:ones{ 2, 4 } })
      fails("an empty list", e.concat, e, {})
      fails("cannot be joined", e.concat, e, { e:full({}, 1) })
      fails("same shape", e.stack, e, { x, e:ones{ 3, 2 } })
      assert.same({ 1, 2 }, e:stack({ e:full({}, 1), e:full({}, 2) }):totable())
    end)

    it("repeat lays the whole side by side, repeat_interleave each element", function()
      local x = e:tensor{ 1, 2 }
      assert.same({ 1, 2, 1, 2, 1, 2 }, x["repeat"](x, 3):totable())
      assert.same({ 1, 2, 1, 2, 1, 2 }, x:tile(3):totable())
      assert.same({ 1, 1, 1, 2, 2, 2 }, x:repeat_interleave(3):totable())
      assert.same({ { 1, 2 }, { 1, 2 } }, x:tile(2, 1):totable())
      fails("1 count for a tensor with 2 dimensions", x["repeat"], e:ones{ 2, 2 }, 2)
      fails("negative", x.tile, x, -1)
      fails("too many elements", x.tile, x, { 2 ^ 50, 2 ^ 50 })
    end)

    it("repeats of more than one block", function()
      local r = reference.random({ 3, 11001 }, "f32", -3, 3, 4)
      local x = e:tensor(r, { shape = r.shape })
      same(reference.ops.tile(r, { 2, 3 }), x:tile(2, 3))
      same(reference.ops.repeat_interleave(r, 3, 2), x:repeat_interleave(3, 2))
      same(reference.ops.tile(reference.array{ 1, 2, 3 }, { 30001 }), e:tensor{ 1, 2, 3 }:tile(30001))
    end)

    it("triangles leave no NaN outside, keep those inside, and work on x itself", function()
      local nan = 0 / 0
      local x = e:tensor{ { nan, nan }, { 1, nan } }
      local y = x:tril(-1)
      assert.same({ { 0, 0 }, { 1, 0 } }, y:totable())
      assert.is_true(x:triu():get(1, 2) ~= x:triu():get(1, 2))
      local z = e:ones{ 3, 3 }
      assert.is_true(rawequal(z, z:triu(1, z)))
      assert.same({ { 0, 1, 1 }, { 0, 0, 1 }, { 0, 0, 0 } }, z:totable())
      local lower = e:arange(9):reshape{ 3, 3 }
      lower:t():tril(0, lower)
      assert.same({ { 0, 0, 0 }, { 1, 4, 0 }, { 2, 5, 8 } }, lower:totable())
      fails("at least 2 dimensions", z.tril, e:ones{ 3 })
    end)
  end)
end)
