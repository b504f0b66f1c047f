-- SPDX-License-Identifier: MIT
-- Every op, forward and backward, against the record of a PyTorch run (spec/oracle, made by scripts/oracle/check.py --record).

local core = require "perilune.core"
local oracle = require "perilune.oracle"
local perilune = require "perilune"

--- Ops that PyTorch has no counterpart of: random draws and memory that was never written.
local WITHOUT = { rand = true, randn = true, randint = true, empty = true }

describe("oracle", function()
  for _, e in ipairs(perilune.engines()) do
    if e.available then
      it("agrees on " .. e.kind, function()
        local report = oracle.compare { engine = e.kind, minimum = 1900 }
        assert.equal("", table.concat(report:failures(), "\n"):sub(1, 2000))
        assert.is_true(report.pass, report:summary())
        assert.matches("^PyTorch %d", report.reference)
      end)
    end
  end

  it("has a record of every op of the table but those, which it names", function()
    local missing = oracle.missing(oracle.load "spec/oracle")
    local expected, lines = {}, {}
    for _, row in ipairs(core.ops.rows) do
      if WITHOUT[row.name] then expected[#expected + 1] = row.name end
    end
    assert.same(expected, missing)
    local report = oracle.compare { ops = { "empty", "exp", "randn" }, log = function(line) lines[#lines + 1] = line end }
    assert.equal(2, report.skipped)
    local text = table.concat(lines, "\n")
    for _, name in ipairs { "empty", "randn" } do assert.matches("SKIP " .. name .. ": not in the record of PyTorch", text, 1, true) end
    assert.is_false(oracle.compare({ ops = { "empty" } }).pass) -- a skip is no pass
  end)

  local function folder()
    local dir = os.tmpname()
    os.remove(dir)
    finally(function() os.execute("rm -rf " .. dir) end)
    return dir
  end

  it("fails on a record with another number, by op and sample", function()
    local dir = folder()
    os.execute(("mkdir %s && cp spec/oracle/torch.json %s"):format(dir, dir))
    local from = assert(io.open("spec/oracle/torch.bin", "rb"))
    local bytes = from:read "*a"
    from:close()
    local record = oracle.load "spec/oracle"
    local at
    for _, entry in ipairs(record.cases) do
      if entry.op == "tanh" and entry.sample == "(2,3)" and entry.dtype == "f32" then at = entry.results[1].offset end
    end
    local to = assert(io.open(dir .. "/torch.bin", "wb"))
    to:write(bytes:sub(1, at), ("\0"):rep(8), bytes:sub(at + 9))
    to:close()
    local report = oracle.compare { record = dir }
    assert.equal(1, report.failed)
    assert.matches("tanh (2,3) f32 against PyTorch", report:failures()[1], 1, true)
    assert.matches("result 1: element 1", report:failures()[1], 1, true)
  end)

  it("exports bundles whose manifest names maker, engine and files", function()
    local dir = folder()
    local bundles, count = oracle.export(dir, { ops = { "matmul", "cross_entropy" }, engine = "stress" })
    assert.equal(2, bundles)
    assert.is_true(count > 10)
    local file = assert(io.open(dir .. "/matmul/manifest.json"))
    local manifest = require("perilune.json").decode(file:read "*a")
    file:close()
    assert.equal("perilune " .. core.version, manifest.maker)
    assert.equal("stress", manifest.engine)
    local first = manifest.cases[1]
    for _, name in ipairs { "inputs", "results", "cotangents", "gradients" } do
      local f = assert(io.open(("%s/matmul/%s.bin"):format(dir, name), "rb"))
      assert.is_true(#f:read "*a" > 0)
      f:close()
    end
    assert.equal("results.bin", first.results[1].file)
  end)

  it("says which file is missing", function()
    local ok, message = pcall(oracle.compare, { record = "no/such/folder" })
    assert.is_false(ok)
    assert.matches("no/such/folder/torch.json", message, 1, true)
  end)
end)
