-- SPDX-License-Identifier: MIT
-- Plots: what is drawn in characters, that pictures are whole and show the same, and what bad input is told.

local perilune = require "perilune"
local engines = require "spec.support.engines"
local plot = perilune.plot

local function drawn(figure, opts)
  opts = opts or {}
  opts.color = opts.color or false
  return figure:text(opts)
end

local function lines_of(text)
  local list = {}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do list[#list + 1] = line end
  return list
end

--- The columns that a line takes on the screen.
local function columns(line) return select(2, line:gsub("\27%[[%d;]*m", ""):gsub("[^\128-\191]", "")) end

local function save(figure, ending, opts)
  local path = os.tmpname()
  os.remove(path)
  path = path .. ending
  figure:save(path, opts)
  local f = assert(io.open(path, "rb"))
  local bytes = f:read "*a"
  f:close()
  os.remove(path)
  return bytes
end

describe("a plot in characters", function()
  after_each(engines.close)

  it("of a line has axes, round ticks, and rises where the values do", function()
    local list = lines_of(drawn(plot.line({ 1, 2, 3 }, { title = "rise", xlabel = "n" }), { width = 42, height = 11 }))
    assert.equal("                   rise", list[1])
    local labels, first = {}, {}
    for i, line in ipairs(list) do
      labels[#labels + 1] = line:match "^ *([%d.]+) \226\148\164"
      local at = line:find "[\226][\160-\163]"
      if at and i > 1 then first[#first + 1] = columns(line:sub(1, at - 1)) end
    end
    assert.same({ "3", "2", "1" }, labels)
    assert.is_true(#first >= 6)
    for i = 2, #first do assert.is_true(first[i] < first[i - 1]) end
    assert.matches("^ +1 +2 +3$", list[#list - 1])
    assert.matches("^ +n$", list[#list])
  end)

  it("takes tensors of any engine, views, and nested tables", function()
    engines.each(function(name, open)
      local eng = open()
      local t = eng:tensor { { 1, 5 }, { 2, 6 }, { 3, 7 } }
      local want = drawn(plot.line { 1, 2, 3 })
      assert.equal(want, drawn(plot.line(t:select(2, 1))), name)
      assert.equal(want, drawn(plot.line(t:select(2, 1):to "i64")), name)
    end)
    assert.equal(drawn(plot.line { 1, 2, 3, 4 }), drawn(plot.line { { 1, 2 }, { 3, 4 } }))
  end)

  it("keeps to the width and height that it is given", function()
    for _, figure in ipairs {
      plot.line({ { y = { 1, 2, 30000 }, name = "a" }, { y = { 3, 2, 1 }, name = "b" } }, { title = "t", xlabel = "x", ylabel = "y" }),
      plot.scatter({ 0.001, 0.002 }, { 1e9, 2e9 }), plot.histogram { 1, 2, 2, 3 }, plot.line {},
    } do
      for _, width in ipairs { 20, 40, 79, 133 } do
        for _, color in ipairs { true, false } do
          local list = lines_of(figure:text { width = width, height = 12, color = color })
          assert.is_true(#list <= 12, #list)
          for _, line in ipairs(list) do assert.is_true(columns(line) <= width, line) end
        end
      end
    end
  end)

  it("leaves gaps for NaN, infinities, and what a logarithm has not", function()
    local function dots(figure) return select(2, drawn(figure, { width = 60 }):gsub("[\160-\163][\128-\191]", "")) end
    local whole = dots(plot.line({ 1, 1, 1, 1, 1 }, { ylim = { 0, 2 } }))
    for _, hole in ipairs { 0 / 0, 1 / 0, -1 / 0 } do
      local with_gap = dots(plot.line({ 1, 1, hole, 1, 1 }, { ylim = { 0, 2 } }))
      assert.is_true(with_gap < whole and with_gap > whole / 3)
    end
    assert.is_true(dots(plot.line({ 1, 1, -1, 1, 1 }, { log = "y", ylim = { 0.5, 2 } })) < whole)
    assert.is_true(dots(plot.line { 0 / 0, 3, 0 / 0 }) >= 1) -- a value alone is a point
  end)

  it("puts decades at equal distances on a logarithmic axis", function()
    local list = lines_of(drawn(plot.line({ 1, 10, 100, 1000 }, { log = "y" }), { width = 50, height = 18 }))
    local at = {}
    for i, line in ipairs(list) do
      local power = line:match "^ *1e(%d+)"
      if power then at[tonumber(power)] = i end
    end
    assert.is_truthy(at[0] and at[1] and at[2] and at[3])
    assert.is_true(math.abs((at[0] - at[1]) - (at[2] - at[3])) <= 1)
  end)

  it("has ticks at round values, whatever is shown, that tell themselves apart", function()
    local cases = {
      { { 0.135, 0.669 }, { "0.2", "0.5" }, "y" }, { { 0.11, 9.9 }, { "0.2", "0.5", "1", "2", "5" }, "y" }, { { 1e-300, 1e300 }, nil, "y" },
      { { 5, 6 }, { "5.0", "5.5", "6.0" }, "y" }, { { 1234567, 1234570 }, { "1234567", "1234568", "1234569", "1234570" } },
      { { 1.000001, 1.000002 }, { "1.000001", "1.0000015", "1.000002" } }, { { 1e6, 5e6 }, { "1e6", "2e6", "3e6", "4e6", "5e6" } },
      { { -1.7e308, 1.7e308 } }, { { 1e16, 1e16 + 2 } }, { { 5e-324, 1e-323 } }, { { 5e-324, 5e-324 }, nil, "y" }, { { 1.7e308, 1.7e308 } }, { { -3, -3 } },
    }
    for i, case in ipairs(cases) do
      local _, ay = plot.line(case[1], { title = "t", log = case[3] }):axes(4, 4)
      local texts = {}
      for k, tick in ipairs(ay.ticks) do
        assert.is_true(tick.at >= -1e-9 and tick.at <= 1 + 1e-9, i)
        assert.is_true(k == 1 or texts[k - 1] ~= tick.text, i)
        texts[k] = tick.text
      end
      if case[2] then assert.same(case[2], texts) else assert.is_true(#texts >= 1, i) end
      for _, v in ipairs(case[1]) do assert.is_true(ay.at(v) >= 0 and ay.at(v) <= 1, i) end
    end
  end)

  it("tells series apart with and without colours, and names them", function()
    local figure = plot.line({ { y = { 1, 2, 3 }, name = "up" }, { y = { 3, 2, 1 }, name = "down" } })
    local plain, colored = drawn(figure), figure:text { color = true }
    assert.matches("up   o down$", plain)
    assert.is_truthy(plain:find("ooo", 1, true))
    assert.is_nil(plain:find "\27")
    assert.is_truthy(colored:find("\27[34m", 1, true) and colored:find("\27[31m", 1, true))
    assert.equal(drawn(plot.line { 1, 2, 3 }:scatter({ 1, 3 }, { 3, 1 })), drawn(plot.line { 1, 2, 3 }:scatter({ 1, 3 }, { 3, 1 })))
  end)

  it("of a histogram counts each value once, the largest too", function()
    local item = plot.histogram({ 0, 1, 2, 3, 4, 4, 0 / 0, 1 / 0 }, { bins = 4 }).items[1]
    assert.same({ 1, 1, 1, 3 }, item.counts)
    assert.same({ 0, 1, 2, 3, 4 }, item.edges)
    assert.same({ 3 }, plot.histogram({ 7, 7, 7 }, { bins = 1 }).items[1].counts)
    assert.is_truthy(drawn(plot.histogram {}))
    -- one among ten thousand is seen
    local values = {}
    for i = 1, 10000 do values[i] = 0 end
    values[10001] = 1
    assert.is_truthy(lines_of(drawn(plot.histogram(values, { bins = 2 }), { width = 40, height = 10 }))[8]:find("\226\150\129", 1, true))
  end)

  it("of an image shows levels from black to white, and shrinks what is large", function()
    assert.equal("  \226\150\136\226\150\136\n\226\150\136\226\150\136  ", drawn(plot.image { { 0, 1 }, { 1, 0 } }))
    local eng = engines.open "cpu"
    assert.is_truthy(plot.image(eng:tensor({ 0, 255 }, { dtype = "u8" }):view { 1, 2 }):text { color = true }:find("38;2;255;255;255", 1, true))
    local large = lines_of(drawn(plot.image(eng:rand { 300, 500 }), { width = 60, height = 20 }))
    assert.is_true(#large <= 20 and columns(large[1]) <= 60)
    assert.is_truthy(drawn(plot.image(eng:rand { 3, 4, 3 })))
  end)

  it("is what printing a figure shows", function()
    local figure = plot.line { 1, 2 }
    assert.equal(figure:text(), tostring(figure))
  end)
end)

describe("a plot as a file", function()
  after_each(engines.close)

  local function figure()
    return plot.line({ { y = { 1, 2, 0 / 0, 4, 5 }, name = "a < b & \"c\"" }, { y = { 3, 3, 3, 3, 3 } } }, { title = "t", xlabel = "x", ylabel = "y" })
  end

  it("in SVG is balanced XML that refers to nothing outside, with a line for each piece", function()
    local svg = save(figure(), ".svg", { width = 300, height = 200 })
    assert.matches('^<svg xmlns="http://www.w3.org/2000/svg" width="300" height="200"', svg)
    local open = {}
    for slash, name, rest in svg:gmatch "<(/?)(%a+)([^>]*)>" do
      if slash == "/" then
        assert.equal(name, table.remove(open))
      elseif not rest:match "/$" then
        open[#open + 1] = name
      end
    end
    assert.same({}, open)
    assert.is_truthy(svg:find("a &lt; b &amp; &quot;c&quot;", 1, true))
    assert.is_nil(svg:find "href" or svg:find "url%(")
    assert.equal(3, select(2, svg:gsub('stroke="#0072b2"', "")) + select(2, svg:gsub('stroke="#d55e00"', "")))
    for x, y in svg:gmatch "(%-?[%d.]+),(%-?[%d.]+)" do
      assert.is_true(tonumber(x) >= 0 and tonumber(x) <= 300 and tonumber(y) >= 0 and tonumber(y) <= 200)
    end
  end)

  it("in PNG has its size, its pieces and their check sums", function()
    local png = save(figure(), ".png", { width = 320, height = 200 })
    assert.equal("\137PNG\r\n\26\n", png:sub(1, 8))
    local function word(at)
      local a, b, c, d = png:byte(at, at + 3)
      return ((a * 256 + b) * 256 + c) * 256 + d
    end
    local table_of = {}
    for i = 0, 255 do
      local c = i
      for _ = 1, 8 do c = bit.band(c, 1) == 1 and bit.bxor(bit.rshift(c, 1), 0xedb88320) or bit.rshift(c, 1) end
      table_of[i] = c
    end
    local at, names = 9, {}
    while at <= #png do
      local length = word(at)
      names[#names + 1] = png:sub(at + 4, at + 7)
      local crc = bit.bnot(0)
      for i = at + 4, at + 7 + length do crc = bit.bxor(table_of[bit.band(bit.bxor(crc, png:byte(i)), 255)], bit.rshift(crc, 8)) end
      assert.equal(bit.tobit(word(at + 8 + length)), bit.bnot(crc))
      at = at + 12 + length
    end
    assert.equal("IHDR", names[1])
    assert.equal("IEND", names[#names])
    assert.equal(320, word(17))
    assert.equal(200, word(21))
  end)

  it("of a long line has what can be seen of it, gaps and spikes too", function()
    local axes = require "perilune.plot.axes"
    local y = {}
    for i = 1, 100000 do y[i] = math.sin(i / 5000) end
    y[30000], y[70000], y[70001] = 9, 0 / 0, 0 / 0
    local long = plot.line(y)
    local ax, ay = long:axes(4, 4)
    local thin = axes.thinned(long.items[1], ax, ay, 100)
    assert.is_true(#thin.x < 420, #thin.x)
    local highest, gaps = -math.huge, 0
    for i, v in ipairs(thin.y) do
      assert.is_true(i == 1 or thin.x[i] > thin.x[i - 1])
      assert.is_true(v ~= v or v == y[thin.x[i]])
      if v ~= v then gaps = gaps + 1 else highest = math.max(highest, v) end
    end
    assert.equal(9, highest)
    assert.equal(2, gaps)
    assert.equal(1, thin.x[1])
    assert.equal(100000, thin.x[#thin.x])
    assert.is_true(#save(long, ".svg") < 100000)
    local back = { x = { 3, 2, 1 }, y = { 1, 2, 3 } } -- x does not grow
    assert.equal(back, axes.thinned(back, ax, ay, 0.1))
    -- drawn in characters both are the same
    local whole = drawn(long, { width = 60 })
    local original = axes.thinned
    axes.thinned = function(item) return item end
    local ok, unthinned = pcall(drawn, long, { width = 60 })
    axes.thinned = original
    assert.is_true(ok)
    assert.equal(unthinned, whole)
  end)

  it("holds images and histograms as well", function()
    local eng = engines.open "cpu"
    local svg = save(plot.image { { 0, 1 }, { 1, 0 } }, ".svg")
    assert.is_truthy(svg:find("#ffffff", 1, true) and svg:find("#000000", 1, true))
    for _, f in ipairs { plot.image(eng:rand { 5, 6, 3 }), plot.histogram(eng:randn { 100 }), plot.scatter({ 1, 2 }, { 3, 4 }), plot.line {} } do
      assert.is_true(#save(f, ".svg") > 200)
      assert.is_true(#save(f, ".png") > 200)
    end
  end)
end)

describe("plots refuse", function()
  local cases = {
    { "plot.line: what shall be drawn?", function() plot.line() end },
    { "plot.line: y: a tensor or a table of numbers was expected, got string", function() plot.line "x" end },
    { "plot.line: y: a number was expected, got string", function() plot.line { 1, "a" } end },
    { "plot.line: x has 2 values, y has 1", function() plot.line({ 1, 2 }, { 1 }) end },
    { "plot.scatter: x has 1 values, y has 2", function() plot.scatter({ 1 }, { 1, 2 }) end },
    { "plot.line: there is no option 'titel' (did you mean 'title'?)", function() plot.line({ 1 }, { titel = "x" }) end },
    { 'plot.line: option \'log\' is "x", "y" or "xy", got 1', function() plot.line({ 1 }, { log = 1 }) end },
    { "plot.line: option 'xlim' is two numbers, the lower one first", function() plot.line({ 1 }, { xlim = { 2, 1 } }) end },
    { "plot.histogram: option 'bins' is a whole number, 1 or more, got 0", function() plot.histogram({ 1 }, { bins = 0 }) end },
    { "plot.image: row 2: 2 values were expected", function() plot.image { { 1, 2 }, { 1 } } end },
    { "plot.image: a tensor or a table of rows was expected, got number", function() plot.image(1) end },
    { 'plot.save: a name that ends in .svg or .png was expected, got "x.gif"', function() plot.line({ 1 }):save "x.gif" end },
    { "plot.save: option 'width' is a whole number from 64 to 10000, got 1", function() plot.line({ 1 }):save("x.svg", { width = 1 }) end },
    { "No such file or directory", function() plot.line({ 1 }):save "/nonexistent/x.svg" end },
  }
  for _, case in ipairs(cases) do
    it(case[1], function()
      local ok, message = pcall(case[2])
      assert.is_false(ok)
      assert.is_truthy(message:find(case[1], 1, true), message)
      assert.matches("plot_spec.lua:%d+: ", message)
    end)
  end
end)
