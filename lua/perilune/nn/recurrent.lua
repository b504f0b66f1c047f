-- SPDX-License-Identifier: MIT
-- recurrent: RNN, GRU and LSTM with PyTorch's parameters and order of gates. x is (T, B, inputs), or (B, T, inputs) with batch_first.
--
--   local y, h = nn.GRU(eng, 8, 16)(x)             -- y (T, B, 16), h (layers, B, 16)
--   local y, h, c = nn.LSTM(eng, 8, 16)(x, h, c)   -- states are optional, zeros without

local caller = require "perilune.caller"
local check = require "perilune.nn.check"
local init = require "perilune.nn.initialize"
local module = require "perilune.nn.module"

--- One layer: the input's part of all steps at once, then step by step.
local Cell = module.class "Cell"

function Cell:init(eng, inputs, hidden, gates, options)
  local bound, made = 1 / math.sqrt(hidden), { dtype = options.dtype }
  local function parameter(shape) return init.uniform(eng:param(shape, nil, made), -bound, bound) end
  self.weight_ih = parameter { gates * hidden, inputs } -- one by one: this is the order of the parameters
  self.weight_hh = parameter { gates * hidden, hidden }
  if options.bias then
    self.bias_ih = parameter { gates * hidden }
    self.bias_hh = parameter { gates * hidden }
  end
end

function Cell:forward(x, step, h, c)
  local from_x, ys = x:linear(self.weight_ih, self.bias_ih), {}
  for t = 1, x.shape[1] do
    h, c = step(from_x[t], h:linear(self.weight_hh, self.bias_hh), h, c)
    ys[t] = h
  end
  return x.engine:stack(ys), h, c
end

local function recurrent(name, gates, states, step_of, extra)
  local Layer = module.class(name)

  function Layer:init(eng, inputs, hidden, options)
    check.engine(name, eng)
    local defaults = { layers = 1, bias = true, batch_first = false, dtype = "f32" }
    for key, value in pairs(extra or {}) do defaults[key] = value end
    options = check.options(name, options, defaults)
    self.inputs, self.hidden = check.count(name, "inputs", inputs), check.count(name, "hidden", hidden)
    check.count(name, "layers", options.layers)
    self.batch_first, self.step = options.batch_first, step_of(options)
    self.layers = {}
    for i = 1, options.layers do self.layers[i] = Cell(eng, i == 1 and inputs or hidden, hidden, gates, options) end
  end

  --- The state (layers, B, hidden) given, or zeros.
  local function start(self, what, state, x)
    local want = { #self.layers, x.shape[2], self.hidden }
    if state == nil then return x.engine:zeros(want, { dtype = x.dtype }) end
    if check.shape_text(state.shape) ~= check.shape_text(want) then
      caller.fail("%s is %s, got shape %s", what, check.shape_text(want), check.shape_text(state.shape))
    end
    return state
  end

  function Layer:forward(x, h, c)
    local shape = x.shape
    if #shape ~= 3 or shape[3] ~= self.inputs then
      caller.fail("x is (%s, %d), got shape %s", self.batch_first and "B, T" or "T, B", self.inputs, check.shape_text(shape))
    end
    if self.batch_first then x = x:transpose(1, 2) end
    if x.shape[1] == 0 then caller.fail("x has no steps, its shape is %s", check.shape_text(shape)) end
    h = start(self, "h", h, x)
    c = states == 2 and start(self, "c", c, x) or nil
    local hs, cs = {}, {}
    for i, cell in ipairs(self.layers) do
      x, hs[i], cs[i] = cell(x, self.step, h[i], c and c[i])
    end
    local eng = x.engine
    if self.batch_first then x = x:transpose(1, 2) end
    if states == 2 then return x, eng:stack(hs), eng:stack(cs) end
    return x, eng:stack(hs)
  end

  function Layer:describe() return ("%d, %d%s"):format(self.inputs, self.hidden, #self.layers > 1 and ", layers = " .. #self.layers or "") end

  return Layer
end

--- Options of all three: layers (1), bias (true), batch_first (false), dtype. RNN also: activation ("tanh" or "relu").
--- h = tanh(W x + b + U h + c), step by step: module(x, h) gives all steps' h and the last of each layer. Options: layers (1), bias (true), batch_first
--- (false), activation ("tanh" or "relu"), dtype.
---@class perilune.RNN: perilune.Module
---@overload fun(eng, inputs: integer, hidden: integer, options?: table): perilune.RNN
local RNN = recurrent("RNN", 1, 1, function(options)
  local activation = check.word("RNN", "activation", options.activation, { "tanh", "relu" })
  return function(x, h)
    local sum = x + h
    return sum[activation](sum)
  end
end, { activation = "tanh" })

--- Gated recurrent units (Cho et al. 2014): module(x, h) gives all steps' h and the last of each layer. Options: layers (1), bias (true), batch_first
--- (false), dtype.
---@class perilune.GRU: perilune.Module
---@overload fun(eng, inputs: integer, hidden: integer, options?: table): perilune.GRU
local GRU = recurrent("GRU", 3, 1, function()
  return function(x, from_h, h)
    local xr, xz, xn = x:chunk(3, -1)
    local hr, hz, hn = from_h:chunk(3, -1)
    local r, z = (xr + hr):sigmoid(), (xz + hz):sigmoid()
    local n = (xn + r * hn):tanh()
    return n + z * (h - n)
  end
end)

--- Long short-term memory (Hochreiter and Schmidhuber 1997): module(x, h, c) gives all steps' h and the last h and c of each layer. Options: layers (1),
--- bias (true), batch_first (false), dtype.
---@class perilune.LSTM: perilune.Module
---@overload fun(eng, inputs: integer, hidden: integer, options?: table): perilune.LSTM
local LSTM = recurrent("LSTM", 4, 2, function()
  return function(x, from_h, _, c)
    local i, f, g, o = (x + from_h):chunk(4, -1)
    c = f:sigmoid() * c + i:sigmoid() * g:tanh()
    return o:sigmoid() * c:tanh(), c
  end
end)

return { RNN = RNN, GRU = GRU, LSTM = LSTM }
