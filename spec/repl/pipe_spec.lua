-- SPDX-License-Identifier: MIT
-- The REPL through a pipe: golden transcripts. What is typed stands behind "> " (">> " goes on with it), below it what it prints; a line that begins
-- with "! " goes to standard error. No prompts, no colour and no times come out.

local launcher = os.getenv "PERILUNE_LAUNCHER" or "./perilune"

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

--- Output, errors and status of the command fed with text.
local function repl(input, options)
  local base = os.tmpname()
  write(base, input)
  local status = os.execute(("env -u PERILUNE_ENGINE COLUMNS=80 '%s' %s <%s >%s.out 2>%s.err"):format(launcher, options or "", base, base, base))
  local out, err = read(base .. ".out"), read(base .. ".err")
  os.execute(("rm -f %s %s.out %s.err"):format(base, base, base))
  return out, err, status >= 256 and status / 256 or status
end

--- Feeds the transcript's input and compares both streams.
local function transcript(text, options, want)
  local input, out, err = {}, {}, {}
  for line in text:gmatch "([^\n]*)\n" do
    local typed, complaint = line:match "^>>? (.*)$", line:match "^! (.*)$"
    if line == ">" then typed = "" end
    local list = typed and input or complaint and err or out
    list[#list + 1] = typed or complaint or line
  end
  local got, complaints, status = repl(table.concat(input, "\n") .. "\n", options)
  assert.equal(table.concat(out, "\n"), (got:gsub("\n$", "")))
  assert.equal(table.concat(err, "\n"), (complaints:gsub("\n$", "")))
  assert.equal(want or #err > 0 and 1 or 0, status)
end

describe("what is typed", function()
  it("prints its values without =, none, one or several", function()
    transcript [[
> 1 + 1
2
> "text", nil, true
text
nil
true
> nil
nil
> (function() end)()
> x = 3
> x -- a comment
3
> -- nothing else
>
> return 7
]]
  end)

  it("prints nothing where it ends in a semicolon, and keeps the values all the same", function()
    transcript [[
> 6 * 7;
> _
42
> "a;"
a;
> "x" -- y;
x
]]
  end)

  it("has its values in _ and _1, _2, ... until the next that has any", function()
    transcript [[
> 1, 2, 3
1
2
3
> _, _1, _2, _3
1
1
2
3
> "one"
one
> _1, _2, _3
one
nil
nil
> y = 1
> _
one
]]
  end)

  it("goes on until it is complete", function()
    transcript [=[
> for i = 1, 2 do
>>   print(i)
>> end
1
2
> function f(a)
>>   return a * 2
>> end
> f(
>> 4)
8
> [[two
>> lines]]
two
lines
> { 1,
>>   2 }
{ 1, 2 }
]=]
  end)

  it("is refused with what is wrong with it, and the next line runs", function()
    transcript [[
> x = )
! unexpected symbol near ')'
> "open
! unfinished string near '<eof>'
> 1 1
! unexpected symbol near '1'
> 2
2
]]
  end)

  it("ends with what it lacks at the end of input", function()
    local _, err, status = repl "for i = 1, 3 do\n"
    assert.equal("'end' expected near '<eof>'\n", err)
    assert.equal(1, status)
  end)
end)

describe("an error", function()
  it("shows the user's frames, and the next line runs", function()
    transcript [[
> function f(n) if n == 0 then error "boom" end return (f(n - 1)) end
> f(2)
! prompt:1: boom
!   prompt:1: in global 'f'
!   prompt:1: in global 'f'
!   prompt:1: in global 'f'
!   prompt:1: in the main chunk
> 1
1
]]
  end)

  it("of an op is told at the line, without a traceback where that is the prompt's", function()
    transcript [[
> eng:ones { 2, 3 }:matmul(eng:ones { 2, 3 })
! matmul: argument 'b': inner sizes 3 and 2 differ, shapes are (2, 3) and (2, 3)
> eng:ones { 2 }:smu()
! a tensor has no method or field 'smu' (did you mean 'sum'?)
> error { code = 1 }
! (error value: a table)
> error(setmetatable({}, { __tostring = function() return "my own" end }))
! my own
> error()
! (error value: nil)
]]
  end)

  it("that only data can tell is raised by the command that caused it", function()
    transcript [[
> t = eng:ones { 3 }:gather(1, eng:full({ 1 }, 9, { dtype = "i64" })); -- nothing is read
! gather (at an unknown line): element 1 of 'index' is 9, valid are 1 to 3 (eng:places(true) records the lines)
]]
  end)
end)

describe("values", function()
  it("of tensors and tables of tensors print well", function()
    transcript [[
> x = eng:tensor { { 1, 2, 3 }, { 4, 5, 6 } }
> x
1  2  3
4  5  6
[f32 tensor 2x3 on cpu, owned]
> { weight = x, bias = eng:ones { 2 }, big = eng:zeros { 100, 100 }, name = "layer", size = { 2, 3 }, [3] = 1 }
{
  [3] = 1
  bias = 1  1  [f32 tensor 2 on cpu, owned]
  big = [f32 tensor 100x100 on cpu, owned]
  name = "layer"
  size = { 2, 3 }
  weight =
    1  2  3
    4  5  6
    [f32 tensor 2x3 on cpu, owned]
}
> { x:sum(), {} }
{
  21  [f32 tensor () on cpu, owned]
  {}
}
]]
  end)

  it("of tables end somewhere", function()
    transcript [[
> t = {} t.self = t t.deep = { { { { { { 1 } } } } } }
> t
{
  deep = {
    {
      {
        {
          { ... }
        }
      }
    }
  }
  self = { this table again }
}
> big = {} for i = 1, 1e6 do big[i] = { i } end
> print(#require "perilune.repl.show" (big) < 5000)
true
]]
  end)

  it("of layers show the tree", function()
    transcript [[
> perilune.nn.Sequential { perilune.nn.Linear(eng, 2, 3), perilune.nn.ReLU() }
Sequential()
  (1) Linear(2, 3)
  (2) ReLU()
]]
  end)
end)

describe("commands", function()
  it("who() lists what the user made", function()
    transcript [[
> who()
> x = eng:zeros { 1024, 1024 }
> n, s, f, t = 5, "text", function() end, { 1, 2 }
> who()
eng  engine    cpu
f    function  prompt:1
n    number    5
s    string    text
t    table     2 entries
x    tensor    f32 1024x1024 on cpu, owned, 4.0 MiB
]]
  end)

  it("$ runs a program", function()
    transcript([[
> $ echo hello
hello
> $ exit 3
status 3
> 1
1
]], nil, 1)
  end)
end)

describe("strict globals", function()
  it("make reading a name that does not exist an error, and setting one in a function", function()
    transcript([[
> count = 1
> count
1
> conut
! there is no global 'conut' (did you mean 'count'?)
> function f() total = 1 end
> f()
! prompt:1: a function sets global 'total', which does not exist: 'local' is missing, or set it first in the main chunk
!   prompt:1: in global 'f'
!   prompt:1: in the main chunk
> total = 0
> f()
> total
1
> none = nil
> none
nil
]], "-g")
  end)

  it("let the whole library load and work", function()
    local script = os.tmpname() .. ".lua"
    write(script, [[
      local perilune = require "perilune"
      local eng = perilune.engine "stress"
      for _, name in ipairs { "nn", "optim", "data", "parity", "gradcheck", "oracle", "composites", "redproof" } do require("perilune." .. name) end
      local model = perilune.nn.Linear(eng, 3, 2)
      local opt = perilune.optim.AdamW(model, { lr = 0.1 })
      perilune.nn.loss.mse(model(eng:ones { 4, 3 }), eng:zeros { 4, 2 }):backward()
      opt:step()
      print "fine"]])
    local pipe = io.popen(("'%s' -g %s 2>&1"):format(launcher, script))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(script)
    assert.equal("fine\n", output)
  end)
end)

describe("-i", function()
  it("stays after a script, with its globals and arguments", function()
    local script = os.tmpname() .. ".lua"
    write(script, "y = 5 print('script', ...)")
    local out, err, status = repl("y + 1\narg[1]\n", "-i " .. script .. " one")
    assert.equal("script\tone\n6\none\n", out)
    assert.equal("", err)
    assert.equal(0, status)
    write(script, "y = 5 error 'broken'")
    out, err, status = repl("y\n", "-i " .. script)
    os.remove(script)
    assert.equal("5\n", out)
    assert.matches("broken", err, 1, true)
    assert.equal(1, status)
  end)

  it("needs a script", function()
    local _, err, status = repl("", "-i")
    assert.matches("-i needs a script", err, 1, true)
    assert.equal(2, status)
  end)
end)

describe("-e", function()
  it("ends with 0, with 1 after an error and with 2 where it does not compile", function()
    for code, want in pairs { ["x = 1"] = 0, ["error 'x'"] = 1, ["x ="] = 2, ["os.exit(7)"] = 7 } do
      local _, _, status = repl("", ("-e \"%s\""):format(code))
      assert.equal(want, status, code)
    end
  end)
end)
