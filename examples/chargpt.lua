-- SPDX-License-Identifier: MIT
-- A small GPT over the bytes of any text: it trains, writes text of its own, saves and goes on.
--
--   perilune examples/chargpt.lua [FILE] [--steps 400] [--save FILE] [--resume FILE] [--eager] ...        (--help tells all)
--
-- Without a FILE the project's own pages are the text. A step is captured once and replayed: which pieces of the text it sees is drawn in it.
-- --eager runs the same steps from Lua, with a reset after each; the numbers are the same.

local perilune = require "perilune"
local options = require "perilune.options"
local data, nn, optim = perilune.data, perilune.nn, perilune.optim

local gpt = {}

gpt.defaults = { steps = 400, batch = 16, context = 64, width = 64, layers = 3, heads = 4, rate = 0.003, every = 50, length = 300, seed = 1,
  prompt = "The ", engine = os.getenv "PERILUNE_ENGINE" or "cpu" }

local Block = nn.Module "Block"
function Block:init(eng, cfg)
  self.norm1 = nn.RMSNorm(eng, cfg.width)
  self.attention = nn.MultiheadAttention(eng, cfg.width, cfg.heads, { rotary = true, bias = false })
  self.norm2 = nn.RMSNorm(eng, cfg.width)
  self.mlp = nn.SwiGLU(eng, cfg.width, 2 * cfg.width)
end

function Block:forward(x, cache)
  x = x + self.attention(self.norm1(x), { causal = true, cache = cache })
  return x + self.mlp(self.norm2(x))
end

gpt.Model = nn.Module "GPT"

function gpt.Model:init(eng, cfg, symbols)
  self.embedding = nn.Embedding(eng, symbols, cfg.width)
  self.blocks = {}
  for i = 1, cfg.layers do self.blocks[i] = Block(eng, cfg) end
  self.norm = nn.RMSNorm(eng, cfg.width)
  self.head = nn.Linear(eng, cfg.width, symbols, { bias = false })
end

--- Ids (B, L) to scores (B, L, symbols); caches: one per block, for generation.
function gpt.Model:forward(ids, caches)
  local x = self.embedding(ids)
  for i, block in ipairs(self.blocks) do x = block(x, caches and caches[i]) end
  return self.head(self.norm(x))
end

--- The text of a file, or that of the pages beside this script.
function gpt.text(path)
  local here = debug.getinfo(1, "S").source:match "^@(.*/)" or "./"
  local paths, texts = path and { path } or {}, {}
  if not path then
    for page in io.popen(("find '%s../docs' -name '*.md' | sort"):format(here)):lines() do paths[#paths + 1] = page end
  end
  for i, name in ipairs(paths) do
    local file = assert(io.open(name, "rb"))
    texts[i] = file:read "*a"
    file:close()
  end
  return table.concat(texts, "\n")
end

--- All that a run consists of. What `save` writes and `resume` reads is run.parts.
function gpt.open(eng, cfg, text)
  eng:rng { cfg.seed, 0 }
  local run = { cfg = cfg, engine = eng, vocabulary = data.vocabulary(text) }
  local ids = run.vocabulary:encode(text)
  if #ids <= cfg.context then error(("a text of more than %d bytes is needed, this one has %d"):format(cfg.context, #ids), 0) end
  run.ids = eng:persistent({ #ids }, ids, { dtype = "i64" })
  run.model = gpt.Model(eng, cfg, run.vocabulary.size)
  local opt = optim.AdamW(run.model, { lr = cfg.rate, weight_decay = 0.1 })
  local schedule = optim.cosine(opt, { steps = math.max(cfg.steps, 2), warmup = math.ceil(cfg.steps / 20), least = cfg.rate / 10 })
  run.parts = { model = run.model, optimizer = opt, schedule = schedule, engine = eng, progress = { step = 0, losses = { n = 0 } } }
  function run.step()
    local first = eng:randint(1, #ids - cfg.context + 1, { cfg.batch, 1 })
    local index = (first + eng:arange(cfg.context + 1, nil, nil, "i64")):reshape { -1 }
    local pieces = run.ids:index_select(1, index):view { cfg.batch, cfg.context + 1 }
    local scores = run.model(pieces:narrow(2, 1, cfg.context)):reshape { -1, run.vocabulary.size }
    local loss = nn.loss.cross_entropy(scores, pieces:narrow(2, 2, cfg.context):reshape { -1 })
    opt:zero_grad()
    loss:backward()
    optim.clip_grad_norm(opt.params, 1)
    opt:step()
    schedule:step()
    return loss
  end
  return run
end

--- Trains up to cfg.steps; returns the losses at every cfg.every steps, the first of this run's too.
function gpt.train(run, say)
  local cfg, eng, progress = run.cfg, run.engine, run.parts.progress
  local step, loss
  if not cfg.eager then step, loss = eng:capture(run.step) end
  local started, first = perilune.clock(), progress.step
  while progress.step < cfg.steps do
    if step then step:replay() else loss = run.step() end
    progress.step = progress.step + 1
    if progress.step == 1 or progress.step % cfg.every == 0 or progress.step == cfg.steps then
      local value = loss:item()
      progress.losses.n = progress.losses.n + 1
      progress.losses[progress.losses.n] = value
      local rate = (progress.step - first) * cfg.batch * cfg.context / (perilune.clock() - started)
      say(("step %5d %8.0f tokens/s  loss %.4f"):format(progress.step, rate, value))
    end
    eng:reset()
  end
  if step then step:release() end
  return progress.losses
end

--- `length` bytes after a prompt, drawn by the engine's random numbers. Keys and values of the past are cached; a full cache starts anew with
--- the last half.
function gpt.write(run, prompt, length)
  local cfg, eng, vocabulary = run.cfg, run.engine, run.vocabulary
  local caches, ids = {}, vocabulary:encode(prompt)
  for i, block in ipairs(run.model.blocks) do caches[i] = block.attention:cache(1, cfg.context) end
  eng:no_grad(function()
    for _ in perilune.progress { length, title = "writing" } do
      local fresh = caches[1].length == 0 or caches[1].length == cfg.context
      if fresh then
        for _, cache in ipairs(caches) do cache.length = 0 end
      end
      local new = { unpack(ids, fresh and math.max(1, #ids - cfg.context / 2 + 1) or #ids) }
      local scores = run.model(eng:tensor({ new }, { dtype = "i64" }), caches)[{ 1, -1 }]
      local below = (scores / 0.8):softmax():cumsum(1):lt(eng:rand {}):to("i64"):sum() -- symbols whose shares end below the number drawn
      ids[#ids + 1] = math.min(below:item() + 1, vocabulary.size)
      eng:reset()
    end
  end)
  return vocabulary:decode(ids)
end

function gpt.main(args)
  local cfg, words = options.read_over(args, "perilune examples/chargpt.lua [FILE] [OPTIONS]", gpt.defaults,
    { save = "FILE for a checkpoint at the end", resume = "FILE to go on from", eager = "run each step from Lua, with a reset after it" })
  if not cfg then return words end
  local run = gpt.open(perilune.engine(cfg.engine), cfg, gpt.text(words[1]))
  if cfg.resume then data.checkpoint.load(cfg.resume, run.parts) end
  print(("%d bytes of text, %d symbols, %d parameters"):format(#run.ids, run.vocabulary.size, run.model:count()))
  print(perilune.plot.line(gpt.train(run, print), { title = ("loss, every %d steps"):format(cfg.every), height = 14 }))
  if cfg.save then data.checkpoint.save(cfg.save, run.parts) end
  print(gpt.write(run, cfg.prompt, cfg.length))
  return 0
end

if arg and arg[0] and arg[0]:match "chargpt%.lua$" then os.exit(gpt.main(arg), true) end

return gpt
