-- SPDX-License-Identifier: MIT
-- The hazard loop on every engine, against a computation in plain Lua too; its red twins must fail.

local perilune = require "perilune"
local engines = require "spec.support.engines"
local hooks = require "perilune.hooks"
local loop = dofile "examples/hazard_loop.lua"

local function config(changes) return setmetatable(changes or {}, { __index = loop.defaults }) end

--- The same training in Lua doubles, written from the formulas.
local function by_hand(cfg)
  local function ramp(phase, rows, columns)
    local m = {}
    for i = 1, rows do
      m[i] = {}
      for j = 1, columns do m[i][j] = math.sin(phase + 0.7 * ((i - 1) * columns + j - 1)) end
    end
    return m
  end
  local function tanh(v) return 1 - 2 / (math.exp(2 * v) + 1) end
  local W1, W2 = ramp(0.31, 8, 8), ramp(0.17, 8, 4)
  local losses = {}
  for b = 0, cfg.batches - 1 do
    local g1, g2, loss = ramp(0, 8, 8), ramp(0, 8, 4), 0
    for _, g in ipairs { g1, g2 } do for _, row in ipairs(g) do for j = 1, #row do row[j] = 0 end end end
    for s = 0, cfg.samples - 1 do
      local x = ramp(0.41 + 0.07 * (cfg.samples * b + s), 1, 8)[1]
      local class = (b + s) % 4 + 1
      local a, p, sum = {}, {}, 0
      for j = 1, 8 do
        a[j] = 0
        for i = 1, 8 do a[j] = a[j] + x[i] * W1[i][j] end
        a[j] = tanh(a[j])
      end
      for k = 1, 4 do
        p[k] = 0
        for j = 1, 8 do p[k] = p[k] + a[j] * W2[j][k] end
        p[k] = math.exp(p[k])
        sum = sum + p[k]
      end
      for k = 1, 4 do p[k] = p[k] / sum end
      loss = loss - math.log(p[class])
      for j = 1, 8 do
        local da = 0
        for k = 1, 4 do
          local dy = p[k] - (k == class and 1 or 0)
          g2[j][k] = g2[j][k] + a[j] * dy
          da = da + dy * W2[j][k]
        end
        for i = 1, 8 do g1[i][j] = g1[i][j] + x[i] * (1 - a[j] * a[j]) * da end
      end
    end
    for i = 1, 8 do
      for j = 1, 8 do W1[i][j] = W1[i][j] - 0.05 * g1[i][j] end
      for k = 1, 4 do W2[i][k] = W2[i][k] - 0.05 * g2[i][k] end
    end
    losses[b + 1] = loss
  end
  return { W1 = W1, W2 = W2, losses = losses, finite = true }
end

describe("hazard loop", function()
  after_each(engines.close)

  local reference = by_hand(config())

  engines.each(function(name, open)
    it("agrees with a computation by hand on " .. name, function()
      local run = loop.train(open { arena = name ~= "cpu" and "64MiB" or nil }, config())
      local ok, largest = loop.compare(run, reference)
      assert.is_true(ok, "largest difference " .. largest)
      for b, want in ipairs(reference.losses) do assert.is_true(math.abs(run.losses[b] - want) < 1e-4) end
      assert.equal(15, run.stats.resets)
    end)

    local bits_of = engines.is_host(name) and "cpu" or name -- a device gives its own bits every time
    it(("gives the bits of %s on %s"):format(bits_of, name), function()
      local cpu = loop.train(engines.open(bits_of), config { batches = 6 })
      local run = loop.train(open(), config { batches = 6 })
      assert.same(cpu.W1, run.W1)
      assert.same(cpu.W2, run.W2)
      assert.same(cpu.losses, run.losses)
    end)
  end)

  engines.each(function(name, open)
    it("gives the same bits by captured steps on " .. name, function()
      local lines = {}
      for i = 1, 22 do
        lines[i] = { math.sin(i), math.cos(2 * i), i % 3 - 1 }
        lines[i].class = i % 3 + 1
      end
      local function at(b, s) return lines[b % 5 * 5 + s + 1] end
      local rows = {
        sample = function(b, s) return at(b, s), at(b, s).class end, count = function(b) return b % 5 == 4 and 2 or 5 end,
        inputs = 3, outputs = 3, samples = 5, batches = 15, score = true,
      }
      for _, cfg in ipairs { config { batches = 6 }, config(rows) } do
        local eager, captured = loop.train(open(), cfg), loop.train_captured(open(), cfg)
        for _, what in ipairs { "W1", "W2", "losses", "count", "finite" } do assert.same(eager[what], captured[what]) end
        if cfg.score then assert.same(eager.hits, captured.hits) end
      end
    end)
  end)

  engines.each_arena(function(name, open)
    it("gives the same bits and peaks whatever the collector does on " .. name, function()
      local usual = loop.train(open(), config())
      collectgarbage "stop"
      local stopped = loop.train(open(), config())
      collectgarbage "restart"
      local full = hooks.watch(function() collectgarbage() end, loop.train, open(), config())
      for _, run in ipairs { stopped, full } do
        for _, what in ipairs { "W1", "W2", "losses" } do assert.same(usual[what], run[what]) end
        for _, what in ipairs { "high_water", "offset", "overflow_bytes", "pins" } do
          assert.equal(usual.stats[what], run.stats[what], what)
        end
      end
    end)

    for twin, op in pairs { accumulators = "add: argument 'a'", activation = "matmul: argument 'a'" } do
      it(("with the fault %q raises on %s and names both places"):format(twin, name), function()
        local ok, message = pcall(loop.train, open { places = true }, config { twin = twin })
        assert.is_false(ok)
        assert.matches(op, message, 1, true)
        assert.matches("made at [^ ]*hazard_loop.lua:%d+", message)
        assert.matches("reset at [^ ]*hazard_loop.lua:%d+", message)
      end)

      it(("with the fault %q is NaN on %s when stale reads are let through"):format(twin, name), function()
        local eng = open { stale = "allow", poison = true }
        local ran, run = pcall(loop.train, eng, config { twin = twin })
        -- a write into dead memory is refused even then; where the loop comes to its end its numbers must be NaN
        if ran then
          assert.is_false((loop.compare(run, reference)))
          assert.is_false(run.finite)
          assert.is_true(run.W1[1][1] ~= run.W1[1][1])
        else
          assert.matches("stale", run, 1, true)
        end
      end)
    end
  end)

  it("runs as a script, on every engine, and exits 0", function()
    local launcher = assert(os.getenv "PERILUNE_LAUNCHER")
    local pipe = io.popen(("'%s' examples/hazard_loop.lua --all 2>&1; echo status $?"):format(launcher))
    local output = pipe:read "*a"
    pipe:close()
    assert.matches("status 0%s*$", output)
    for _, e in ipairs(perilune.engines()) do assert.matches(e.kind, output, 1, true) end
    assert.is_nil(output:match "FAIL")
    pipe = io.popen(("'%s' examples/hazard_loop.lua --all --capture 2>&1; echo status $?"):format(launcher))
    output = pipe:read "*a"
    pipe:close()
    assert.matches("status 0%s*$", output)
    assert.equal(#perilune.engines() - select(2, output:gsub("not available", "")), select(2, output:gsub("captured ", "")))
    pipe = io.popen(("'%s' examples/hazard_loop.lua --capture --twin activation 2>&1; echo status $?"):format(launcher))
    output = pipe:read "*a"
    pipe:close()
    assert.matches("do not go together.*status 2%s*$", output)
    pipe = io.popen(("'%s' examples/hazard_loop.lua --engine stress --twin activation 2>&1; echo status $?"):format(launcher))
    output = pipe:read "*a"
    pipe:close()
    assert.matches("FAIL", output, 1, true)
    assert.matches("status 1%s*$", output)
  end)

  it("trains on a CSV file and refuses a bad row with its line", function()
    local path = os.tmpname()
    local function write(text)
      local f = assert(io.open(path, "w"))
      f:write(text)
      f:close()
    end
    local lines = {}
    for i = 1, 40 do lines[i] = ("%g,%g,%d"):format(i % 2 == 0 and 1 or -1, math.sin(i), i % 2) end
    write(table.concat(lines, "\n") .. "\n")
    local cfg, rows, per_epoch = loop.csv_config(config { samples = 8 }, path, 6)
    assert.equal(40, #rows)
    assert.equal(5, per_epoch)
    assert.equal(2, cfg.outputs)
    local run = loop.train(engines.open "stress", cfg)
    assert.is_true(run.finite)
    assert.equal(30, #run.losses)
    local first, last = 0, 0
    for b = 1, 5 do first, last = first + run.losses[b], last + run.losses[25 + b] end
    assert.is_true(last < 0.5 * first, ("loss %g, then %g"):format(first, last))
    for text, expected in pairs {
      ["1,2,0\n1,x,1\n"] = ":2: \"x\" is not a number", ["1,2,0\n1,2\n"] = ":2: 2 columns", ["1,nan,0\n"] = ":1:",
      ["5\n"] = ":1: a row has", [""] = "no rows",
    } do
      write(text)
      local ok, message = pcall(loop.csv_config, config(), path, 1)
      assert.is_false(ok)
      assert.matches(expected, message, 1, true)
    end
    os.remove(path)
  end)
end)
