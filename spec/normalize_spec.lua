-- SPDX-License-Identifier: MIT
-- Softmax, cross entropy and norm layers: agree with the reference, give the same bits whatever the layout and the number of threads, do not
-- overflow, underflow or cancel; the fused gradients agree with differences of the functions.

local perilune = require "perilune"
local internal = require "perilune.core".ops
local reference = require "spec.support.reference"
local engines = require "spec.support.engines"
local lanes = require "spec.support.lanes"

perilune.on_report(function() end) -- a full arena is no matter here

local inf = math.huge

local function fails(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), tostring(message))
end

local function close(want, got, tolerance, what)
  local ok, message = reference.allclose(lanes.values(got), want, tolerance, tolerance)
  if not ok then error(what .. ": " .. message, 2) end
end

local function same(want, got, what)
  local ok, message = reference.allclose(lanes.values(got), lanes.values(want), 0, 0)
  if not ok then error(what .. ": " .. message, 2) end
end

local function draw(shape, dtype, lo, hi) return reference.random(shape, dtype, lo or -3, hi or 3, #shape + (shape[1] or 0)) end

local SHAPES = { {}, { 1 }, { 7 }, { 1, 4 }, { 2, 3 }, { 3, 5, 4 }, { 3, 1, 2 }, { 8, 8 }, { 40, 3 }, { 2, 1100 }, { 1100, 2 }, { 2, 40, 150 }, { 5000 } }

engines.each(function(kind, open)
  local e
  local function new(r) return lanes.fresh(e, r) end

  --- The f64 gradient of sum(c * fn(x)) by central differences, x and c tensors.
  local function numeric(fn, x, c)
    local flat, out, h = x:clone():view{ -1 }, {}, 1e-5
    local shaped = flat:view(x.shape)
    local function value() return (fn(shaped) * c):sum():item() end
    for i = 1, flat:numel() do
      local v = flat:get(i)
      flat:set(i, v + h)
      local above = value()
      flat:set(i, v - h)
      out[i] = (above - value()) / (2 * h)
      flat:set(i, v)
    end
    out.shape, out.dtype = x.shape, "f64"
    return out
  end

  describe("softmax on " .. kind, function()
    before_each(function() e = open() end)
    after_each(engines.close)

    for _, op in ipairs { "softmax", "log_softmax" } do
      it(op .. " agrees with the reference, bit for bit in every layout", function()
        for _, dtype in ipairs { "f32", "f64" } do
          for _, shape in ipairs(SHAPES) do
            local r = draw(shape, dtype)
            for dim = 1, math.max(#shape, 1) do
              local want, first = reference.ops[op](r, dim)
              lanes.each(e, r, function(x)
                local what = ("%s of %s, dim %d"):format(op, table.concat(shape, "x"), dim)
                local y = x[op](x, dim)
                close(want, y, dtype == "f32" and 1e-6 or 1e-13, what)
                first = first or y
                same(first, y, what)
                local strided = e:zeros{ x:numel(), 2 }:to(dtype):narrow(2, 1, 1)
                if #shape == 1 then same(first, x[op](x, dim, strided:select(2, 1)), what) end
              end)
            end
          end
        end
      end)

      it(op .. "_backward agrees with differences, bit for bit in every layout", function()
        for _, shape in ipairs { { 3 }, { 3, 4 }, { 2, 3, 4 }, { 4, 1 } } do
          for dim = 1, #shape do
            local function fn(x) return x[op](x, dim) end
            local r, rc = draw(shape, "f64"), reference.random(shape, "f64", -1, 1, 77)
            local want, first = numeric(fn, new(r), new(rc))
            lanes.each(e, r, function(x)
              lanes.each(e, rc, function(c)
                local dx = internal[op .. "_backward"](c, fn(x), dim)
                close(want, dx, 1e-8, op)
                first = first or dx
                same(first, dx, op)
              end)
            end)
          end
        end
        for _, shape in ipairs { { 2, 2500 }, { 2500, 2 }, { 150, 40 } } do
          local y, g = draw(shape, "f32", 0, 1), reference.random(shape, "f32", -1, 1, 5)
          for dim = 1, 2 do
            local first
            lanes.each(e, y, function(ty)
              local dx = internal[op .. "_backward"](new(g), ty, dim)
              first = first or dx
              same(first, dx, op)
            end)
          end
        end
      end)
    end

    it("stands wide spreads", function()
      local rows = {}
      for i = 1, 200 do
        local r = reference.random({ 37 }, "f32", -1e4, 1e4, i)
        r[i % 37 + 1] = i % 2 == 0 and 1e4 or 120
        rows[i] = r
      end
      rows[1] = reference.array({ 120, -80, 120, 0 }, "f32")
      rows[2] = reference.array({ 1e30, 1e30, 1e30 }, "f32")
      for _, r in ipairs(rows) do
        close(reference.ops.softmax(r), new(r):softmax(), 1e-6, "softmax")
        close(reference.ops.log_softmax(r), new(r):log_softmax(), 1e-6, "log_softmax")
        local n = r.shape[1]
        close(reference.ops.softmax(r), new(r):view{ n, 1 }:expand{ n, 5 }:softmax(1):select(2, 3), 1e-6, "softmax of columns")
      end
    end)

    it("gives -inf the probability 0, and NaN to a row that cannot be told", function()
      local x = e:tensor{ { 1, -inf, 2 }, { -inf, -inf, -inf }, { 1, inf, 2 }, { 0, 0 / 0, 0 }, { 1, 2, 3 } }
      for _, y in ipairs { x:softmax(2), x:t():contiguous():softmax(1):t() } do
        assert.equal(0, y:get(1, 2))
        assert.is_true(math.abs(y:get(1, 1) + y:get(1, 3) - 1) < 1e-6)
        for row = 2, 4 do
          for column = 1, 3 do assert.is_true(y:get(row, column) ~= y:get(row, column)) end
        end
        assert.is_true(math.abs(y:select(1, 5):sum():item() - 1) < 1e-6)
      end
      assert.equal(-inf, x:log_softmax(2):get(1, 2))
    end)

    it("writes into its operand", function()
      local r = draw({ 3, 5 }, "f32")
      for dim = 1, 2 do
        local x = new(r)
        assert.is_true(rawequal(x, x:softmax(dim, x)))
        close(reference.ops.softmax(r, dim), x, 1e-6, "softmax")
      end
    end)

    it("takes no integers", function()
      local x = e:ones({ 3 }, { dtype = "i64" })
      fails("softmax: argument 'x': dtype i64 is not supported", x.softmax, x)
    end)
  end)

  describe("cross_entropy on " .. kind, function()
    before_each(function() e = open() end)
    after_each(engines.close)

    local OPTIONS = {
      {}, { reduction = "sum" }, { reduction = "none" }, { label_smoothing = 0.2 }, { weight = true }, { weight = true, ignore_index = 2 },
      { weight = true, label_smoothing = 0.3, ignore_index = 1, reduction = "none" }, { weight = true, label_smoothing = 0.1 },
    }

    local function call(x, target, weight, o)
      return x:cross_entropy(target, o.weight and weight or nil, o.ignore_index, o.reduction, o.label_smoothing)
    end

    local function gradient(g, x, target, weight, o)
      return internal.cross_entropy_backward(g, x, target, o.weight and weight or nil, o.ignore_index, o.reduction, o.label_smoothing)
    end

    --- fn(x, target, weight, options, name) for class and probability targets of some shapes.
    local function each_case(dtype, shapes, fn)
      for _, shape in ipairs(shapes) do
        local class_dim = #shape == 1 and 1 or 2
        local positions = {}
        for d, n in ipairs(shape) do
          if d ~= class_dim then positions[#positions + 1] = n end
        end
        local x, weight = draw(shape, dtype), reference.random({ shape[class_dim] }, dtype, 0.5, 2, 3)
        for _, target in ipairs{ reference.random(positions, "i64", 1, shape[class_dim], 4), reference.random(shape, dtype, 0, 1, 6) } do
          for k, o in ipairs(OPTIONS) do
            if not (o.ignore_index and target.dtype == dtype) then
              fn(x, target, weight, o, ("%s %s target, options %d"):format(table.concat(shape, "x"), target.dtype, k))
            end
          end
        end
      end
    end

    it("agrees with the reference, bit for bit in every layout", function()
      for _, dtype in ipairs { "f32", "f64" } do
        each_case(dtype, { { 5 }, { 4, 5 }, { 2, 5, 3 }, { 2, 3, 2, 4 }, { 1, 1 }, { 3, 1100 }, { 1200, 3 }, { 2, 4, 600 } }, function(x, target, weight, o, what)
          local options = { reduction = o.reduction, label_smoothing = o.label_smoothing, ignore_index = o.ignore_index, weight = o.weight and weight }
          local want, first = reference.ops.cross_entropy(x, target, options)
          lanes.each(e, x, function(tx)
            lanes.each(e, target, function(t)
              local loss = call(tx, t, new(weight), o)
              close(want, loss, dtype == "f32" and 5e-6 or 1e-12, what)
              first = first or loss
              same(first, loss, what)
            end)
          end)
        end)
      end
    end)

    it("has a gradient that agrees with differences, bit for bit in every layout", function()
      each_case("f64", { { 3 }, { 3, 4 }, { 2, 3, 2 } }, function(x, target, weight, o, what)
        local t, w = new(target), new(weight)
        local function fn(v) return call(v, t, w, o) end
        local loss = fn(new(x))
        local g = new(reference.random(loss.shape, "f64", 0.5, 2, 9))
        local want, first = numeric(fn, new(x), g)
        lanes.each(e, x, function(tx)
          local dx = gradient(g, tx, t, w, o)
          close(want, dx, 1e-8, what)
          first = first or dx
          same(first, dx, what)
        end)
      end)
    end)

    it("does not underflow", function()
      local x = e:tensor{ { -50, -60, 100 } }
      assert.is_true(math.abs(x:cross_entropy(e:tensor({ 1 }, { dtype = "i64" })):item() - 150) < 1e-4)
      assert.equal(0, x:cross_entropy(e:tensor({ 3 }, { dtype = "i64" })):item())
    end)

    it("of no rows is 0, or NaN as a mean", function()
      local x, t = e:empty{ 0, 3 }, e:empty({ 0 }, { dtype = "i64" })
      assert.equal(0, x:cross_entropy(t, nil, nil, "sum"):item())
      local mean = x:cross_entropy(t):item()
      assert.is_true(mean ~= mean)
      assert.same({ 0 }, x:cross_entropy(t, nil, nil, "none").shape)
      local all_ignored = e:rand{ 2, 3 }:cross_entropy(e:ones({ 2 }, { dtype = "i64" }), nil, 1):item()
      assert.is_true(all_ignored ~= all_ignored)
    end)

    it("reports a target that is no class, and gives that row NaN", function()
      for _, class in ipairs { 0, 4, -100 } do
        local x = e:rand{ 3, 3 }
        local losses = x:cross_entropy(e:tensor({ 1, class, 2 }, { dtype = "i64" }), nil, nil, "none")
        fails("valid are 1 to 3", e.sync, e)
        assert.is_true(losses:get(1) == losses:get(1))
        assert.is_true(losses:get(2) ~= losses:get(2))
        assert.is_true(losses:get(3) == losses:get(3))
      end
    end)

    it("demands equal shapes, never broadcasts", function()
      local x, classes = e:rand{ 4, 5 }, e:ones({ 4, 1 }, { dtype = "i64" })
      fails("cross_entropy: argument 'target': expected classes, integers of shape (4), or probabilities, f32 of x's shape, got i64 tensor (4, 1)",
        x.cross_entropy, x, classes)
      fails("argument 'target'", x.cross_entropy, x, e:rand{ 4 })
      fails("argument 'target'", x.cross_entropy, x, e:rand{ 1, 5 })
      fails("argument 'weight': expected shape (5), got (4)", x.cross_entropy, x, classes:select(2, 1), e:rand{ 4 })
      fails("argument 'label_smoothing'", x.cross_entropy, x, classes:select(2, 1), nil, nil, nil, 1.5)
      fails("argument 'ignore_index'", x.cross_entropy, x, e:rand{ 4, 5 }, nil, 1)
      fails("no classes", e:rand{}.cross_entropy, e:rand{}, classes)
    end)
  end)

  describe("norm layers on " .. kind, function()
    before_each(function() e = open() end)
    after_each(engines.close)

    -- name, shape, second argument, shape of weight
    local CASES = {
      { "layer_norm", { 2, 3 }, 3, { 3 } }, { "layer_norm", { 2, 3, 4 }, { 3, 4 }, { 3, 4 } }, { "layer_norm", { 4 }, 4, { 4 } },
      { "layer_norm", { 2, 3, 5, 2 }, 2, { 2 } }, { "layer_norm", { 3, 1100 }, 1100, { 1100 } }, { "layer_norm", { 600, 3 }, 3, { 3 } },
      { "layer_norm", { 2, 5000 }, 5000, { 5000 } }, { "layer_norm", { 3, 1 }, 1, { 1 } },
      { "rms_norm", { 2, 3 }, 3, { 3 } }, { "rms_norm", { 2, 3, 4 }, { 3, 4 }, { 3, 4 } }, { "rms_norm", { 3, 1100 }, 1100, { 1100 } },
      { "rms_norm", { 2, 5000 }, 5000, { 5000 } },
      { "group_norm", { 2, 4 }, 2, { 4 } }, { "group_norm", { 2, 4, 3 }, 4, { 4 } }, { "group_norm", { 2, 6, 3, 5 }, 3, { 6 } },
      { "group_norm", { 3, 4, 300 }, 1, { 4 } },
    }

    it("agree with the reference, bit for bit in every layout", function()
      for _, dtype in ipairs { "f32", "f64" } do
        for _, case in ipairs(CASES) do
          local op, shape, second, weight_shape = unpack(case)
          local r, w, b = draw(shape, dtype), reference.random(weight_shape, dtype, 0.5, 2, 3), reference.random(weight_shape, dtype, -1, 1, 4)
          local forms = op == "rms_norm" and { {}, { w } } or { {}, { w }, { w, b }, { nil, b } }
          for k, form in ipairs(forms) do
            local what = ("%s %s form %d"):format(op, table.concat(shape, "x"), k)
            local want, first
            if op == "rms_norm" then want = reference.ops[op](r, second, form[1]) else want = reference.ops[op](r, second, form[1], form[2]) end
            lanes.each(e, r, function(x)
              local tw, tb = form[1] and new(form[1]), form[2] and new(form[2])
              local y
              if op == "rms_norm" then y = x:rms_norm(second, tw) else y = x[op](x, second, tw, tb) end
              close(want, y, dtype == "f32" and 3e-6 or 1e-12, what)
              first = first or y
              same(first, y, what)
            end)
          end
        end
      end
    end)

    it("stand rows far from 0", function()
      local r = reference.random({ 4, 1500 }, "f32", 10000, 10000.05, 9)
      close(reference.ops.layer_norm(r, 1500, nil, nil, 1e-12), new(r):layer_norm(1500, nil, nil, 1e-12), 2e-5, "layer_norm")
      local channels = reference.array(r, "f32")
      channels = { shape = { 2, 4, 750 }, dtype = "f32", unpack(r) }
      close(reference.ops.group_norm(channels, 2, nil, nil, 1e-12), new(channels):group_norm(2, nil, nil, 1e-12), 2e-5, "group_norm")
      local constant = e:full({ 2, 3000 }, 1234.567):layer_norm(3000)
      assert.is_true(constant:abs():max():item() <= (engines.is_host(kind) and 0 or 1e-6))
    end)

    it("write into a destination of any layout", function()
      local r = draw({ 3, 4 }, "f32")
      local want = reference.ops.layer_norm(r, 4)
      local x, strided = new(r), e:zeros{ 4, 3 }:t()
      assert.is_true(rawequal(strided, x:layer_norm(4, nil, nil, nil, strided)))
      close(want, strided, 3e-6, "layer_norm")
      x:layer_norm(4, nil, nil, nil, x)
      close(want, x, 3e-6, "layer_norm")
    end)

    it("have gradients that agree with differences", function()
      for _, case in ipairs(CASES) do
        local op, shape, second, weight_shape = unpack(case)
        local x = new(draw(shape, "f64"))
        if x:numel() < 200 then
          local w, b = new(reference.random(weight_shape, "f64", 0.5, 2, 3)), new(reference.random(weight_shape, "f64", -1, 1, 4))
          local g = new(reference.random(shape, "f64", -1, 1, 8))
          for _, affine in ipairs { true, false } do
            local weight = affine and w or nil
            local function forward(v, tw, tb)
              if op == "rms_norm" then return v:rms_norm(second, tw, 0.01) end
              return v[op](v, second, tw, tb, 0.01)
            end
            local got
            if op == "rms_norm" then
              local _, rstd = internal.rms_norm_forward(x, second, weight, 0.01)
              got = { internal.rms_norm_backward(g, x, rstd, weight, second, affine) }
            else
              local y, mean, rstd = internal[op .. "_forward"](x, second, weight, affine and b or nil, 0.01)
              same(forward(x, weight, affine and b or nil), y, op)
              got = { internal[op .. "_backward"](g, x, mean, rstd, weight, second, affine) }
            end
            local what = op .. " " .. table.concat(shape, "x")
            assert.equal(not affine and 1 or op == "rms_norm" and 2 or 3, #got, what)
            close(numeric(function(v) return forward(v, weight) end, x, g), got[1], 1e-7, what .. " dx")
            if affine then
              close(numeric(function(v) return forward(x, v) end, w, g), got[2], 1e-7, what .. " dweight")
              if op ~= "rms_norm" then close(numeric(function(v) return forward(x, w, v) end, b, g), got[3], 1e-7, what .. " dbias") end
            end
          end
        end
      end
    end)

    it("sum dweight and dbias over many rows and images accurately", function()
      local x, g = draw({ 9000, 3 }, "f64"), reference.random({ 9000, 3 }, "f64", -1, 1, 8)
      for _, dtype in ipairs { "f64", "f32" } do
        local tx, tg = new(x):to(dtype), new(g):to(dtype)
        local y, mean, rstd = internal.layer_norm_forward(tx, 3)
        local _, dw, db = internal.layer_norm_backward(tg, tx, mean, rstd, nil, 3)
        close(lanes.values((tg:to "f64" * y:to "f64"):sum(1)), dw:to "f64", dtype == "f64" and 1e-11 or 1e-4, "dweight")
        close(lanes.values(tg:to "f64":sum(1)), db:to "f64", dtype == "f64" and 1e-11 or 1e-4, "dbias")
        tx, tg = tx:view{ 4500, 2, 3 }, tg:view{ 4500, 2, 3 }
        y, mean, rstd = internal.group_norm_forward(tx, 1)
        _, dw, db = internal.group_norm_backward(tg, tx, mean, rstd, nil, 1)
        close(lanes.values((tg:to "f64" * y:to "f64"):sum{ 1, 3 }), dw:to "f64", dtype == "f64" and 1e-11 or 1e-4, "dweight")
        close(lanes.values(tg:to "f64":sum{ 1, 3 }), db:to "f64", dtype == "f64" and 1e-11 or 1e-4, "dbias")
      end
    end)

    it("of no rows have gradients of 0", function()
      local x = e:empty{ 0, 3 }
      local y, mean, rstd = internal.layer_norm_forward(x, 3, e:ones{ 3 })
      assert.same({ 0, 3 }, y.shape)
      local dx, dw, db = internal.layer_norm_backward(x, x, mean, rstd, e:ones{ 3 }, 3)
      assert.same({ 0, 3 }, dx.shape)
      assert.same({ 0, 0, 0 }, dw:totable())
      assert.same({ 0, 0, 0 }, db:totable())
      x = e:empty{ 0, 4, 3 }
      y, mean, rstd = internal.group_norm_forward(x, 2)
      assert.same({ 0, 4, 3 }, y.shape)
      _, dw, db = internal.group_norm_backward(x, x, mean, rstd, nil, 2)
      assert.same({ 0, 0, 0, 0 }, dw:totable())
      assert.same({ 0, 0, 0, 0 }, db:totable())
    end)

    it("name the argument that is wrong", function()
      local x = e:rand{ 2, 4, 3 }
      fails("layer_norm: argument 'normalized_shape'", x.layer_norm, x, 4)
      fails("layer_norm: argument 'weight': expected shape (3), got (2)", x.layer_norm, x, 3, e:rand{ 2 })
      fails("layer_norm: argument 'bias': expected f32, got f64", x.layer_norm, x, 3, nil, e:zeros({ 3 }, { dtype = "f64" }))
      fails("group_norm: argument 'groups': expected a divisor of the 4 channels, got 3", x.group_norm, x, 3)
      fails("group_norm: argument 'x'", x.group_norm, e:rand{ 4 }, 2)
      fails("rms_norm: argument 'weight'", x.rms_norm, x, 3, e:rand{ 4 })
    end)
  end)
end)

describe("softmax, cross_entropy, norm layers", function()
  after_each(engines.close)

  it("give the same bits with one thread and with several", function()
    local one, many = engines.open("cpu", { threads = 1 }), engines.open("cpu", { threads = 4 })
    for _, shape in ipairs { { 600, 200 }, { 9000, 20 }, { 20, 9000 } } do
      local r, target = draw(shape, "f32"), reference.random({ shape[1] }, "i64", 1, shape[2], 4)
      local n = shape[2]
      local results = {}
      for k, e in ipairs { one, many } do
        local x, t = lanes.fresh(e, r), lanes.fresh(e, target)
        local g = x:cos()
        local y, mean, rstd = internal.layer_norm_forward(x, n)
        results[k] = { x:softmax(1), x:softmax(2), x:log_softmax(1), x:log_softmax(2), x:cross_entropy(t), x:cross_entropy(t, nil, nil, "sum", 0.1),
          internal.cross_entropy_backward(e:ones{}, x, t), internal.softmax_backward(g, x, 1), x:group_norm(4), y, mean, rstd,
          internal.layer_norm_backward(g, x, mean, rstd, nil, n) }
      end
      assert.equal(15, #results[1])
      for i = 1, #results[1] do same(results[1][i], results[2][i], "result " .. i) end
    end
  end)
end)
