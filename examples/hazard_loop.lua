-- SPDX-License-Identifier: MIT
-- The hazard loop: gradients that accumulate across arena resets, the schedule that broke real training elsewhere.
--
--   perilune examples/hazard_loop.lua [--engine KIND | --all] [--arena 64MiB] [--inputs 8] [--hidden 8] [--outputs 4]
--       [--batches 3] [--samples 4] [--rate 0.05] [--twin accumulators|activation] [--stale error|allow]
--       [--csv FILE [--epochs 10]] [--autograd] [--capture]
--
-- A two-layer network is trained by hand-written gradients. What lives longer than a sample (weights, accumulators) is persistent;
-- all else dies with the reset after each sample. --twin plants one of two classic faults, which must not pass unnoticed.
-- --csv trains by the same schedule on rows of numbers whose last column is the class.
-- --autograd trains once more with recorded gradients; they agree to a few units in the last place.
-- --capture trains once more by captured steps: all samples are resident, a counter says whose turn it is, and no Lua runs between the
-- ops. The numbers are the same; the rate shows with many batches (--batches 20000).

local perilune = require "perilune"

local loop = {}

loop.defaults = { inputs = 8, hidden = 8, outputs = 4, batches = 3, samples = 4, rate = 0.05, arena = "64MiB" }

local function ramp(phase, n)
  local values = {}
  for i = 0, n - 1 do values[i + 1] = math.sin(phase + 0.7 * i) end
  return values
end

--- Sample s of batch b, both counted from 0: input row and class counted from 1.
local function ramp_sample(cfg, b, s)
  local k = cfg.samples * b + s
  return ramp(0.41 + 0.07 * k, cfg.inputs), (b + s) % cfg.outputs + 1
end

--- Trains on `eng` and returns losses (sums over the samples) and hits per batch, the parameters, and what the engine counted. cfg.sample(b, s) gives the data.
function loop.train(eng, cfg)
  local sample = cfg.sample or function(b, s) return ramp_sample(cfg, b, s) end
  local W1 = eng:persistent({ cfg.inputs, cfg.hidden }, ramp(0.31, cfg.inputs * cfg.hidden))
  local W2 = eng:persistent({ cfg.hidden, cfg.outputs }, ramp(0.17, cfg.hidden * cfg.outputs))
  local g1, g2, loss
  if cfg.twin == "accumulators" then -- the fault: the first reset takes them
    g1, g2 = eng:zeros(W1.shape), eng:zeros(W2.shape)
  else
    g1, g2 = eng:persistent(W1.shape), eng:persistent(W2.shape)
  end
  loss = eng:persistent({})
  local finite = eng:persistent({}, true, { dtype = "bool" })
  local homes = { { W1, W1:address() }, { W2, W2:address() }, { g1, g1:address() }, { g2, g2:address() } }
  local function check_homes()
    for _, h in ipairs(homes) do assert(h[1]:address() == h[2], "a persistent storage was re-homed") end
  end

  local losses, hits, total = {}, {}, 0
  local started = os.clock()
  for b = 0, cfg.batches - 1 do
    local count = cfg.count and cfg.count(b) or cfg.samples
    hits[b + 1] = 0
    for s = 0, count - 1 do
      local row, class = sample(b, s)
      local x = eng:tensor { row }
      local target = eng:zeros { 1, cfg.outputs }
      target[{ 1, class }] = 1

      local h = x:matmul(W1)
      local a = h:tanh()
      if cfg.twin == "activation" then eng:reset() end -- the fault: `a` is read after it
      local y = a:matmul(W2)
      local p = y:softmax()

      local dy = p - target
      local dW2 = a:t():matmul(dy)
      local da = dy:matmul(W2:t())
      local dh = (1 - a * a) * da
      local dW1 = x:t():matmul(dh)

      eng:add(g1, dW1, g1)
      eng:add(g2, dW2, g2)
      check_homes()
      eng:logical_and(finite, g1:isfinite():all():logical_and(g2:isfinite():all()), finite)
      eng:sub(loss, (p * target):sum():log(), loss)
      if cfg.score and p:argmax(2):item() == class then hits[b + 1] = hits[b + 1] + 1 end
      eng:reset()
    end
    total = total + count
    eng:sub(W1, g1 * cfg.rate, W1)
    eng:sub(W2, g2 * cfg.rate, W2)
    check_homes()
    eng:zero(g1)
    eng:zero(g2)
    check_homes()
    losses[b + 1] = loss:item()
    eng:zero(loss)
    eng:reset()
  end
  return {
    losses = losses, hits = hits, count = total, finite = finite:item(), W1 = W1:totable(), W2 = W2:totable(), stats = eng:stats(),
    seconds = os.clock() - started,
  }
end

--- The same training with recorded gradients instead of written ones.
function loop.train_autograd(eng, cfg)
  local sample = cfg.sample or function(b, s) return ramp_sample(cfg, b, s) end
  local W1 = eng:param({ cfg.inputs, cfg.hidden }, ramp(0.31, cfg.inputs * cfg.hidden))
  local W2 = eng:param({ cfg.hidden, cfg.outputs }, ramp(0.17, cfg.hidden * cfg.outputs))
  local total_loss, finite = eng:persistent {}, eng:persistent({}, true, { dtype = "bool" })
  local homes = {}
  for _, t in ipairs { W1, W2, W1.grad, W2.grad } do homes[#homes + 1] = { t, t:address() } end
  local function check_homes()
    for _, h in ipairs(homes) do assert(h[1]:address() == h[2], "a persistent storage was re-homed") end
  end

  local losses, hits, total, started = {}, {}, 0, os.clock()
  for b = 0, cfg.batches - 1 do
    local count = cfg.count and cfg.count(b) or cfg.samples
    hits[b + 1] = 0
    for s = 0, count - 1 do
      local row, class = sample(b, s)
      local y = eng:tensor({ row }):matmul(W1):tanh():matmul(W2)
      local loss = y:cross_entropy(eng:tensor({ class }, { dtype = "i64" }))
      loss:backward()
      check_homes()
      eng:logical_and(finite, W1.grad:isfinite():all():logical_and(W2.grad:isfinite():all()), finite)
      eng:add(total_loss, loss:detach(), total_loss)
      if cfg.score and y:argmax(2):item() == class then hits[b + 1] = hits[b + 1] + 1 end
      eng:reset()
    end
    total = total + count
    for _, W in ipairs { W1, W2 } do
      eng:sgd(W, W.grad, { lr = cfg.rate })
      eng:zero(W.grad)
    end
    check_homes()
    losses[b + 1] = total_loss:item()
    eng:zero(total_loss)
    eng:reset()
  end
  return {
    losses = losses, hits = hits, count = total, finite = finite:item(), W1 = W1:totable(), W2 = W2:totable(), stats = eng:stats(),
    seconds = os.clock() - started,
  }
end

--- The same training by two captured steps, one sample and the update after a batch.
function loop.train_captured(eng, cfg)
  local sample = cfg.sample or function(b, s) return ramp_sample(cfg, b, s) end
  local W1 = eng:persistent({ cfg.inputs, cfg.hidden }, ramp(0.31, cfg.inputs * cfg.hidden))
  local W2 = eng:persistent({ cfg.hidden, cfg.outputs }, ramp(0.17, cfg.hidden * cfg.outputs))
  local g1, g2, loss, hit = eng:persistent(W1.shape), eng:persistent(W2.shape), eng:persistent {}, eng:persistent { 1 }
  local finite = eng:persistent({}, true, { dtype = "bool" })
  local rows, classes, counts = {}, {}, {}
  for b = 0, cfg.batches - 1 do
    counts[b + 1] = cfg.count and cfg.count(b) or cfg.samples
    for s = 0, counts[b + 1] - 1 do
      local row, class = sample(b, s)
      rows[#rows + 1], classes[#classes + 1] = { unpack(row, 1, cfg.inputs) }, class
    end
  end
  local data, class_of = eng:persistent({ #rows, cfg.inputs }, rows), eng:persistent({ #rows }, classes, { dtype = "i64" })
  local targets = eng:persistent({ #rows, cfg.outputs }, class_of:one_hot(cfg.outputs):to "f32")
  local counter = eng:persistent({ 1 }, 1, { dtype = "i64" })

  local step = eng:capture(function()
    local x, target = data:index_select(1, counter), targets:index_select(1, counter)
    local a = x:matmul(W1):tanh()
    local p = a:matmul(W2):softmax()
    local dy = p - target
    local dh = (1 - a * a) * dy:matmul(W2:t())
    eng:add(g1, x:t():matmul(dh), g1)
    eng:add(g2, a:t():matmul(dy), g2)
    eng:sub(loss, (p * target):sum():log(), loss)
    if cfg.score then eng:add(hit, p:argmax(2):eq(class_of:index_select(1, counter)):to "f32", hit) end
    eng:add(counter, 1, counter)
  end)
  local update = eng:capture(function()
    eng:logical_and(finite, g1:isfinite():all():logical_and(g2:isfinite():all()), finite)
    eng:sub(W1, g1 * cfg.rate, W1)
    eng:sub(W2, g2 * cfg.rate, W2)
    eng:zero(g1)
    eng:zero(g2)
  end)

  local losses, hits = {}, {}
  local started = os.clock()
  for b = 1, cfg.batches do
    for _ = 1, counts[b] do step:replay() end
    update:replay()
    eng:reset()
    losses[b], hits[b] = loss:item(), hit:item()
    eng:zero(loss)
    eng:zero(hit)
  end
  local seconds = os.clock() - started
  step:release()
  update:release()
  return {
    losses = losses, hits = hits, count = #rows, finite = finite:item(), W1 = W1:totable(), W2 = W2:totable(), stats = eng:stats(),
    seconds = seconds,
  }
end

--- Largest difference of two runs' parameters, and whether each is within 1e-5 + 1e-3 |reference| and finite.
function loop.compare(run, reference)
  local largest, ok = 0, run.finite
  for _, name in ipairs { "W1", "W2" } do
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

--- Rows of numbers and classes of a CSV file; every bad row is refused with its line.
function loop.read_csv(path)
  local file = assert(io.open(path))
  local rows, classes, index, number = {}, {}, {}, 0
  for line in file:lines() do
    number = number + 1
    local row = {}
    for field in (line:gsub("\r$", "") .. ","):gmatch "([^,]*)," do
      local value = tonumber(field)
      if not value or value ~= value or math.abs(value) == math.huge then
        error(("%s:%d: %q is not a number"):format(path, number, field), 0)
      end
      row[#row + 1] = value
    end
    if #row < 2 then error(("%s:%d: a row has at least one number and the class"):format(path, number), 0) end
    if rows[1] and #row ~= #rows[1] + 1 then
      error(("%s:%d: %d columns, the rows before have %d"):format(path, number, #row, #rows[1] + 1), 0)
    end
    local class = table.remove(row)
    if not index[class] then
      classes[#classes + 1] = class
      index[class] = true
    end
    rows[#rows + 1] = row
    row.class = class
  end
  file:close()
  if #rows == 0 then error(path .. ": no rows", 0) end
  table.sort(classes)
  for i, class in ipairs(classes) do index[class] = i end
  for _, row in ipairs(rows) do row.class = index[row.class] end
  for column = 1, #rows[1] do -- to mean 0 and deviation 1
    local sum, squares = 0, 0
    for _, row in ipairs(rows) do sum = sum + row[column] end
    local mean = sum / #rows
    for _, row in ipairs(rows) do squares = squares + (row[column] - mean) ^ 2 end
    local deviation = math.sqrt(squares / #rows)
    for _, row in ipairs(rows) do row[column] = deviation > 0 and (row[column] - mean) / deviation or 0 end
  end
  return rows, #classes
end

--- The configuration that runs `epochs` over a CSV file's rows.
function loop.csv_config(cfg, path, epochs)
  local rows, outputs = loop.read_csv(path)
  local per_epoch = math.ceil(#rows / cfg.samples)
  local function at(b, s) return b % per_epoch * cfg.samples + s + 1 end
  local new = setmetatable({ inputs = #rows[1], outputs = outputs, batches = per_epoch * epochs, score = true }, { __index = cfg })
  new.sample = function(b, s) return rows[at(b, s)], rows[at(b, s)].class end
  new.count = function(b) return math.min(cfg.samples, #rows - b % per_epoch * cfg.samples) end
  return new, rows, per_epoch
end

local function print_run(kind, cfg, run, ok, largest)
  local s = run.stats
  print(("%-9s loss per batch %s"):format(kind, table.concat((function()
    local text = {}
    for i = 1, math.min(#run.losses, 8) do text[i] = ("%.5f"):format(run.losses[i] / (cfg.count and cfg.count(i - 1) or cfg.samples)) end
    if #run.losses > 8 then text[#text + 1] = "..." end
    return text
  end)(), " ")))
  print(("%-9s largest difference %.2g, resets %d, poisoned %d bytes, stale frees %d, arena high water %d bytes, %.0f samples/s"):format(
    "", largest, s.resets, s.poisoned_bytes, s.stale_frees, s.high_water, run.count / run.seconds))
  print(("%-9s %s"):format("", ok and "PASS" or "FAIL"))
end

local function print_epochs(name, cfg, run, report)
  for epoch = 1, cfg.batches / report.per_epoch do
    local sum, hits = 0, 0
    for b = (epoch - 1) * report.per_epoch + 1, epoch * report.per_epoch do
      sum, hits = sum + run.losses[b], hits + run.hits[b]
    end
    print(("%-9s epoch %d: loss %.5f, accuracy %.4f"):format(name, epoch, sum / #report.rows, hits / #report.rows))
  end
end

local function usage(message)
  io.stderr:write("hazard_loop: ", message, "\n")
  return 2
end

local function parse(args)
  local cfg, options = setmetatable({}, { __index = loop.defaults }), {}
  local numbers = { inputs = true, hidden = true, outputs = true, batches = true, samples = true, rate = true, epochs = true }
  local texts = { engine = true, arena = true, csv = true, twin = true, stale = true }
  local i = 1
  while args[i] do
    local name = args[i]:match "^%-%-(%a+)$"
    if name == "all" or name == "capture" or name == "autograd" then
      options[name] = true
    elseif numbers[name] then
      local value = tonumber(args[i + 1])
      if not value or value <= 0 or (name ~= "rate" and value % 1 ~= 0) then return nil, "--" .. name .. " needs a positive number" end
      cfg[name], i = value, i + 1
    elseif texts[name] then
      if not args[i + 1] then return nil, "--" .. name .. " needs a value" end
      options[name], i = args[i + 1], i + 1
    else
      return nil, "unknown option " .. args[i]
    end
    i = i + 1
  end
  if options.twin and options.twin ~= "accumulators" and options.twin ~= "activation" then
    return nil, "--twin is accumulators or activation"
  end
  if options.twin and options.autograd then return nil, "--twin and --autograd do not go together: the twins are faults of hand-written gradients" end
  if options.twin and options.capture then return nil, "--twin and --capture do not go together: a capture protects what it uses" end
  cfg.twin = options.twin
  cfg.arena = options.arena
  return cfg, options
end

function loop.main(args)
  local cfg, options = parse(args)
  if not cfg then return usage(options) end
  local report
  if options.csv then
    local ok, new, rows, per_epoch = pcall(loop.csv_config, cfg, options.csv, rawget(cfg, "epochs") or 10)
    if not ok then return usage(new) end
    cfg, report = new, { rows = rows, per_epoch = per_epoch }
  end
  local kinds = {}
  for _, e in ipairs(perilune.engines()) do
    if options.all and e.available then kinds[#kinds + 1] = e.kind end
    if options.all and not e.available then print(("%-9s not available: %s"):format(e.kind, e.reason)) end
  end
  if not options.all then kinds[1] = options.engine or os.getenv "PERILUNE_ENGINE" or "cpu" end

  local clean = setmetatable({ twin = false }, { __index = cfg })
  local cpu = perilune.engine { "cpu", arena = 0, poison = false }
  local reference = loop.train(cpu, clean)
  cpu:close()
  local all_ok, ways = true, { { train = loop.train } }
  if options.autograd then ways[#ways + 1] = { train = loop.train_autograd, name = "autograd" } end
  if options.capture then ways[#ways + 1] = { train = loop.train_captured, name = "captured" } end
  for _, kind in ipairs(kinds) do
    local arena = kind ~= "cpu" and cfg.arena or nil
    for _, way in ipairs(ways) do
      local train = way.train
      local opened, eng = pcall(perilune.engine, { kind, arena = arena, stale = options.stale })
      if not opened then return usage(eng) end
      local ran, run = pcall(train, eng, cfg)
      eng:close()
      local name = way.name or kind
      if not ran then
        print(("%-9s %s\n%-9s FAIL"):format(name, run, ""))
        all_ok = false
      else
        local ok, largest = loop.compare(run, reference)
        if report then print_epochs(name, cfg, run, report) end
        print_run(name, cfg, run, ok, largest)
        all_ok = all_ok and ok
      end
    end
  end
  return all_ok and 0 or 1
end

if arg and arg[0] and arg[0]:match "hazard_loop%.lua$" then os.exit(loop.main(arg), true) end

return loop
