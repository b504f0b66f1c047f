-- SPDX-License-Identifier: MIT
-- scripts/gate.sh: its verdict is the exit status. A stand-in for the command shows each status by itself; the real one then passes.

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

  it("passes on stress, with a report per run", function()
    local dir = folder()
    local output, status, last = run(("PERILUNE='%s' scripts/gate.sh --engine stress --quick --report %s"):format(launcher, dir))
    assert.equal(0, status, output:sub(-3000))
    assert.matches("^VALIDATION_OK engine=stress ", last)
    local file = assert(io.open(dir .. "/gate.json"))
    local json = require("perilune.json").decode(file:read "*a")
    file:close()
    assert.equal(0, json.status)
    assert.is_true(json.comparisons >= 20000 and json.red_proofs >= 24)
    for _, name in ipairs(require("perilune.schedule").shipped) do assert.is_not_nil(io.open(("%s/%s.json"):format(dir, name)), name) end
  end)
end)
