-- SPDX-License-Identifier: MIT
-- Reading and adding where an index says: PyTorch's shapes with indices from 1, the order of additions, and what becomes of an
-- index out of range.

local core = require "perilune.core"
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"
local layouts = require "spec.support.layouts"

local fails, same = layouts.fails, layouts.same

-- Integers 1 .. n that follow no stride.
local function indices(shape, n, dtype)
  local list, state = reference.new(shape, dtype or "i64"), 7
  for i = 1, reference.numel(shape) do
    state = state * 1103 % 4093
    list[i] = state % n + 1
  end
  return list
end

local function each_layout(e, arrays, fn)
  for name, make in pairs(layouts.make) do
    local tensors = {}
    for i, r in ipairs(arrays) do tensors[i] = make(e, r) end
    local ok, message = pcall(fn, unpack(tensors))
    if not ok then error(name .. ": " .. tostring(message), 2) end
  end
end

engines.each(function(kind, open)
  describe("index ops on " .. kind, function()
    local e
    before_each(function() e = open() end)
    after_each(engines.close)

    it("gather and scatter_add agree with the reference in every layout and dtype", function()
      local cases = {
        { { 3, 4 }, 1, { 2, 4 } }, { { 3, 4 }, 2, { 3, 6 } }, { { 3, 4 }, -1, { 2, 2 } }, { { 2, 3, 4 }, 2, { 2, 5, 3 } }, { {}, 1, {} },
        { { 1 }, 1, { 5 } }, { { 3 }, 1, { 0 } }, { { 0, 4 }, 2, { 0, 2 } }, { { 5, 1 }, 1, { 9, 1 } }, { { 7, 30 }, 1, { 220, 30 } },
      }
      for _, dtype in ipairs { "f32", "f64", "i64", "i32", "u8", "bool" } do
        for k, case in ipairs(cases) do
          local shape, dim, at = unpack(case)
          local index = indices(at, shape[dim < 0 and #shape or dim] or 1, k % 2 == 0 and "i32" or "i64")
          local x = reference.random(shape, dtype, 0, 3, k)
          local gathered = reference.ops.gather(x, dim, index)
          each_layout(e, { x, index }, function(tx, ti) same(gathered, tx:gather(dim, ti)) end)
          if dtype ~= "bool" then
            local src = reference.random(at, dtype, 0, 3, k + 50)
            local sums = reference.ops.scatter_add(x, dim, index, src)
            each_layout(e, { x, index, src }, function(tx, ti, ts)
              same(sums, tx:scatter_add(dim, ti, ts), dtype == "f32" and 1e-5 or 1e-13)
              assert.is_true(rawequal(tx, tx:scatter_add(dim, ti, ts, tx)))
              same(sums, tx, dtype == "f32" and 1e-5 or 1e-13)
            end)
          end
        end
      end
    end)

    it("index_select, embedding and one_hot agree with the reference", function()
      local cases = { { { 3, 4 }, 1, { 5 } }, { { 3, 4 }, 2, { 2 } }, { { 2, 3, 4 }, -2, { 5 } }, { { 3, 4 }, 1, {} }, { {}, 1, { 1 } },
        { { 3, 4 }, 1, { 0 } }, { { 0, 4 }, 2, { 3 } }, { { 5, 300 }, 1, { 70 } }, { { 300, 5 }, 2, { 70 } } }
      for k, case in ipairs(cases) do
        local shape, dim, at = unpack(case)
        local index = indices(at, shape[dim < 0 and #shape + 1 + dim or dim] or 1)
        local x = reference.random(shape, "f32", -3, 3, k)
        local want = reference.ops.index_select(x, dim, index)
        each_layout(e, { x, index }, function(tx, ti)
          same(want, tx:index_select(dim, ti))
          local out = layouts.make.strided(e, want)
          assert.is_true(rawequal(out, tx:index_select(dim, ti, out)))
          same(want, out)
        end)
      end
      for _, at in ipairs { {}, { 1 }, { 0 }, { 5 }, { 2, 3 }, { 4, 5, 6 } } do
        for _, dtype in ipairs { "i64", "i32" } do
          local index, weight = indices(at, 7, dtype), reference.random({ 7, 33 }, "f64", -3, 3, 9)
          each_layout(e, { index, weight }, function(ti, tw)
            same(reference.ops.embedding(index, weight), e:embedding(ti, tw))
            same(reference.ops.one_hot(index, 9), ti:one_hot(9))
          end)
        end
      end
    end)

    it("add equal places up in the order of the source", function()
      local big = e:tensor { 1e8, 1, -1e8, 1 }
      local one = e:tensor({ 2, 2, 2, 2 }, { dtype = "i64" })
      assert.same({ 0, 1 }, e:zeros({ 2 }):scatter_add(1, one, big):totable())
      local rows = e:zeros { 2, 3 }
      local index = one:view({ 4, 1 }):expand { 4, 3 }
      assert.same({ { 0, 0, 0 }, { 1, 1, 1 } }, rows:scatter_add(1, index, big:view({ 4, 1 }):expand { 4, 3 }):totable())
      local bits
      for threads = 1, 3 do
        local engine = open { threads = threads }
        local src = layouts.make.contiguous(engine, reference.random({ 3000, 70 }, "f32", -1, 1, 3))
        local at = layouts.make.contiguous(engine, indices({ 3000 }, 11))
        local text = layouts.text(engine:zeros({ 11, 70 }):scatter_add(1, at:view({ -1, 1 }):expand { 3000, 70 }, src))
        bits = bits or text
        assert.is_true(bits == text)
        assert.is_true(bits == layouts.text(core.ops.embedding_backward(src, at, 11)))
        assert.is_true(bits == layouts.text(core.ops.index_select_backward(src, 1, at, 11)))
      end
    end)

    it("derivatives put each gradient where its element came from; rows never selected stay 0", function()
      local ops = core.ops
      for _, at in ipairs { { 4 }, { 2, 3 }, {}, { 0 } } do
        local index = indices(at, 5)
        local shape = { unpack(at) }
        shape[#shape + 1] = 3
        local g = reference.random(shape, "f32", -1, 1, 4)
        local want = reference.new({ 6, 3 }, "f32")
        for i = 1, 18 do want[i] = 0 end
        for i = 1, reference.numel(at) do
          for j = 1, 3 do
            local k = (index[i] - 1) * 3 + j
            want[k] = want[k] + g[(i - 1) * 3 + j]
          end
        end
        each_layout(e, { g, index }, function(tg, ti) same(want, ops.embedding_backward(tg, ti, 6), 1e-6) end)
      end
      local index, g = indices({ 2, 5, 3 }, 3), reference.random({ 2, 5, 3 }, "f32", -1, 1, 6)
      local want = reference.ops.scatter_add(reference.ops.full({ 2, 3, 4 }, 0), 2, index, g)
      each_layout(e, { g, index }, function(tg, ti) same(want, ops.gather_backward(tg, 2, ti, { 2, 3, 4 }), 1e-6) end)
      assert.same({ 0.5 }, ops.index_select_backward(e:tensor { 0.25, 0.25 }, 1, e:ones({ 2 }, { dtype = "i64" }), 1):totable())
    end)

    it("report an index out of range: op, position, value and valid range, and read NaN", function()
      local i64 = { dtype = "i64" }
      local x = e:tensor { { 1, 2, 3 }, { 4, 5, 6 } }
      local function broken(text, fn)
        local y = fn()
        fails(text, e.sync, e)
        e:sync() -- raising cleared it
        return layouts.values(y)
      end
      local y = broken("element 3 of 'index' is 4, valid are 1 to 3", function()
        return x:gather(2, e:tensor({ { 1, 3 }, { 4, 2 } }, i64))
      end)
      assert.is_true(y[3] ~= y[3])
      assert.same({ 1, 3, 5 }, { y[1], y[2], y[4] })
      y = broken("element 2 of 'index' is 0, valid are 1 to 2; indices start at 1", function()
        return x:to("i64"):index_select(1, e:tensor({ 2, 0, -1 }, i64))
      end)
      assert.same({ 4, 5, 6, 0, 0, 0, 0, 0, 0 }, { unpack(y) })
      broken("element 5 of 'index' is 2147483647", function()
        return e:embedding(e:tensor({ { 1, 1, 2 }, { 2, 2 ^ 31 - 1, 1 } }, { dtype = "i32" }), x)
      end)
      y = broken("element 2 of 'index' is -9007199254740992", function()
        return x:scatter_add(2, e:tensor({ { 1, -2 ^ 53 }, { 3, 3 } }, i64), e:ones { 2, 2 })
      end)
      assert.same({ 2, 2, 3, 4, 5, 8 }, { unpack(y) })
      y = broken("element 4 of 'index' is 9", function()
        return x:scatter_add(1, e:tensor({ { 1, 1, 1 }, { 9, 1, 1 } }, i64), e:ones { 2, 3 })
      end)
      assert.same({ 2, 4, 5, 4, 5, 6 }, { unpack(y) })
      y = broken("element 1 of 'index' is 5, valid are 1 to 3", function() return e:tensor({ 5, 2 }, i64):one_hot(3) end)
      assert.same({ 0, 0, 0, 0, 1, 0 }, { unpack(y) })
      local many = e:full({ 70000 }, 8, i64)
      many:set(1, 1)
      broken("element 2 of 'index' is 8", function() return e:arange(1, 8):gather(1, many) end)
    end)

    it("name what does not fit", function()
      local x, i = e:ones { 3, 4 }, e:ones({ 2 }, { dtype = "i64" })
      fails("argument 'index': expected an i32 or i64 tensor of indices, got f32 tensor (2)", x.index_select, x, 1, e:ones { 2 })
      fails("argument 'index': expected 2 dimensions as of 'x', got 1", x.gather, x, 1, i)
      fails("argument 'index': size 5 in dim 2 is more than the 4 of 'x'", x.gather, x, 1, e:ones({ 2, 5 }, { dtype = "i64" }))
      fails("argument 'dim': dimension 3 of a tensor with 2 dimensions", x.gather, x, 3, i)
      fails("no index is valid", e.embedding, e, i, e:ones { 0, 4 })
      fails("argument 'weight': expected shape (rows, width), got (3)", e.embedding, e, i, e:ones { 3 })
      fails("argument 'classes': at least 1 class is expected, got 0", i.one_hot, i, 0)
      fails("argument 'src': expected f32 as of 'x', got f64", e.scatter_add, e, e:ones { 3 }, 1, i, e:ones({ 2 }, { dtype = "f64" }))
      fails("size 2 in dim 1 is more than the 1 of 'src'", e.scatter_add, e, e:ones { 3 }, 1, i, e:ones { 1 })
    end)
  end)
end)
