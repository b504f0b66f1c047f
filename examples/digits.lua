-- SPDX-License-Identifier: MIT
-- Handwritten digits: a small convolutional network learns to read 8x8 images from a CSV (64 pixels of 0..16 and the digit in each row).
--
--   python3 scripts/make_digits.py digits.csv
--   perilune examples/digits.lua digits.csv [--engine KIND] [--epochs 30] [--batch 32] [--rate 0.004] [--seed 1] [--save FILE]
--
-- A fifth of the images is kept for the test. The arena is reset after each step: what a step makes is gone, the model stays.

local perilune = require "perilune"
local options = require "perilune.options"
local data, nn, optim = perilune.data, perilune.nn, perilune.optim

local digits = {}

digits.defaults = { epochs = 30, batch = 32, rate = 0.004, seed = 1, engine = os.getenv "PERILUNE_ENGINE" or "cpu" }

--- The network: images (N, 64) to scores (N, 10).
function digits.model(eng)
  return nn.Sequential {
    function(x) return x:reshape { -1, 1, 8, 8 } end,
    nn.Conv2d(eng, 1, 16, 3, { padding = 1 }), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(eng, 16, 32, 3, { padding = 1 }), nn.ReLU(), nn.MaxPool2d(2),
    function(x) return x:flatten(2) end,
    nn.Dropout(0.2),
    nn.Linear(eng, 128, 10),
  }
end

--- Images within 0..1 and classes 1..10 of a file: the training set and the test set, each { x, y }.
function digits.load(eng, path, seed)
  local rows = data.csv(eng, path)
  if rows.shape[2] ~= 65 then error(("%s: rows of 64 pixels and a digit were expected, got %d fields"):format(path, rows.shape[2]), 0) end
  local parts = data.batches(rows, { size = math.ceil(rows.shape[1] * 4 / 5), seed = seed })
  local sets = {}
  for part in parts do
    local x, y = part:narrow(2, 1, 64) / 16, (part:narrow(2, 65, 1):reshape { -1 } + 1):to "i64"
    sets[#sets + 1] = { eng:persistent(x.shape, x), eng:persistent(y.shape, y) }
    eng:reset()
  end
  if not sets[2] then error(("%s: too few rows for a training set and a test set"):format(path), 0) end
  return sets[1], sets[2]
end

--- Counts of (digit, what was read), 10 x 10, and the share that was read right.
function digits.test(eng, model, set)
  local counts, right = {}, 0
  for i = 1, 10 do counts[i] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } end
  model:eval()
  eng:no_grad(function()
    for x, y in data.batches(set, { size = 256, shuffle = false }) do
      local read, want = model(x):argmax(2):totable(), y:totable()
      for i, w in ipairs(want) do
        counts[w][read[i]] = counts[w][read[i]] + 1
        if w == read[i] then right = right + 1 end
      end
      eng:reset()
    end
  end)
  model:train()
  return counts, right / #set[2]
end

--- Trains; returns the model, the mean loss of each epoch, and what digits.test says of the test set.
function digits.train(eng, cfg, path)
  eng:rng { cfg.seed, 0 }
  local train, test = digits.load(eng, path, cfg.seed)
  local model = digits.model(eng)
  local opt = optim.AdamW(model, { lr = cfg.rate })
  local loader = data.batches(train, { size = cfg.batch, seed = cfg.seed })
  local schedule = optim.cosine(opt, { steps = cfg.epochs * loader.count, warmup = loader.count })
  local sum, losses = eng:persistent {}, {}
  for epoch in perilune.progress { cfg.epochs, title = "epochs" } do
    eng:zero(sum)
    for x, y in loader do
      opt:zero_grad()
      local loss = nn.loss.cross_entropy(model(x), y, { label_smoothing = 0.05 })
      loss:backward()
      opt:step()
      schedule:step()
      eng:add(sum, loss:detach(), sum)
      eng:reset()
    end
    losses[epoch] = sum:item() / loader.count
  end
  return model, losses, digits.test(eng, model, test)
end

local function confusion(counts)
  local lines = { "digit   read as  0   1   2   3   4   5   6   7   8   9" }
  for i, row in ipairs(counts) do
    local cells = {}
    for j, n in ipairs(row) do cells[j] = n == 0 and "   ." or ("%4d"):format(n) end
    lines[#lines + 1] = ("%5d        %s"):format(i - 1, table.concat(cells))
  end
  return table.concat(lines, "\n")
end

function digits.main(args)
  local cfg, words = options.read_over(args, "perilune examples/digits.lua FILE.csv [OPTIONS]", digits.defaults, { save = "FILE for the model" })
  if not cfg then return words end
  local path = words[1]
  if not path then
    io.stderr:write "digits: which CSV? scripts/make_digits.py makes one\n"
    return 2
  end
  local eng = perilune.engine(cfg.engine)
  local started = perilune.clock()
  local model, losses, counts, right = digits.train(eng, cfg, path)
  print(perilune.plot.line(losses, { title = "mean loss", xlabel = "epoch", height = 14 }))
  print(confusion(counts))
  print(("%.2f %% of the test images read right after %.1f s"):format(100 * right, perilune.clock() - started))
  if cfg.save then data.safetensors.save(cfg.save, model:state()) end
  return 0
end

if arg and arg[0] and arg[0]:match "digits%.lua$" then os.exit(digits.main(arg), true) end

return digits
