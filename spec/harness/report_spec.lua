-- SPDX-License-Identifier: MIT
-- What the harnesses promise beside their verdict: reports, schedules of the user's own, and refusals; and that parity can fail.

local json = require "perilune.json"
local parity = require "perilune.parity"
local perilune = require "perilune"
local schedule = require "perilune.schedule"

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

local function folder()
  local dir = os.tmpname()
  os.remove(dir)
  os.execute("mkdir -p " .. dir .. "/schedules")
  finally(function() os.execute("rm -rf " .. dir) end)
  return dir
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function command(arguments, dir)
  local pipe = assert(io.popen(("l=$(realpath '%s') && cd '%s' && $l %s 2>&1; echo status $?"):format(launcher, dir or ".", arguments)))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

local OWN = [[
return { name = "my-own", run = function(s)
  s:forward_all()
  s:scope(function() s:collect() end)
  for i = s.n, 1, -1 do s:reset() s:backward(i) end
end }]]

describe("a parity report", function()
  it("counts and keeps what was executed, per op, sample and tensor", function()
    local dir = folder()
    local report = parity.run { reference = "cpu", candidate = "stress", ops = { "softmax", "matmul" }, schedule = "reset-between-fwd-bwd" }
    assert.is_true(report.pass)
    assert.equal(0, report.failed + report.errored)
    assert.is_true(report.executed > report.passed)
    local softmax = report:result "softmax"
    assert.is_true(softmax.pass)
    assert.is_true(softmax.executed > 0)
    assert.equal(0, softmax.max_abs)
    assert.is_nil(report:result "tanh")
    report:write(dir .. "/made/here/report.json")
    local file = assert(io.open(dir .. "/made/here/report.json"))
    local read = json.decode(file:read "*a")
    file:close()
    for _, key in ipairs { "pass", "passed", "failed", "errored", "skipped", "executed", "schedule", "candidate", "reference", "version" } do
      assert.equal(report[key], read[key], key)
    end
    assert.equal(2, #read.ops)
    local tensor = read.ops[1].samples[1].tensors[1]
    for _, key in ipairs { "name", "pass", "max_abs", "max_rel", "elements" } do assert.is_not_nil(tensor[key], key) end
  end)

  it("prints one line for each op, then the totals", function()
    local lines = {}
    parity.run { ops = { "softmax", "matmul" }, log = function(line) lines[#lines + 1] = line end }
    assert.equal(3, #lines)
    assert.matches("PASS matmul: %d+ samples, %d+ comparisons, max_abs", table.concat(lines, "\n"))
    assert.matches("PASS no%-reset: stress against cpu: %d+ samples passed, 0 failed, 0 errored, 0 skipped", lines[3])
  end)

  it("fails on too few comparisons and on none", function()
    assert.is_false(parity.run({ ops = { "exp" }, minimum = 1e6 }).pass)
    assert.is_false(parity.run({ ops = {} }).pass)
  end)

  local function case(fn)
    return { op = "mine", name = "mine", rtol = 1e-6, grad_rtol = 1e-5,
      inputs = function() return { { array = { shape = { 2 }, dtype = "f32", 1, 2 }, grad = true, slot = "x" } } end, run = fn }
  end

  it("fails when a result, a gradient or their number differs, or is NaN", function()
    local function differ(other)
      local report = parity.run { ops = { case(function(eng, x)
        if eng.kind == "cpu" then return x * 2 end
        return other(x)
      end) } }
      assert.is_false(report.pass)
      return report:failures()[1]
    end
    assert.matches("result 1: element 1 is 3 instead of 2", differ(function(x) return x * 3 end), 1, true)
    assert.matches("gradient of x: element 1", differ(function(x) return x:detach() * 2 + (x - x:detach()) end), 1, true)
    assert.matches("nan", differ(function(x) return x * 2 + 0 / 0 end), 1, true)
    assert.matches("tensors instead of", differ(function(x) return x * 2, x * 2 end), 1, true)
    local errored = parity.run { ops = { case(function(eng, x) return eng.kind == "cpu" and x * 2 or error "boom" end) } }
    assert.equal(1, errored.errored)
    assert.matches("mine under no%-reset on stress: .*boom", errored:failures()[1])
  end)
end)

describe("a schedule of one's own", function()
  it("is found by name in ./schedules and PERILUNE_SCHEDULES, by path, and as a table", function()
    local dir = folder()
    write(dir .. "/schedules/mine.lua", OWN)
    local output, status = command("parity exp --schedule mine", dir)
    assert.equal(0, status, output)
    assert.matches("PASS my-own: stress against cpu", output, 1, true)
    output, status = command(("parity exp --schedule %s/schedules/mine.lua"):format(dir))
    assert.equal(0, status, output)
    local pipe = io.popen(("PERILUNE_SCHEDULES=%s/schedules '%s' parity exp --schedule mine 2>&1"):format(dir, launcher))
    assert.matches("PASS my-own", pipe:read "*a", 1, true)
    pipe:close()
    assert.is_true(parity.run({ ops = { "exp" }, schedule = loadstring(OWN)() }).pass)
  end)

  it("that asks for an engine of its own gets one with the candidate's other options", function()
    local seen = {}
    local own = { name = "own-engine", engine = { arena = "1MiB" }, run = function(s)
      seen.capacity, seen.seed, seen.poison = s.engine:stats().capacity, s.engine:rng()[1], s.engine:poison()
      s:forward_all()
      s:reset()
      seen.stale = pcall(s.read, s, 1)
      s:backward_all()
    end }
    local function run(spec)
      return parity.run { ops = { "add" }, candidate = spec, schedule = own } -- whose result nothing saves
    end
    run { "stress", arena = "2MiB", seed = 77, stale = "allow", poison = { on = { "reset" }, word = 0x7FFF } }
    assert.equal(2 ^ 20, seen.capacity)
    assert.equal(77, seen.seed)
    assert.same({ on = { "reset" }, word = 0x7FFF, redzone = 0 }, seen.poison)
    assert.is_true(seen.stale)
    assert.is_true(run({ "stress", arena = "2MiB" }).pass)
    assert.is_false(seen.stale)
  end)

  it("is refused where it is none, by name", function()
    local dir = folder()
    for text, expected in pairs {
      ["return 1"] = "must return a table", ["return {}"] = "{ name =, run = function(s) ... end } was expected", ["retur"] = "mine.lua:1:",
    } do
      write(dir .. "/schedules/mine.lua", text)
      local output, status = command("parity exp --schedule mine", dir)
      assert.equal(1, status)
      assert.matches(expected, output, 1, true)
    end
    local output, status = command "parity exp --schedule nowhere"
    assert.equal(1, status)
    assert.matches('no file for "nowhere"; looked for schedules/nowhere.lua', output, 1, true)
  end)

  it("has to run every sample, once, forward and backward", function()
    local function try(run)
      local report = parity.run { ops = { "exp" }, schedule = { name = "bad", run = run } }
      assert.is_false(report.pass)
      return report:failures()[1]
    end
    assert.matches("sample 1 had no forward", try(function() end), 1, true)
    assert.matches("sample 2 had no backward", try(function(s) s:forward_all() s:backward(1) end), 1, true)
    assert.matches("sample 1 had its forward already", try(function(s) s:forward(1) s:forward(1) end), 1, true)
    assert.matches("there is no sample 9", try(function(s) s:forward(9) end), 1, true)
    assert.matches("the events are", try(function(s) s:on("tea", print) end), 1, true)
    assert.matches("boom", try(function() error "boom" end), 1, true)
  end)
end)

describe("the commands", function()
  it("exit 0 iff all passed, 2 on wrong usage", function()
    for arguments, expected in pairs {
      ["parity exp --schedule no-reset"] = 0, ["parity --list"] = 0, ["gradcheck exp"] = 0, ["redproof wrong_axis"] = 0, ["parity --tea"] = 2,
      ["parity no_such_op"] = 2, ["parity exp --engine tea"] = 2, ["redproof no_such_fault"] = 1, ["oracle"] = 2, ["oracle compare nowhere"] = 1,
      ["gradcheck --help"] = 0, ["redproof wrong_axis --minimum 2"] = 1,
    } do
      local output, status = command(arguments)
      assert.equal(expected, status, arguments .. "\n" .. output)
    end
  end)

  it("list the schedules, shipped ones and one's own", function()
    local dir = folder()
    write(dir .. "/schedules/mine.lua", OWN)
    local output = command("parity --list", dir)
    local listed = {}
    for name in output:gmatch "[^\n]+" do listed[name] = true end
    for _, name in ipairs(schedule.shipped) do assert.is_true(listed[name], name) end
    assert.is_true(listed.mine)
  end)

  it("put what --about says into their reports, and refuse what is no object", function()
    local dir = folder()
    write(dir .. "/about.json", '{ "commit": "abc", "device": "a \\"GPU\\"" }')
    write(dir .. "/bad.json", "commit")
    for arguments, path in pairs {
      ["parity exp --schedule no-reset --report ."] = "no-reset.json", ["gradcheck exp --report g.json"] = "g.json",
      ["redproof wrong_axis --report made/r.json"] = "made/r.json",
      [("oracle compare '%s/spec/oracle' --report o.json"):format(os.getenv "PWD")] = "o.json",
    } do
      local output, status = command(arguments .. " --about about.json", dir)
      assert.equal(0, status, output)
      local file = assert(io.open(dir .. "/" .. path))
      local about = json.decode(file:read "*a").about
      file:close()
      assert.same({ commit = "abc", device = 'a "GPU"' }, about)
      for _, wrong in ipairs { "bad.json", "missing.json" } do
        output, status = command(arguments .. " --about " .. wrong, dir)
        assert.equal(2, status, output)
        assert.matches("--about: .*" .. wrong, output)
      end
    end
  end)

  it("write a report per schedule", function()
    local dir = folder()
    local _, status = command("parity exp --schedule no-reset,overflow --report reports", dir)
    assert.equal(0, status)
    for _, name in ipairs { "no-reset", "overflow" } do assert.is_not_nil(io.open(("%s/reports/%s.json"):format(dir, name))) end
  end)
end)

describe("every file in the folder of schedules", function()
  it("is shipped under its name", function()
    local pipe = io.popen "ls lua/perilune/schedules"
    local files = {}
    for name in pipe:read("*a"):gmatch "([%w-]+)%.lua" do files[#files + 1] = name end
    pipe:close()
    local shipped = { unpack(schedule.shipped) }
    table.sort(files)
    table.sort(shipped)
    assert.same(shipped, files)
    for _, name in ipairs(files) do assert.equal(name, schedule.load(name).name) end
    assert.is_not_nil(perilune)
  end)
end)
