-- SPDX-License-Identifier: MIT
-- What the pages print is true: their Lua programs run and print what the page says, their commands exist, and the names in the porting tables, too.

local commands = require "perilune.commands"
local pages = require "spec.support.pages"

local source = os.getenv "PERILUNE_SRCDIR" or "."

local function exists(path)
  local file = io.open(source .. "/" .. path)
  if file then file:close() end
  return file ~= nil
end

describe("the programs of", function()
  local count = 0
  for _, path in ipairs(pages.paths()) do
    local blocks, programs = pages.blocks(path), {}
    for i, block in ipairs(blocks) do
      if block.language == "lua" then programs[#programs + 1] = i end
    end
    count = count + #programs
    if #programs > 0 then
      it(path .. " run and print what it says", function()
        local printed, wrong = pages.run(blocks)
        assert.is_nil(wrong)
        for _, i in ipairs(programs) do
          local block = blocks[i]
          local where = ("%s:%d"):format(path, block.line)
          if block.alone then
            assert(pcall(assert(loadstring(block.code, "@" .. where))))
          else
            local lines = assert(printed[i], where .. " did not run")
            local said = where .. " printed\n" .. table.concat(lines, "\n")
            if #block.expected > 0 then
              for k = 1, math.max(#lines, #block.expected) do
                local want, got = block.expected[k], lines[k]
                assert(want and got and pages.agrees(want, got), ("%s\nline %d: the page says: %s"):format(said, k, tostring(want)))
              end
            end
          end
        end
      end)
    end
  end

  it("the pages are there", function() assert.is_true(count >= 50, count) end)
end)

--- What the words in the porting tables stand for.
local function vocabulary(folder)
  local perilune = require "perilune"
  local nn, optim = perilune.nn, perilune.optim
  local eng = perilune.engine "cpu"
  local model, p = nn.Linear(eng, 2, 2), eng:param({ 2, 2 }, 1)
  return setmetatable({
    perilune = perilune, nn = nn, optim = optim, data = perilune.data, eng = eng, model = model, opt = optim.SGD(model, { lr = 1 }),
    x = eng:tensor { { 1, 2 }, { 3, 4 } }, y = eng:tensor { { 1, 1 }, { 0, 1 } }, a = eng:eye(2), i = eng:tensor({ 1, 2 }, { dtype = "i64" }),
    j = eng:tensor({ { 1, 2 }, { 2, 1 } }, { dtype = "i64" }), p = p, z = p * 2, dy = eng:ones { 2, 2 }, loss = (p * p):sum(),
    step = eng:capture(function() return eng:ones { 1 } end), state = model:state(), parts = { model = model },
    path = folder .. "/file", f = function(x) return x * 2 end,
  }, { __index = _G })
end

--- The code in the last column of a page's tables.
local function ported(path)
  local list = {}
  for line in pages.read(source .. "/" .. path):gmatch "[^\n]+" do
    local last = line:match "^|.*|%s*(.-)%s*|$"
    for code in (last or ""):gmatch "`([^`]+)`" do list[#list + 1] = code end
  end
  return list
end

describe("what is in the table of", function()
  for path, least in pairs { ["docs/guide/from-torch7.md"] = 110, ["docs/guide/from-pytorch.md"] = 110 } do
    it(path .. " exists and runs", function()
      local folder = os.tmpname()
      os.remove(folder)
      os.execute("mkdir " .. folder)
      finally(function() os.execute("rm -r " .. folder) end)
      local count = 0
      for _, code in ipairs(ported(path)) do
        local command, variable = code:match "^%./perilune (%w+)$", code:match "^([%u_]+)=1$"
        if command then
          assert.truthy(commands.of(command), code)
        elseif variable then
          local known = false
          for _, item in ipairs(commands.environment) do known = known or item[1] == variable end
          assert.is_true(known, code)
        else
          local values = vocabulary(folder)
          local fn = assert(loadstring("return " .. code) or loadstring(code), path .. ": no Lua: " .. code)
          local ok, result = pcall(setfenv(fn, values))
          assert(ok and (result ~= nil or code:match "[%)}]$"), ("%s: `%s`: %s"):format(path, code, tostring(result)))
          values.eng:close()
          count = count + 1
        end
      end
      assert.is_true(count >= least, count)
    end)
  end
end)

--- Names of options that a script, or a command of perilune, knows.
local function knows(word, option)
  local command = commands.of(word)
  if command then return command.options[option] ~= nil end
  return pages.read(source .. "/" .. word):find(option, 1, true) ~= nil
end

--- What is wrong with a line of a shell block, as far as that can be told without running it; nil if nothing is. `made` keeps what a compiler made
--- in the lines before.
local function trouble(line, made)
  local known = {}
  for _, item in ipairs(commands.environment) do
    for name in item[1]:gmatch "[%u_]+" do known[name] = true end
  end
  for name in pages.read(source .. "/docs/cuda.md"):gmatch "`(PLEMU_[%u_]+)`" do known[name] = true end
  for _, name in ipairs { "LUA_PATH", "LUA_CPATH" } do known[name] = true end
  local rest = line:gsub("%s+#.*$", ""):gsub('"[^"]*"', "TEXT")
  while rest:match "^[%u_]+=%S+ " do
    local name = rest:match "^[%u_]+"
    if not known[name] then return "there is no variable " .. name end
    rest = rest:gsub("^%S+ ", "")
  end
  local words = {}
  for word in rest:gmatch "%S+" do words[#words + 1] = word end
  local program, first = words[1], 2
  if program == "python3" or program == "./perilune" or program == "perilune" then program, first = words[2], 3 end
  if program == nil or program:match "^%-" then return nil end
  local product = rest:match " %-o (%S+)"
  if product then made["./" .. product] = true end
  if program == "./bootstrap" then
    local text = pages.read(source .. "/bootstrap") .. pages.read(source .. "/m4/pln_cuda.m4")
    for i = 2, #words do
      local word = words[i]:match "^[%w%-]+"
      if not text:find(word:gsub("^%-%-with%-", ""), 1, true) then return "bootstrap does not know " .. word end
    end
  elseif program == "make" then
    for i = 2, #words do
      if words[i] == "-C" then words[i + 1] = "" end
      if words[i]:match "^%a" and not words[i]:find "=" and not ("check install uninstall html dist distcheck "):find(words[i] .. " ", 1, true)
        and not pages.read(source .. "/Makefile.am"):find("\n[%w%- ]*%f[%w]" .. words[i]:gsub("%-", "%%-") .. "%f[^%w%-][%w%- ]*:") then
        return "there is no target " .. words[i]
      end
    end
  elseif commands.of(program) or exists(program) or made[program] then
    for i = first, #words do
      local option = words[i]:match "^%-%-([%w%-]+)"
      if option and not knows(program, option) then return ("%s does not know --%s"):format(program, option) end
    end
  elseif not program:match "^%l[%w%-]*$" or program == words[2] then
    return "there is no " .. program
  end
end

describe("the shell lines of the pages", function()
  it("name programs, options, targets and variables that exist", function()
    local count = 0
    for _, path in ipairs(pages.paths()) do
      for _, block in ipairs(pages.blocks(path)) do
        local made = {}
        local lines = block.language == "sh" and block.code or ""
        if block.language == "console" then -- what was typed after "$ "
          for line in ("\n" .. block.code):gmatch "\n%$ ([^\n]*)" do lines = lines .. line .. "\n" end
        end
        for line in lines:gmatch "[^\n]+" do
          local wrong = trouble(line, made)
          assert(wrong == nil, ("%s: %s: %s"):format(path, line, tostring(wrong)))
          count = count + 1
        end
      end
    end
    assert.is_true(count >= 20, count)
  end)

  it("are seen through when they are wrong", function()
    for line, said in pairs {
      ["PERILUNE_ENGIN=cpu ./perilune examples/spiral.lua"] = "PERILUNE_ENGIN", ["./perilune examples/spirals.lua"] = "there is no examples/spirals.lua",
      ["./perilune parity --engines stress"] = "does not know --engines", ["make -C build chek"] = "no target chek", ["./bootstrap dmeo"] = "dmeo",
      ["scripts/gate.sh --reports x"] = "--reports", ["./perilune pariti"] = "there is no pariti",
    } do
      assert.matches(said, tostring(trouble(line, {})), 1, true)
    end
  end)
end)

describe("the links of the pages", function()
  it("lead to files and headings that are there", function()
    local count = 0
    for _, path in ipairs(pages.paths()) do
      local folder = path:match "^(.*/)" or ""
      local text = pages.read(source .. "/" .. path):gsub("\n```.-\n```", "")
      for target in text:gmatch "%]%(([^)%s]+)%)" do
        local file, mark = target:match "^([^#]*)#?(.*)$"
        local full = file == "" and path or folder .. file
        while full:find "[^/]+/%.%./" do full = full:gsub("[^/]+/%.%./", "", 1) end
        assert(not target:match "^%a+:" and exists(full), ("%s: %s leads nowhere"):format(path, target))
        if mark ~= "" then assert(pages.headings(full)[mark], ("%s: %s has no such heading"):format(path, target)) end
        count = count + 1
      end
    end
    assert.is_true(count >= 18, count)
  end)
end)

describe("the picture of the README", function()
  it("is what its script draws", function()
    local pipe = io.popen(("cd %s && %s scripts/picture.lua"):format(pages.quote(source), pages.quote(os.getenv "PERILUNE_LAUNCHER" or "./perilune")))
    local drawn = pipe:read "*a"
    pipe:close()
    assert.is_true(drawn == pages.read(source .. "/docs/arena.svg"), "run: ./perilune scripts/picture.lua >docs/arena.svg")
    assert.matches("^<svg .*</svg>\n$", drawn)
  end)
end)

describe("the prompts that the pages show", function()
  --- What was typed after "> " in a block, and what came back, without the times, which a pipe does not get.
  local function session(code)
    local typed, answers = {}, {}
    for line in (code .. "\n"):gmatch "(.-)\n" do
      local text = line:match "^> (.*)$"
      if text then
        typed[#typed + 1] = text
      elseif #typed > 0 and not line:match "^%s+%[[%d%.]+ %l+%]$" then
        answers[#answers + 1] = line:match "^(.-)%s*$"
      end
    end
    return typed, answers
  end

  it("answer so", function()
    local launcher, count = os.getenv "PERILUNE_LAUNCHER" or "./perilune", 0
    for _, path in ipairs(pages.paths()) do
      for _, block in ipairs(pages.blocks(path)) do
        local typed, answers = session(block.language == "console" and block.code or "")
        if #typed > 0 then
          local file = os.tmpname()
          finally(function() os.remove(file) end)
          local out = assert(io.open(file, "w"))
          out:write(table.concat(typed, "\n"), "\n")
          out:close()
          local pipe = io.popen(("%s <%s 2>&1"):format(pages.quote(launcher), file))
          local k = 0
          for line in pipe:lines() do
            k = k + 1
            assert(answers[k] and pages.agrees(answers[k], line:match "^(.-)%s*$"), ("%s:%d: %s\nthe page says: %s"):format(path, block.line, line,
              tostring(answers[k])))
          end
          pipe:close()
          assert.equal(#answers, k, path)
          count = count + #typed
        end
      end
    end
    assert.is_true(count >= 5, count)
  end)
end)
