-- SPDX-License-Identifier: MIT
-- The examples at small size: what they learn, that engines and ways to run them agree number for number, and their command lines.

local perilune = require "perilune"
local data = require "perilune.data"
local parity = require "perilune.parity"
local engines = require "spec.support.engines"

local digits = dofile "examples/digits.lua"
local chargpt = dofile "examples/chargpt.lua"
local spiral = dofile "examples/spiral.lua"
local custom_op = dofile "examples/custom_op.lua"

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

local function shell(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo status $?"))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

local function run(arguments) return shell(("'%s' %s"):format(launcher, arguments)) end

local function quiet() end

local function config(example, changes) return setmetatable(changes or {}, { __index = example.defaults }) end

local function write(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
  return path
end

describe("examples", function()
  local folder

  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(os.execute("mkdir " .. folder) == 0)
  end)
  teardown(function() os.execute("rm -r " .. folder) end)
  after_each(engines.close)

  --- 300 images of ten patterns with noise, as scripts/make_digits.py lays them out.
  local function images()
    local rows = {}
    for i = 1, 300 do
      local digit, row = i % 10, {}
      for p = 1, 64 do
        local clear = math.sin(1.7 * p * (digit + 1)) > 0 and 12 or 3
        row[p] = math.max(0, math.min(16, math.floor(clear + 3 * math.sin(12.9898 * i + 78.233 * p))))
      end
      row[65] = digit
      rows[i] = table.concat(row, ",")
    end
    local names = {}
    for p = 1, 64 do names[p] = "pixel" .. p - 1 end
    return write(folder .. "/images.csv", table.concat(names, ",") .. ",digit\n" .. table.concat(rows, "\n") .. "\n")
  end

  it("digits learns patterns, with the same bits on the host's engines", function()
    local path, bits = images(), nil
    for _, kind in ipairs { "cpu", "stress" } do
      local eng = engines.open(kind)
      local model, losses, counts, right = digits.train(eng, config(digits, { epochs = 10 }), path)
      assert.is_true(right >= 0.95, right)
      assert.equal(10, #losses)
      local sum, on_diagonal = 0, 0
      for i, row in ipairs(counts) do
        for j, n in ipairs(row) do
          sum = sum + n
          if i == j then on_diagonal = on_diagonal + n end
        end
      end
      assert.equal(60, sum)
      assert.equal(right, on_diagonal / sum)
      local now = {}
      for _, p in ipairs((model:parameters())) do now[#now + 1] = p:bytes() end
      now = table.concat(now)
      assert.is_true(now == (bits or now))
      bits = now
      assert.equal(0, eng:stats().pins)
    end
  end)

  it("digits runs as a script, saves its model, and says what is wrong", function()
    local path = images()
    local output, status = run(("examples/digits.lua %s --epochs 10 --save %s/model"):format(path, folder))
    assert.equal(0, status, output)
    assert.matches("mean loss\n.*\226\148\148.*epoch\n", output)
    assert.matches("digit   read as  0   1   2", output, 1, true)
    assert.matches("%d+%.%d%d %% of the test images read right after %d+%.%d s", output)
    local eng = engines.open "cpu"
    digits.model(eng):load((data.safetensors.load(eng, folder .. "/model")))
    for arguments, text in pairs {
      [""] = "which CSV", ["a.csv --tea"] = "unknown option '--tea'", [path .. " --epochs x"] = "--epochs needs a number, got 'x'",
    } do
      output, status = run("examples/digits.lua " .. arguments)
      assert.equal(2, status, output)
      assert.matches(text, output, 1, true)
    end
    output, status = run("examples/digits.lua " .. write(folder .. "/narrow.csv", "1,2\n"))
    assert.equal(1, status)
    assert.matches("rows of 64 pixels and a digit were expected, got 2 fields", output, 1, true)
  end)

  local SMALL = { steps = 12, batch = 4, context = 16, width = 16, layers = 2, heads = 2, every = 1, rate = 0.02, length = 40, prompt = "a" }
  local TEXT = ("a text that is written again and again, and again\n"):rep(20)

  local function small(changes)
    local cfg = {}
    for key, value in pairs(SMALL) do cfg[key] = value end
    for key, value in pairs(changes or {}) do cfg[key] = value end
    return config(chargpt, cfg)
  end

  it("chargpt gives the same losses and text captured and eager, on every engine of the host", function()
    local want
    for _, kind in ipairs { "cpu", "stress" } do
      for _, eager in ipairs { true, false } do
        local eng = engines.open(kind)
        local model = chargpt.open(eng, small { eager = eager }, TEXT)
        local got = { losses = chargpt.train(model, quiet) }
        got.text = chargpt.write(model, "a ", 40)
        want = want or got
        assert.same(want, got)
        assert.equal(12, #got.losses)
        assert.is_true(got.losses[12] < got.losses[1] - 0.5)
        assert.equal(42, #got.text)
        assert.equal(0, eng:stats().pins)
      end
    end
  end)

  it("chargpt generates with its cache what it would compute at once", function()
    local eng = engines.open "cpu"
    local model = chargpt.open(eng, small(), TEXT)
    local ids = eng:persistent({ 1, 16 }, model.vocabulary:encode(TEXT:sub(1, 16)), { dtype = "i64" })
    eng:no_grad(function()
      local whole, caches = model.model(ids), {}
      for i, block in ipairs(model.model.blocks) do caches[i] = block.attention:cache(1, 16) end
      for at = 1, 16 do
        local one = model.model(ids:narrow(2, at, 1), caches)
        assert.is_true((one - whole:narrow(2, at, 1)):abs():max():item() < 1e-5)
      end
    end)
  end)

  it("chargpt goes on from what it saved, bit for bit", function()
    local path = folder .. "/run"
    local whole = chargpt.open(engines.open "cpu", small(), TEXT)
    local want = chargpt.train(whole, quiet)
    local half = chargpt.open(engines.open "cpu", small(), TEXT)
    half.cfg = small { steps = 5 }
    chargpt.train(half, quiet)
    data.checkpoint.save(path, half.parts)
    local rest = chargpt.open(engines.open("stress", { seed = 9 }), small { seed = 3 }, TEXT)
    data.checkpoint.load(path, rest.parts)
    assert.same(want, chargpt.train(rest, quiet))
    for name, t in pairs(whole.model:state()) do assert.equal(t:bytes(), rest.model:state()[name]:bytes()) end
    assert.equal(chargpt.write(whole, "a", 20), chargpt.write(rest, "a", 20))
  end)

  it("chargpt runs as a script, saves and resumes", function()
    local options = "--batch 4 --context 16 --width 16 --layers 1 --heads 2 --every 4 --length 30 --prompt a --seed 2"
    local text = write(folder .. "/text", TEXT)
    local output, status = run(("examples/chargpt.lua %s %s --steps 8 --save %s/gpt"):format(text, options, folder))
    assert.equal(0, status, output)
    assert.matches("1000 bytes of text, 15 symbols, %d+ parameters\nstep     1 +%d+ tokens/s  loss %d%.%d+\nstep     4 ", output)
    output, status = run(("examples/chargpt.lua %s %s --steps 12 --resume %s/gpt --eager"):format(text, options, folder))
    assert.equal(0, status, output)
    assert.matches("symbols, %d+ parameters\nstep    12 +%d+ tokens/s", output)
    output, status = run("examples/chargpt.lua " .. write(folder .. "/short", "abc"))
    assert.equal(1, status)
    assert.matches("a text of more than 64 bytes is needed, this one has 3", output, 1, true)
    output, status = run("examples/chargpt.lua --steps x")
    assert.equal(2, status)
    assert.matches("--steps needs a number", output, 1, true)
    assert.is_true(#chargpt.text() > 10000) -- the project's own pages
  end)

  it("spiral learns, with the same numbers on the host's engines, and draws what it sees", function()
    local want
    for _, kind in ipairs { "cpu", "stress" } do
      local eng = engines.open(kind)
      local model, right, losses = spiral.train(eng, 800, 1)
      assert.is_true(right > 0.97, right)
      want = want or losses
      assert.same(want, losses)
      assert.equal(40, #losses)
      local picture = spiral.draw(eng, model, 40, 20)
      local lines = select(2, picture:gsub("[^\n]+", ""))
      assert.equal(20, lines)
      assert.matches("o", picture, 1, true)
      assert.matches("\226\150\145", picture, 1, true)
    end
    local output, status = run "examples/spiral.lua 50"
    assert.equal(0, status, output)
    assert.matches("   loss\n", output, 1, true)
    assert.matches("50 steps in %d+%.%d s, loss %d%.%d+, %d+%.%d %% of the points right", output)
    assert.equal(2, select(2, run "examples/spiral.lua x"))
    assert.equal(2, select(2, run "examples/spiral.lua 0"))
  end)

  it("custom_op is right, and its careless twin is caught", function()
    local output, status = run "examples/custom_op.lua"
    assert.equal(0, status, output)
    local right, careless = output:match "^snake:\n(.*)\nthe same with a tensor that was not saved, which must be caught:\n(.*)$"
    assert.is_nil(right:match "FAIL")
    assert.matches("PASS gradcheck", right, 1, true)
    assert.matches("PASS reset-between-fwd-bwd: stress against cpu: 5 samples passed", right, 1, true)
    assert.matches("FAIL reset-between-fwd-bwd", careless, 1, true)
    assert.matches("is stale: made at examples/custom_op.lua:%d+", careless)
  end)

  it("the schedule of one's own is found by name and shows wrong numbers without poison", function()
    local output, status = shell(("PERILUNE_SCHEDULES=examples/schedules '%s' parity tanh matmul --quick --schedule garbage"):format(launcher))
    assert.equal(0, status, output)
    assert.matches("PASS garbage: stress against cpu", output, 1, true)
    local eng = engines.open("cpu", { arena = "1MiB", poison = false, stale = "allow" })
    local cases = custom_op.cases(custom_op.careless, "f32")
    local report = parity.run { candidate = eng, ops = cases, schedule = "examples/schedules/garbage.lua" }
    assert.is_false(report.pass)
    assert.is_true(report.failed >= 3, report:summary())
    assert.is_true(report.max_abs > 1e15) -- the garbage, squared
    report = parity.run { candidate = eng, ops = custom_op.cases(custom_op.snake, "f32"), schedule = "examples/schedules/garbage.lua" }
    assert.is_true(report.pass, report:summary())
    assert.is_true(perilune.is_engine(eng))
  end)

  it("embed.c runs a script in a Lua state of its own and gets errors as messages", function()
    local program = folder .. "/embed"
    local output, status = shell(("${CC:-cc} -Wall -Wextra -Werror -o %s examples/embed.c $(pkg-config --cflags --libs luajit) -Wl,-E"):format(program))
    assert.equal(0, status, output)
    output, status = shell(program)
    assert.equal(0, status, output)
    assert.matches("step 200, loss 0.000000\ny = 3.000 x + 0.500\n", output, 1, true)
    local bad = write(folder .. "/bad.lua", "local eng = require 'perilune'.engine 'cpu'\neng:zeros{2}:matmul(eng:zeros{3})\n")
    output, status = shell(program .. " " .. bad)
    assert.equal(1, status)
    assert.matches("embed: .*bad.lua:2: matmul: .*\nstack traceback:", output)
    output, status = shell(program .. " " .. write(folder .. "/none.lua", "return 1"))
    assert.equal(1, status)
    assert.matches("embed: the script must return two numbers", output, 1, true)
    output, status = shell(program .. " nowhere.lua")
    assert.equal(1, status)
    assert.matches("cannot open nowhere.lua", output, 1, true)
  end)
end)
