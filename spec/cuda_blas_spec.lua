-- SPDX-License-Identifier: MIT
-- Matrix products through cuBLAS: which calls go there and with which arguments, its workspace, and what happens without it. On the emulated
-- device a double stands in for the library (cuda/emulator/tests/cublas_double.c); values are small whole numbers, so that sums are exact.

local perilune = require "perilune"
local script = require "spec.support.script"

local build = assert(os.getenv "PERILUNE_BUILDDIR", "run by make check")
local double = build .. "/tests/cublas_double.so"

local kinds = {}
for _, e in ipairs(perilune.engines()) do kinds[e.kind] = e end
local emulated = kinds["cuda-emu"].available and it or function(name)
  it(name, function() pending("the emulator was not built: " .. kinds["cuda-emu"].reason) end)
end

-- What each program starts with. went(fn): the result, and "one", "batch" or "own" for the way that its product took.
local HEAD = [[
  local perilune, ffi = require "perilune", require "ffi"
  ffi.cdef "long cublas_double_products(void); long cublas_double_batches(void);"
  local name = os.getenv "PERILUNE_CUBLAS"
  local function counts()
    local library = ffi.load(name)
    return tonumber(library.cublas_double_products()), tonumber(library.cublas_double_batches())
  end
  local function open(options)
    local all = { "cuda-emu", arena = "4MiB" }
    for key, value in pairs(options or {}) do all[key] = value end
    return perilune.engine(all)
  end
  local function went(fn)
    local one, batch = counts()
    local result = fn()
    local one_after, batch_after = counts()
    return result, batch_after > batch and "batch" or one_after > one and "one" or "own", one_after - one + batch_after - batch
  end
  local function values(shape, phase)
    local list, n = {}, 1
    for _, size in ipairs(shape) do n = n * size end
    for i = 1, n do list[i] = (i * 7 + phase * 5 + math.floor(i / 11)) % 9 - 4 end
    return list
  end
  local function same(want, got, what)
    local w, g = want:reshape({ -1 }):totable(), got:reshape({ -1 }):totable()
    assert(#w == #g, what)
    for i = 1, #w do
      if w[i] ~= g[i] then error(("%s: element %d is %g, expected %g"):format(what, i, g[i], w[i])) end
    end
  end
]]

local function passes(environment, code)
  local output, status = script.run("PERILUNE_CUBLAS=" .. double .. " " .. environment, HEAD .. code)
  assert.equal(0, status, output)
  return output
end

describe("cuBLAS", function()
  emulated("makes products of every layout, turned operands, alpha and beta, batches", function()
    local output = passes("PLEMU_MODE=lazy PLEMU_GUARD=1", [[
      local eng, cpu = open(), perilune.engine "cpu"
      local function both(fn) return fn(cpu), fn(eng) end
      local ways = { one = 0, batch = 0, own = 0 }
      local function check(what, way, fn)
        local want = fn(cpu)
        local got, took = went(function() return fn(eng) end)
        same(want, got, what)
        assert(took == way, what .. " went " .. took .. ", expected " .. way)
        ways[way] = ways[way] + 1
      end
      -- a matrix of that size as it is, turned, within a larger one, turned within a larger one, and so that neither dim is dense
      local layout = {
        plain = function(e, m, n, phase, dtype) return e:tensor(values({ m, n }, phase), { shape = { m, n }, dtype = dtype }) end,
        turned = function(e, m, n, phase, dtype) return e:tensor(values({ n, m }, phase), { shape = { n, m }, dtype = dtype }):t() end,
        part = function(e, m, n, phase, dtype)
          return e:tensor(values({ m + 3, n + 5 }, phase), { shape = { m + 3, n + 5 }, dtype = dtype })[{ { 2, m + 1 }, { 4, n + 3 } }]
        end,
        turned_part = function(e, m, n, phase, dtype)
          return e:tensor(values({ n + 2, m + 7 }, phase), { shape = { n + 2, m + 7 }, dtype = dtype })[{ { 2, n + 1 }, { 3, m + 2 } }]:t()
        end,
        sparse = function(e, m, n, phase, dtype)
          return e:tensor(values({ m * 2, n * 2 }, phase), { shape = { m * 2, n * 2 }, dtype = dtype })[{ { 1, 2 * m, 2 }, { 1, 2 * n, 2 } }]
        end,
      }
      for _, dtype in ipairs { "f32", "f64" } do
        for la, a in pairs(layout) do
          for lb, b in pairs(layout) do
            local dense = la ~= "sparse" and lb ~= "sparse"
            check(la .. " times " .. lb .. " " .. dtype, dense and "one" or "own", function(e)
              return a(e, 37, 41, 1, dtype):matmul(b(e, 41, 29, 2, dtype))
            end)
          end
          -- the result's layout, and all that is added
          check("into " .. la, la ~= "sparse" and "one" or "own", function(e)
            local out = a(e, 37, 29, 3, dtype)
            layout.plain(e, 37, 41, 1, dtype):matmul(layout.plain(e, 41, 29, 2, dtype), { out = out })
            return out
          end)
          check("added " .. la, "one", function(e)
            return e:addmm(a(e, 37, 29, 3, dtype), layout.turned(e, 37, 41, 1, dtype), layout.part(e, 41, 29, 2, dtype), { beta = -2, alpha = 3 })
          end)
        end
        check("a row added", "one", function(e)
          return layout.plain(e, 37, 41, 1, dtype):linear(layout.plain(e, 29, 41, 2, dtype), e:tensor(values({ 29 }, 3), { dtype = dtype }))
        end)
        check("alpha alone", "one", function(e)
          local c = layout.plain(e, 37, 29, 3, dtype)
          return e:addmm(c, layout.plain(e, 37, 41, 1, dtype), layout.plain(e, 41, 29, 2, dtype), { beta = 0, alpha = 0.5 })
        end)
        check("a matrix times a vector", "one", function(e)
          return layout.turned(e, 200, 190, 1, dtype):matmul(e:tensor(values({ 190 }, 2), { dtype = dtype }))
        end)
        check("a vector times a matrix", "one", function(e)
          return e:tensor(values({ 190 }, 2), { dtype = dtype }):matmul(layout.plain(e, 190, 200, 1, dtype))
        end)
        check("one term", "one", function(e) return layout.plain(e, 190, 1, 2, dtype):matmul(layout.turned(e, 1, 200, 1, dtype)) end)
        local function box(e, shape, phase) return e:tensor(values(shape, phase), { shape = shape, dtype = dtype }) end
        check("batches", "batch", function(e) return box(e, { 3, 20, 30 }, 1):matmul(box(e, { 3, 30, 25 }, 2)) end)
        check("batches of one matrix", "batch", function(e)
          return box(e, { 3, 30, 20 }, 1):transpose(2, 3):matmul(box(e, { 30, 25 }, 2))
        end)
        check("heads", "batch", function(e)
          return box(e, { 2, 20, 3, 16 }, 1):permute { 1, 3, 2, 4 }:matmul(box(e, { 2, 20, 3, 16 }, 2):permute { 1, 3, 4, 2 })
        end)
        check("rows that broadcast", "batch", function(e)
          return box(e, { 4, 1, 20, 30 }, 1):matmul(box(e, { 3, 30, 25 }, 2))
        end)
        check("an expanded operand", "own", function(e)
          return e:tensor({ 3 }, { dtype = dtype }):expand { 40, 40 }:matmul(layout.plain(e, 40, 40, 2, dtype))
        end)
        check("an expanded row", "own", function(e)
          return e:tensor(values({ 40 }, 1), { dtype = dtype }):expand { 40, 40 }:matmul(layout.plain(e, 40, 40, 2, dtype))
        end)
        check("an expanded column", "own", function(e)
          return layout.plain(e, 40, 40, 2, dtype):matmul(e:tensor(values({ 40 }, 1), { shape = { 40, 1 }, dtype = dtype }):expand { 40, 40 })
        end)
        check("no terms", "own", function(e) return e:zeros({ 40, 0 }, { dtype = dtype }):matmul(e:zeros({ 0, 40 }, { dtype = dtype })) end)
        check("nothing", "own", function(e) return e:zeros({ 0, 40 }, { dtype = dtype }):matmul(e:zeros({ 40, 40 }, { dtype = dtype })) end)
        check("a small one", "own", function(e) return layout.plain(e, 32, 32, 1, dtype):matmul(layout.plain(e, 32, 32, 2, dtype)) end)
        check("a dot product", "own", function(e) return box(e, { 40000 }, 1):matmul(box(e, { 40000 }, 2)) end)
        check("times zero", "own", function(e)
          return e:addmm(box(e, { 40, 40 }, 3), box(e, { 40, 40 }, 1), box(e, { 40, 40 }, 2), { alpha = 0 })
        end)
      end
      check("whole numbers", "own", function(e)
        return layout.plain(e, 37, 41, 1, "i64"):matmul(layout.plain(e, 41, 29, 2, "i64"))
      end)
      print(ways.one, ways.batch, ways.own)
    ]])
    local one, batch, own = output:match "(%d+)%s+(%d+)%s+(%d+)"
    assert.is_true(tonumber(one) > 50 and tonumber(batch) == 8 and tonumber(own) > 30, output)
  end)

  emulated("gives way where an infinite addend or NaN of a factor would be lost", function()
    passes("", [[
      local eng = open()
      local nan = eng:full({ 40, 40 }, 0 / 0)
      local x = eng:addmm(eng:ones { 40, 40 }, nan, eng:ones { 40, 40 }, { alpha = 0 }):sum():item()
      assert(x ~= x)
      assert(eng:addmm(nan, eng:ones { 40, 40 }, eng:ones { 40, 40 }, { beta = 0 }):sum():item() == 64000)
    ]])
  end)

  emulated("goes through batches that do not lie evenly in few calls, the larger dim at once", function()
    passes("", [[
      local eng = open()
      local function heads(b, h) return eng:ones { b, 8, h, 16 }:permute { 1, 3, 2, 4 }, eng:ones { b, 8, h, 16 }:permute { 1, 3, 4, 2 } end
      for _, case in ipairs { { 3, 20, 3 }, { 20, 3, 3 }, { 64, 65, 64 }, { 65, 66, 0 } } do
        local q, k = heads(case[1], case[2])
        local result, _, calls = went(function() return q:matmul(k) end)
        assert(calls == case[3], calls)
        assert(result:sum():item() == 16 * 64 * case[1] * case[2])
      end
    ]])
  end)

  emulated("rounds operands only with tf32 = true", function()
    passes("", [[
      local fine = 1 + 2 ^ -20 -- which TF32 does not tell from 1
      for _, tf32 in ipairs { false, true } do
        local eng = open { tf32 = tf32 }
        local x = eng:full({ 40, 40 }, fine):matmul(eng:eye(40))
        assert(x:max():item() == (tf32 and 1 or fine), tf32)
        assert(eng:stats().products:find("TF32", 1, true) ~= nil == tf32)
        eng:close()
      end
    ]])
  end)

  emulated("is captured: a graph has its products, and each replay makes them anew", function()
    for _, mode in ipairs { "PLEMU_MODE=lazy PLEMU_SEED=2", "PLEMU_MODE=async", "PERILUNE_CUDA_GRAPHS=0", "PERILUNE_CUDA_SYNC=1" } do
      passes(mode, [[
        local eng = open()
        local w, x = eng:persistent({ 40, 40 }, 0.5), eng:persistent({ 40, 40 }, values({ 40, 40 }, 1))
        local sum = eng:persistent({ 40, 40 }, 0)
        local step = eng:capture(function()
          sum:add(eng:addmm(x, x, w, { beta = 2 }), { out = sum })
          x:add(1, { out = x })
        end)
        same(eng:zeros { 40, 40 }, sum, "before the first replay")
        step:replay(3)
        local want, y = eng:zeros { 40, 40 }, eng:tensor(values({ 40, 40 }, 1), { shape = { 40, 40 } })
        for _ = 1, 3 do
          want = want + y:matmul(w) + y * 2
          y = y + 1
        end
        same(want, sum, "after three")
        -- eager products after a recording are on the engine's own stream
        same(y:matmul(w), x:matmul(w), "eager")
      ]])
    end
  end)

  emulated("fails by name: the op, the sizes, its status; the engine goes on", function()
    local output = passes("CUBLAS_DOUBLE=product=13", [[
      local eng = open()
      local ok, message = pcall(function() return eng:ones { 40, 50 }:matmul(eng:ones { 50, 60 }) end)
      assert(not ok)
      print(message)
      assert(eng:ones { 4, 5 }:matmul(eng:ones { 5, 6 }):sum():item() == 120)
      assert((eng:ones { 10 } + 1):sum():item() == 20)
    ]])
    assert.matches("matmul: cuBLAS's product of 40 x 60 x 50: CUBLAS_STATUS_EXECUTION_FAILED", output, 1, true)
    assert.matches("%.lua:%d+: matmul", output)
  end)

  local function without(environment, ...)
    local output, status = script.run(environment, [[
      local eng = require("perilune").engine { "cuda-emu", arena = "1MiB" }
      print(eng:stats().products)
      assert(eng:ones { 40, 50 }:matmul(eng:ones { 50, 60 }):sum():item() == 40 * 50 * 60)
      eng:close()
    ]])
    assert.equal(0, status, output)
    for _, text in ipairs { ... } do assert.matches(text, output, 1, true) end
  end

  emulated("says which library makes products, and why none does", function()
    local with = "PERILUNE_CUBLAS=" .. double .. " "
    without(with, "cuBLAS 13.1.0 (" .. double .. ")")
    without("PERILUNE_CUBLAS=", "own kernel: the emulated device has no cuBLAS")
    without("PERILUNE_CUBLAS=off", "own kernel: PERILUNE_CUBLAS is off")
    without("PERILUNE_CUBLAS=/nowhere/libcublas.so", "own kernel: /nowhere/libcublas.so: cannot open")
    without(with .. "CUBLAS_DOUBLE=major=11", "own kernel: wrong version: " .. double .. " is cuBLAS 11.1.0, 12 or later is needed")
    without("PERILUNE_CUBLAS=libm.so.6", "own kernel: libm.so.6 has no function cublasGetProperty")
    without(with .. "CUBLAS_DOUBLE=create=14", "own kernel: cuBLAS 13.1.0", "cublasCreate: CUBLAS_STATUS_INTERNAL_ERROR")
    without(with .. "CUBLAS_DOUBLE=workspace=13", "cublasSetWorkspace: CUBLAS_STATUS_EXECUTION_FAILED")
    without(with .. "PERILUNE_CUDA_MEMORY=8000000", "its workspace of 33554432 bytes is beyond the memory budget")
    without(with .. "PLEMU_FAIL=cudaMalloc:1:2", "its workspace: out of device memory")
  end)

  emulated("leaves nothing behind: no memory after close, two engines at once", function()
    passes("PLEMU_MEMORY=96M", [[
      for _ = 1, 5 do
        local a, b = open(), open()
        same(a:ones { 40, 40 }:matmul(a:ones { 40, 40 }), b:ones { 40, 40 }:matmul(b:ones { 40, 40 }), "two")
        assert(a:stats().products:find "^cuBLAS" and b:stats().products:find "^cuBLAS")
        a:close()
        b:close()
      end
    ]])
  end)

  it("is no option of the host's engines", function()
    local ok, message = pcall(function() perilune.engine { "cpu", tf32 = true } end)
    assert.is_false(ok)
    assert.matches("cuda_blas_spec.lua:%d+: engine: option 'tf32' is for CUDA devices, not for cpu", message)
    assert.is_nil(perilune.engine("cpu"):stats().products)
  end)
end)
