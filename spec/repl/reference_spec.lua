-- SPDX-License-Identifier: MIT
-- The reference: everything public is in it, what it says runs, and each of its three shapes (help, site, stub) holds all of it.

local annotations = require "perilune.reference.annotations"
local core = require "perilune.core"
local engines = require "spec.support.engines"
local perilune = require "perilune"
local reference = require "perilune.reference"

local function by_value()
  local set = {}
  for _, e in ipairs(reference.entries()) do
    if e.value ~= nil then set[e.value] = e end
  end
  return set
end

local function public_functions()
  local engine, tensor = require "perilune.engine", require "perilune.tensor"
  return { ["perilune."] = perilune, ["eng:"] = engine.methods, ["x:"] = tensor.methods, ["nn."] = perilune.nn, ["plot."] = perilune.plot, ["nn.loss."] = perilune.nn.loss,
    ["nn.init."] = perilune.nn.init, ["optim."] = perilune.optim, ["data."] = perilune.data, ["data.npy."] = perilune.data.npy,
    ["data.safetensors."] = perilune.data.safetensors, ["data.checkpoint."] = perilune.data.checkpoint, ["module:"] = require("perilune.nn.module").Module,
    ["parity."] = require "perilune.parity", ["gradcheck."] = require "perilune.gradcheck", ["oracle."] = require "perilune.oracle",
    ["redproof."] = require "perilune.redproof" }
end

-- no part of the interface: a step of the library's own
local INTERNAL = { ["eng:reason"] = true }

describe("the reference", function()
  after_each(engines.close)

  it("has every op of the table", function()
    local known = by_value()
    for _, row in ipairs(core.ops.rows) do
      if not row.internal then assert.truthy(known[core.ops[row.name]], row.name .. " is missing") end
    end
  end)

  it("has every public function and class, with what it does", function()
    local known, count = by_value(), 0
    for prefix, t in pairs(public_functions()) do
      for name, value in pairs(t) do
        local class = type(value) == "table" and debug.getmetatable(value) and debug.getmetatable(value).__call
        if (type(value) == "function" or class) and not INTERNAL[prefix .. name] then
          count = count + 1
          local e = known[value]
          assert.truthy(e, prefix .. name .. " is missing")
          assert.is_true(e.doc ~= "", prefix .. name .. " has no words")
        end
      end
    end
    assert.is_true(count > 300, count)
  end)

  it("has words for every entry, and every entry in a section of its own name once", function()
    local seen = {}
    for _, e in ipairs(reference.entries()) do
      assert.is_true(e.doc ~= "", e.name .. " has no words")
      assert.is_nil(seen[e.section .. e.name], e.name .. " comes twice")
      seen[e.section .. e.name] = true
    end
  end)

  it("has no line for a C function that is gone", function()
    local known = {}
    for _, e in ipairs(reference.entries()) do known[e.name] = true end
    for _, block in ipairs(annotations.of(assert(package.searchpath("perilune.reference.native", package.path)))) do
      if #block.classes == 0 then assert.is_true(known[block.name], tostring(block.name)) end
    end
  end)

  it("gives an example of every op that runs", function()
    local eng, count = engines.open "cpu", 0
    for _, e in ipairs(reference.entries()) do
      local example = reference.example(e)
      if e.row then assert.truthy(example, e.name .. " has no example") end
      if example then
        count = count + 1
        local chunk = assert(loadstring("local eng, perilune = ... return " .. example))
        local ok, message = pcall(chunk, eng, perilune)
        assert.is_true(ok, e.name .. ": " .. example .. ": " .. tostring(message))
      end
    end
    assert.is_true(count > 100, count)
  end)

  it("finds names as they are written, and by their last word", function()
    for asked, want in pairs { matmul = "matmul", ["x:totable"] = "x:totable", ["perilune.nn.Linear"] = "nn.Linear", ["nn.Linear"] = "nn.Linear",
      Linear = "nn.Linear", ["a:matmul"] = "matmul", ["eng:reset"] = "eng:reset", ["perilune.engine"] = "perilune.engine" } do
      assert.equal(want, (reference.find(asked)[1] or {}).name, asked)
    end
    assert.is_true(#reference.find "load" >= 3)
    assert.same({}, reference.find "frobnicate")
  end)

  it("says nothing is known, what is near, and how to search", function()
    assert.equal("nothing is known of 'matmull' (did you mean 'matmul'?); ?? matmull searches", reference.help "matmull")
    assert.matches("%? NAME", (reference.help ""))
    assert.matches("nothing speaks of 'xyzzy'", reference.search "xyzzy", 1, true)
    assert.matches("\nnn.Dropout ", reference.search "dropout")
  end)

  it("explains the user's own functions from their comments", function()
    local path = os.tmpname()
    local file = io.open(path, "w")
    file:write "--- Twice the number.\n---@param n number  which\nlocal function double(n) return 2 * n end\nreturn double\n"
    file:close()
    local help = reference.help("double", { double = dofile(path) })
    os.remove(path)
    assert.equal("double(n)\n  Twice the number.\n  n  number  which", help)
  end)

  it("keeps to the width of the terminal where words are", function()
    for _, e in ipairs(reference.entries()) do
      for line in reference.text(e, 60):gmatch "[^\n]+" do
        if #line > 60 then assert.is_true(line:find("%S+  ") ~= nil or line:find "for example" ~= nil or line:find "%(" ~= nil, line) end
      end
    end
  end)
end)

describe("the annotations of a file", function()
  local function read(text) return annotations.of_text("x.lua", text) end

  it("are read in LuaLS's form", function()
    local block = read [[
-- not this
--- Adds up.
--- In order.
---@param list { a: integer, b?: table<string, number> } what is added
---@param from? integer
---@vararg string
---@return number sum
---@return string? why
function module.add(list, from, ...) end
]][1]
    assert.equal("Adds up. In order.", block.doc)
    assert.equal("module.add", block.name)
    assert.equal("(list, from, ...)", block.args)
    assert.same({ { name = "list", type = "{ a: integer, b?: table<string, number> }", text = "what is added" },
      { name = "from?", type = "integer", text = "" }, { name = "...", type = "string", text = "" } }, block.params)
    assert.same({ "number sum", "string? why" }, block.returns)
    assert.equal(9, block.line)
  end)

  it("belong to what follows at once", function()
    local list = read "--- Lost.\n\nlocal x = 1\n--- Kept.\n---@class a.B: a.C\n---@class a.D\nlocal B = class()\n--- Returned.\nreturn function(a) end\n"
    assert.equal(2, #list)
    assert.equal("B", list[1].name)
    assert.same({ "B", "D" }, list[1].classes)
    assert.equal("(a)", list[2].args)
  end)
end)

describe("perilune reference", function()
  local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"
  local source = os.getenv "PERILUNE_SRCDIR" or "."

  local function run(arguments)
    local pipe = io.popen(("'%s' reference %s 2>&1; echo status $?"):format(launcher, arguments))
    local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
    pipe:close()
    return output, tonumber(status)
  end

  local function read(path)
    local file = assert(io.open(path))
    local text = file:read "*a"
    file:close()
    return text
  end

  it("prints an entry, a search, or all names", function()
    assert.matches("^a:matmul%(b%)\n", (run "matmul"))
    assert.matches("nn.Dropout", (run "--search dropout"), 1, true)
    assert.matches("\nmatmul\n", (run ""))
    local output, status = run "matmull"
    assert.matches("did you mean 'matmul'", output, 1, true)
    assert.equal(1, status)
  end)

  it("writes a site whose links lead somewhere", function()
    local dir = os.tmpname()
    os.remove(dir)
    local output, status = run(("--html '%s' --pages '%s'"):format(dir, source))
    assert.equal(0, status, output)
    local page = read(dir .. "/reference.html")
    for _, e in ipairs(reference.entries()) do assert.is_truthy(page:find('id="' .. e.name:gsub("[^%w]", "-") .. '"', 1, true), e.name) end
    local list, links = io.popen(("cd '%s' && ls *.html"):format(dir)), 0
    for name in list:lines() do
      local text = read(dir .. "/" .. name)
      for kind, target, mark in text:gmatch '(%a+)="([^"#]*)#?([^"]*)"' do
        if kind == "href" or kind == "src" then
          links = links + 1
          assert.is_nil(target:match ":", name .. " asks for something outside the site: " .. target)
          local file = io.open(dir .. "/" .. (target == "" and name or target))
          assert.truthy(file, name .. " links to " .. target)
          if mark ~= "" then assert.truthy(file:read("*a"):find('id="' .. mark .. '"', 1, true), ("%s: %s#%s"):format(name, target, mark)) end
          file:close()
        end
      end
      assert.is_nil(text:match "url%(" or text:match "@import", name)
    end
    list:close()
    assert.is_true(links > 300, links)
    -- each page of the tree, reached from the list of pages
    local index = read(dir .. "/pages.html")
    for _, path in ipairs(require("spec.support.pages").paths()) do
      local page_name = path == "README.md" and "index.html" or path:gsub("%.md$", ""):gsub("/", "-") .. ".html"
      assert.truthy(index:find(('href="%s"'):format(page_name), 1, true), path)
    end
    os.execute(("rm -r '%s'"):format(dir))
  end)

  it("writes declarations that are Lua and hold everything", function()
    local path = os.tmpname()
    assert.equal(0, select(2, run(("--stub '%s'"):format(path))))
    local text = read(path)
    os.remove(path)
    assert(loadstring(text))
    for _, head in ipairs { "function Tensor_:matmul(b, out) end", "function Engine_:matmul(a, b, out) end", "function perilune.matmul(a, b, out) end",
      "function perilune.nn.Linear(eng, inputs, outputs, options) end", "---@field shape integer[]" } do
      assert.truthy(text:find(head, 1, true), head)
    end
    for _, row in ipairs(core.ops.rows) do
      if not row.internal then assert.truthy(text:find(":" .. row.name .. "(", 1, true) or text:find(('perilune["%s"]'):format(row.name), 1, true), row.name) end
    end
    assert.matches("cannot write", (run "--stub /nowhere/x.lua"):gsub("No such file or directory", "cannot write"))
  end)
end)
