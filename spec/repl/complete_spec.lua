-- SPDX-License-Identifier: MIT
-- What Tab offers.

local complete = require "perilune.repl.complete"
local engines = require "spec.support.engines"
local perilune = require "perilune"

describe("candidates", function()
  after_each(engines.close)

  local globals, eng
  before_each(function()
    eng = engines.open "cpu"
    globals = setmetatable({ perilune = perilune, eng = eng, x = eng:ones { 2 }, name = "text", deep = { er = { list = { 1, { inner = 2 } } } },
      print = print, raiser = setmetatable({}, { __index = function() error "called" end }), layer = perilune.nn.Linear(eng, 2, 2) },
      { lazy = { later = 1 } })
  end)

  --- The candidates after `line`, and where they begin.
  local function after(line) return complete.candidates(line, globals) end

  local function offers(line, ...)
    local set = {}
    for _, name in ipairs(after(line)) do set[name] = true end
    for _, name in ipairs { ... } do assert.is_true(set[name], line .. " does not offer " .. name) end
  end

  it("are globals and words of the language", function()
    assert.same({ "perilune", "print" }, (after "p"))
    assert.same({ "perilune" }, (after "f(1 + per"))
    assert.same({ "later" }, (after "lat"))
    assert.same({ "then", "true" }, (after "if x t"))
    offers("", "x", "eng", "while")
    assert.same({}, (after "zzz"))
  end)

  it("are fields, as deep as values are known without a call", function()
    assert.same({ "er" }, (after "deep."))
    assert.same({ "list" }, (after "return deep.er.li"))
    assert.same({ "inner" }, (after "deep.er.list[2].i"))
    assert.same({}, (after "deep.er.list[2].inner."))
    assert.same({}, (after "f().x"))
    assert.same({}, (after "unknown.x"))
    assert.same({}, (after "raiser.x"))
    offers("perilune.", "engine", "add", "nn", "optim")
    offers("perilune.nn.", "Linear", "loss")
  end)

  it("are methods and fields of tensors, engines, layers and strings", function()
    assert.same({ "matmul" }, (after "x:matm"))
    assert.same({ "shape" }, (after "x.shap"))
    assert.same({}, (after "x:shap")) -- a field, no method
    offers("x:", "sum", "totable", "backward", "clone")
    offers("eng:", "tensor", "param", "reset", "matmul")
    offers("layer:", "parameters", "forward")
    offers("layer.", "weight")
    offers("name:", "sub", "upper")
  end)

  it("are file names in a string", function()
    local dir = os.tmpname()
    os.remove(dir)
    os.execute(("mkdir -p %s/folder && touch '%s/it'\\''s here.txt' %s/data.csv %s/.hidden"):format(dir, dir, dir, dir))
    assert.same({ dir .. "/data.csv" }, (after("f('" .. dir .. "/da")))
    assert.same({ dir .. "/data.csv", dir .. "/folder/", dir .. "/it's here.txt" }, (after('f("' .. dir .. "/")))
    assert.same({ dir .. "/.hidden" }, (after("f [[" .. dir .. "/.")))
    assert.same({ dir .. "/folder/" }, (after("$ ls " .. dir .. "/fo")))
    assert.same({}, (after("-- '" .. dir .. "/")))
    os.execute("rm -r " .. dir)
  end)

  it("are modules in require's string", function()
    offers("require 'perilune.", "perilune.nn", "perilune.parity")
    offers('local optim = require("perilune.op', "perilune.optim")
    offers("require 'perilune.nn.", "perilune.nn.linear")
  end)

  it("begin where the token begins, and lose what the editor has of it", function()
    assert.equal(3, select(2, after "x:ma"))
    assert.equal(6, select(2, after "f(1, x"))
    assert.same({ "ents/" }, (function() -- what readline takes as the word begins behind the "-"
      local dir = os.tmpname()
      os.remove(dir)
      os.execute(("mkdir -p %s/a-docum-ents"):format(dir))
      local line = "f('" .. dir .. "/a-docum-"
      local list = complete.for_editor(line, #line)
      os.execute("rm -r " .. dir)
      return list
    end)())
  end)
end)
