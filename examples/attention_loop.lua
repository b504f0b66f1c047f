-- SPDX-License-Identifier: MIT
-- Attention under resets: two ops written in Lua, with the arena reset between their forward and their backward.
--
--   perilune examples/attention_loop.lua [--engine KIND | --all] [--arena 64MiB] [--epochs 2] [--batches 2] [--samples 3] [--rate 0.05]
--       [--twin unsaved] [--stale error|allow]
--
-- Single-head attention, then a residual with an RMS norm. What a backward reads was saved by its forward (ctx:save), so it outlives the
-- reset; everything else is gone by then. --twin unsaved keeps the same tensors in fields instead, which must not pass unnoticed.

local perilune = require "perilune"

local loop = {}

loop.defaults = { epochs = 2, batches = 2, samples = 3, rate = 0.05, rows = 6, width = 8, arena = "64MiB" }

local function ramp(phase, n)
  local values = {}
  for i = 0, n - 1 do values[i + 1] = math.sin(phase + 0.7 * i) end
  return values
end

--- How a node keeps what its backward reads: saved, or (the fault) in its context's fields.
local function keeper(twin)
  if twin ~= "unsaved" then
    return function(ctx, ...) ctx:save(...) end, function(ctx) return ctx:saved() end
  end
  return function(ctx, ...) ctx.kept = { ... } end, function(ctx) return unpack(ctx.kept) end
end

--- The two nodes: attention(x, Wq, Wk, Wv) and residual_rms(x, out).
function loop.nodes(twin)
  local keep, kept = keeper(twin)
  local attention = perilune.op {
    name = "attention",
    forward = function(ctx, x, Wq, Wk, Wv)
      local Q, K, V = x:matmul(Wq), x:matmul(Wk), x:matmul(Wv)
      local A = (Q:matmul(K:t()) / math.sqrt(Q.shape[2])):softmax()
      keep(ctx, x, Q, K, V, A)
      return A:matmul(V)
    end,
    backward = function(ctx, g)
      local x, Q, K, V, A = kept(ctx)
      local dA = g:matmul(V:t())
      local dS = A * (dA - (dA * A):sum(2, true)) / math.sqrt(Q.shape[2])
      local xt = x:t()
      return nil, xt:matmul(dS:matmul(K)), xt:matmul(dS:t():matmul(Q)), xt:matmul(A:t():matmul(g))
    end,
  }
  local residual_rms = perilune.op {
    name = "residual_rms",
    forward = function(ctx, x, out)
      local r = x + out
      local scale = ((r * r):mean(2, true) + 1e-5):rsqrt()
      local y = r * scale
      keep(ctx, y, scale)
      return y
    end,
    backward = function(ctx, g)
      local y, scale = kept(ctx)
      return nil, scale * (g - y * (g * y):mean(2, true))
    end,
  }
  return attention, residual_rms
end

--- softmax(y) - target on the host, and the cross-entropy that it is the gradient of; row r's class is (number + r) mod width, from 0.
local function loss_gradient(y, number)
  local loss = 0
  for r, row in ipairs(y) do
    local sum, most = 0, math.max(unpack(row))
    for j, v in ipairs(row) do
      row[j] = math.exp(v - most)
      sum = sum + row[j]
    end
    for j in ipairs(row) do row[j] = row[j] / sum end
    local class = (number + r - 1) % #row + 1
    loss = loss - math.log(row[class])
    row[class] = row[class] - 1
  end
  return y, loss
end

--- Sample n (from 0, over the whole run): its input.
function loop.input(cfg, n) return ramp(0.41 + 0.07 * n, cfg.rows * cfg.width) end

--- Trains on `eng`; returns losses per batch, the parameters, and what the engine counted.
function loop.train(eng, cfg)
  local attention, residual_rms = loop.nodes(cfg.twin)
  local W, homes = {}, {}
  for k, phase in ipairs { 0.31, 0.17, 0.59 } do
    W[k] = eng:param({ cfg.width, cfg.width }, ramp(phase, cfg.width * cfg.width))
    homes[k] = { W[k]:address(), W[k].grad:address() }
  end
  local function check_homes()
    for k, w in ipairs(W) do
      assert(w:address() == homes[k][1] and w.grad:address() == homes[k][2], "a persistent storage was re-homed")
    end
  end
  local losses, n, started = {}, 0, os.clock()
  for epoch = 0, cfg.epochs - 1 do
    for batch = 0, cfg.batches - 1 do
      local sum = 0
      for sample = 0, cfg.samples - 1 do
        local x = eng:tensor(loop.input(cfg, n), { shape = { cfg.rows, cfg.width } })
        local y = residual_rms(x, attention(x, W[1], W[2], W[3]))
        local dy, loss = loss_gradient(y:totable(), epoch + batch + sample)
        eng:reset() -- y, and all that forward made and did not save, is gone
        y:backward(eng:tensor(dy))
        check_homes()
        eng:reset()
        n, sum = n + 1, sum + loss
      end
      for _, w in ipairs(W) do
        eng:sgd(w, w.grad, { lr = cfg.rate })
        eng:zero(w.grad)
      end
      check_homes()
      eng:reset()
      losses[#losses + 1] = sum
    end
  end
  local run = { losses = losses, count = n, stats = eng:stats(), seconds = os.clock() - started, finite = true }
  for k, name in ipairs { "Wq", "Wk", "Wv" } do
    run[name] = W[k]:totable()
    run.finite = run.finite and W[k]:isfinite():all():item()
  end
  return run
end

--- Largest difference of two runs' parameters, and whether each is within 1e-5 + 1e-3 |reference|, all is finite and no pin is left.
function loop.compare(run, reference)
  local largest, ok = 0, run.finite and run.stats.pins == 0
  for _, name in ipairs { "Wq", "Wk", "Wv" } do
    for i, row in ipairs(reference[name]) do
      for j, want in ipairs(row) do
        local difference = math.abs(run[name][i][j] - want)
        if not (difference <= 1e-5 + 1e-3 * math.abs(want)) then ok = false end -- NaN never passes
        if not (difference <= largest) then largest = difference end
      end
    end
  end
  return ok, largest
end

local function parse(args)
  local cfg, options, i = setmetatable({}, { __index = loop.defaults }), {}, 1
  local numbers, texts = { epochs = true, batches = true, samples = true, rate = true }, { engine = true, arena = true, twin = true, stale = true }
  while args[i] do
    local name = args[i]:match "^%-%-(%a+)$"
    local value = args[i + 1]
    if name == "all" then
      options.all = true
    elseif numbers[name] then
      value = tonumber(value)
      if not value or value <= 0 or (name ~= "rate" and value % 1 ~= 0) then return nil, "--" .. name .. " needs a positive number" end
      cfg[name], i = value, i + 1
    elseif texts[name] then
      if not value then return nil, "--" .. name .. " needs a value" end
      options[name], i = value, i + 1
    else
      return nil, "unknown option " .. args[i]
    end
    i = i + 1
  end
  if options.twin and options.twin ~= "unsaved" then return nil, "--twin is unsaved" end
  cfg.twin, cfg.arena = options.twin, options.arena
  return cfg, options
end

function loop.main(args)
  local cfg, options = parse(args)
  if not cfg then
    io.stderr:write("attention_loop: ", options, "\n")
    return 2
  end
  local kinds = { options.engine or os.getenv "PERILUNE_ENGINE" or "cpu" }
  if options.all then kinds = {} end
  for _, e in ipairs(perilune.engines()) do
    if options.all and e.available then kinds[#kinds + 1] = e.kind end
    if options.all and not e.available then print(("%-9s not available: %s"):format(e.kind, e.reason)) end
  end
  local cpu = perilune.engine { "cpu", arena = 0, poison = false }
  local reference = loop.train(cpu, setmetatable({ twin = false }, { __index = cfg }))
  cpu:close()
  local all_ok = #kinds > 0
  for _, kind in ipairs(kinds) do
    local opened, eng = pcall(perilune.engine, { kind, arena = kind ~= "cpu" and cfg.arena or nil, stale = options.stale })
    if not opened then
      io.stderr:write("attention_loop: ", eng, "\n")
      return 2
    end
    local ran, run = pcall(loop.train, eng, cfg)
    eng:close()
    local ok, largest = false, nil
    if ran then
      ok, largest = loop.compare(run, reference)
      local text = {}
      for i, loss in ipairs(run.losses) do text[i] = ("%.5f"):format(loss / cfg.samples) end
      print(("%-9s loss per batch %s"):format(kind, table.concat(text, " ", 1, math.min(#text, 8))))
      print(("%-9s largest difference %.2g, resets %d, poisoned %d bytes, pins left %d, pinned at most %d bytes, %.0f samples/s"):format("",
        largest, run.stats.resets, run.stats.poisoned_bytes, run.stats.pins, run.stats.pinned_high_water, run.count / run.seconds))
    else
      print(("%-9s %s"):format(kind, run))
    end
    print(("%-9s %s"):format("", ok and "PASS" or "FAIL"))
    all_ok = all_ok and ok
  end
  return all_ok and 0 or 1
end

if arg and arg[0] and arg[0]:match "attention_loop%.lua$" then os.exit(loop.main(arg), true) end

return loop
