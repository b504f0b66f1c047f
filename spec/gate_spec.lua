-- SPDX-License-Identifier: MIT
-- scripts/gate.sh: its verdict is the exit status. A stand-in for the command shows each status by itself; the same by faults planted in the real
-- command's part; the real one then passes.

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

local function folder()
  local dir = os.tmpname()
  os.remove(dir)
  os.execute("mkdir -p " .. dir)
  finally(function() os.execute("rm -rf " .. dir) end)
  return dir
end

local function run(command)
  local pipe = assert(io.popen(("{ %s; } 2>&1; echo status $?"):format(command)))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status), output:match "([^\n]*)\n$"
end

--- A command that says what perilune would say if all were well, but for the part that `broken` names.
local STAND_IN = [[
#!/bin/sh
part=$1
for word in "$@"; do [ "$word" = --twin ] && part=twin-$part; done
case $part in twin-*/hazard_loop.lua) part=twin-hazard ;; twin-*/attention_loop.lua) part=twin-attention ;; */hazard_loop.lua) part=hazard ;;
  */attention_loop.lua) part=attention ;; esac
if [ "$part" = "$FAULTY" ]; then # the real part, a fault switched on
  case $part in
    parity) set -- parity exp --schedule reset-between-fwd-bwd ;;
    redproof) set -- redproof cached_in_field ;;
    hazard) shift; set -- examples/hazard_loop.lua "$@" ;;
    attention) shift; set -- examples/attention_loop.lua "$@" ;;
  esac
  exec "$REAL" -e "$PLANT" "$@"
fi
if [ "$part" = "$BROKEN" ]; then
  case $part in
    -e) echo "no driver" ;;
    twin-*) echo "PASS"; exit 0 ;;
    *) echo "FAIL $part: as planted"; exit 1 ;;
  esac
  exit 0
fi
case $part in
  -e) echo available ;;
  --version) echo "perilune stand-in" ;;
  parity) echo "PASS exp: 1 samples"; echo; echo "PASS no-reset: a against b: 9 samples passed; ${COMPARISONS:-900000} comparisons" ;;
  redproof) echo "PASS red proofs on $3: ${PROOFS:-30} faults caught, 0 missed, 0 skipped" ;;
  twin-*) echo FAIL; exit 1 ;;
  *) echo PASS ;;
esac
]]

local function stand_in(environment, arguments)
  local dir = folder()
  local file = assert(io.open(dir .. "/perilune", "w"))
  file:write(STAND_IN)
  file:close()
  os.execute("chmod +x " .. dir .. "/perilune")
  return run(("env %s PERILUNE=%s/perilune scripts/gate.sh --report %s/report %s"):format(environment, dir, dir, arguments or "--engine stress"))
end

describe("the gate", function()
  it("ends with 0 and VALIDATION_OK when all is well", function()
    local output, status, last = stand_in ""
    assert.equal(0, status, output)
    assert.matches("^VALIDATION_OK engine=stress device=.* comparisons=900000 red_proofs=30 loops=2 twins=3 ", last)
  end)

  for broken, expected in pairs {
    ["-e"] = 4, parity = 3, redproof = 5, hazard = 6, attention = 7, ["twin-hazard"] = 6, ["twin-attention"] = 7,
  } do
    it(("ends with %d when %s goes wrong"):format(expected, broken), function()
      local output, status, last = stand_in("BROKEN=" .. broken)
      assert.equal(expected, status, output)
      assert.matches(("^VALIDATION_FAILED status=%d engine=stress: "):format(expected), last)
      assert.is_nil(output:match "VALIDATION_OK")
    end)
  end

  --- Switches a fault on, then runs the command or script that the arguments name.
  local PLANT = [[
    require("perilune.core").library.fault("%s", true)
    local first = table.remove(arg, 1)
    local status = first:match "%%.lua$" and dofile(first).main(arg) or require("perilune.commands").run(first, arg)
    os.exit(status, true)]]

  for _, plant in ipairs {
    { part = "parity", fault = "unpin_early", status = 3, says = "exp .* under reset%-between%-fwd%-bwd on stress: .* gradient of x: element 1 is nan" },
    { part = "redproof", fault = "leak_pin", status = 5, says = "MISS cached_in_field .*pins are left" },
    { part = "hazard", fault = "double_count", status = 6, says = "autograd.*FAIL" },
    { part = "attention", fault = "unpin_early", status = 7, says = "stale: made at [^ ]*attention_loop.lua:%d+" },
  } do
    it(("ends with %d when %s is planted in the engine and %s runs"):format(plant.status, plant.fault, plant.part), function()
      local function with(fault)
        local code = fault and PLANT:format(fault) or PLANT:gsub("^[^\n]*\n", ""):gsub("%%%%", "%%")
        return stand_in(("FAULTY=%s REAL=\"$(realpath '%s')\" PLANT='%s'"):format(plant.part, launcher, code))
      end
      local output, status, last = with(plant.fault)
      assert.equal(plant.status, status, output)
      assert.matches(plant.says, output)
      assert.matches(("^VALIDATION_FAILED status=%d engine=stress: "):format(plant.status), last)
      assert.is_nil(output:match "VALIDATION_OK")
      if plant.part == "hazard" or plant.part == "attention" then -- which the stand-in runs whole
        output, status = with(nil)
        assert.equal(0, status, output)
      end
    end)
  end

  it("ends with 4 when too little ran", function()
    for _, few in ipairs { "COMPARISONS=199999", "COMPARISONS=0", "PROOFS=3" } do
      local output, status = stand_in(few)
      assert.equal(4, status, output)
    end
    local output, status = stand_in("COMPARISONS=20000", "--engine stress --quick")
    assert.equal(0, status, output)
    assert.matches("twins=3 quick", output, 1, true)
  end)

  it("ends with 2 on wrong usage", function()
    for _, arguments in ipairs { "--tea", "--engine", "--report", "--engine ''" } do
      local output, status = stand_in("", arguments)
      assert.equal(2, status, output)
      assert.matches("usage: gate.sh", output, 1, true)
    end
    local _, status = run "env PERILUNE=/no/such/command scripts/gate.sh"
    assert.equal(2, status)
  end)

  it("ends with 4 for an engine that this machine does not have", function()
    local available = {}
    for _, e in ipairs(require("perilune").engines()) do available[e.kind] = e.available end
    local dir = folder()
    local _, status, last = run(("PERILUNE='%s' scripts/gate.sh --engine nonsense --report %s"):format(launcher, dir))
    assert.equal(4, status)
    assert.matches("the engine is not there", last, 1, true)
    if not available.cuda then
      _, status = run(("PERILUNE='%s' scripts/gate.sh --report %s"):format(launcher, dir))
      assert.equal(4, status)
    end
  end)

  it("says its verdict in gate.json, whatever it is, and removes no file but its own", function()
    local dir = folder()
    os.execute("mkdir " .. dir .. "/report")
    for _, name in ipairs { "mine.json", "mine.txt" } do
      local file = assert(io.open(dir .. "/report/" .. name, "w"))
      file:write '{ "mine": true }'
      file:close()
    end
    local file = assert(io.open(dir .. "/perilune", "w"))
    file:write(STAND_IN)
    file:close()
    os.execute("chmod +x " .. dir .. "/perilune")
    local function verdict(broken)
      local _, status = run(("env BROKEN=%s PERILUNE=%s/perilune scripts/gate.sh --report %s/report --engine stress"):format(broken, dir, dir))
      local json = assert(io.open(dir .. "/report/gate.json"))
      local read = require("perilune.json").decode(json:read "*a")
      json:close()
      assert.equal(status, read.status)
      return read
    end
    assert.equal("VALIDATION_OK", verdict("none").verdict)
    assert.equal("VALIDATION_FAILED: parity", verdict("parity").verdict)
    assert.is_nil(io.open(dir .. "/report/redproof.txt"), "left from the run before")
    local missing = verdict "-e"
    assert.equal(4, missing.status)
    assert.matches("no driver", missing.verdict, 1, true)
    for _, key in ipairs { "engine", "device", "driver", "version", "commit", "date", "comparisons", "red_proofs" } do assert.is_not_nil(missing[key], key) end
    for _, name in ipairs { "mine.json", "mine.txt" } do assert.is_not_nil(io.open(dir .. "/report/" .. name), name) end
  end)

  it("passes on stress from any folder, with a report per run", function()
    local dir = folder()
    local output, status, last = run(("p=$(realpath '%s') g=$PWD && cd %s && PERILUNE=$p \"$g/scripts/gate.sh\" --engine stress --quick --report report"):format(
      launcher, dir))
    assert.equal(0, status, output:sub(-3000))
    assert.matches("^VALIDATION_OK engine=stress ", last)
    local function read(name)
      local file = assert(io.open(("%s/report/%s.json"):format(dir, name)))
      local json = require("perilune.json").decode(file:read "*a")
      file:close()
      return json
    end
    local gate = read "gate"
    assert.equal(0, gate.status)
    assert.is_true(gate.comparisons >= 20000 and gate.red_proofs >= 24)
    local reports = { "destinations", "poison", "transposed-inputs", "redproof", unpack(require("perilune.schedule").shipped) }
    for _, name in ipairs(reports) do
      local report = read(name)
      assert.is_true(report.pass, name)
      for _, key in ipairs { "commit", "device", "driver", "version" } do assert.equal(gate[key], report.about[key], name) end
    end
    for _, proof in ipairs(read("redproof").proofs) do
      for _, key in ipairs { "name", "by", "op", "schedule", "place" } do assert.is_string(proof[key], proof.name) end
    end
  end)
end)
