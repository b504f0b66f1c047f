-- SPDX-License-Identifier: MIT
-- window: convolutions and pooling over one or two dims of x (N, C, L) or (N, C, H, W). What lies under each place of the window is gathered
-- into (N, C, kernel, places) by one index_select over the flattened dims ("im2col"); the rest is a matrix product, a maximum or a
-- mean, so gradients and every engine follow from those ops. Padding is one extra element per channel that the indices point to.

local caller = require "perilune.caller"
local check = require "perilune.nn.check"
local init = require "perilune.nn.initialize"
local module = require "perilune.nn.module"

local window = {}

--- What a window of these settings leaves of a size; an error if nothing.
local function places(size, kernel, stride, padding, dilation)
  local span = dilation * (kernel - 1) + 1
  local n = math.floor((size + 2 * padding - span) / stride) + 1
  if size + 2 * padding < span then
    caller.fail("a window of %d does not fit into a size of %d with a padding of %d", span, size, padding)
  end
  return n
end

--- Along one dim: for kernel element and place the index from 0 (kernel, places); outside 0 .. size - 1 in the padding.
local function indices(eng, size, kernel, n, stride, padding, dilation)
  local from = eng:arange(n, nil, nil, "i64") * stride - padding
  if kernel == 1 then return from:view { 1, n } end
  return (eng:arange(kernel, nil, nil, "i64") * dilation):view { kernel, 1 } + from
end

--- The shape of x, which has nd dims behind (N, C), and `channels` if given.
local function checked_shape(x, nd, channels)
  local shape = x.shape
  if #shape ~= nd + 2 then
    caller.fail("x has %d dimensions (N, C%s), got shape %s", nd + 2, nd == 1 and ", L" or ", H, W", check.shape_text(shape))
  end
  if channels and shape[2] ~= channels then
    caller.fail("x has %d channels, expected %d; its shape is %s", shape[2], channels, check.shape_text(shape))
  end
  return shape
end

--- x (N, C, sizes ..) to (N, C, elements of the kernel, number of places), and the places' sizes.
local function unfold(x, w, filler)
  local shape, eng, nd = x.shape, x.engine, #w.kernel
  local index, inside, sizes, area, elements, count = nil, nil, {}, 1, 1, 1
  local padded = false
  for d = 1, nd do
    local size = shape[d + 2]
    local n = places(size, w.kernel[d], w.stride[d], w.padding[d], w.dilation[d])
    local at = indices(eng, size, w.kernel[d], n, w.stride[d], w.padding[d], w.dilation[d])
    local within = w.padding[d] > 0 and at:ge(0):logical_and(at:lt(size))
    padded = padded or w.padding[d] > 0
    if d == 1 then
      index, inside = at, within
    else -- (k1, p1) and (k2, p2) to (k1, k2, p1, p2)
      local k1, p1, k2, p2 = w.kernel[1], sizes[1], w.kernel[2], n
      local a, b = { k1, 1, p1, 1 }, { 1, k2, 1, p2 }
      index = index:view(a) * size + at:view(b)
      if inside and within then
        inside = inside:view(a):logical_and(within:view(b))
      else
        inside = inside and inside:view(a) or within and within:view(b)
      end
    end
    sizes[d], area, elements, count = n, area * size, elements * w.kernel[d], count * n
  end
  local flat = x:reshape { shape[1], shape[2], area }
  if padded then
    index = eng:where(inside, index, area)
    flat = eng:concat({ flat, eng:full({ shape[1], shape[2], 1 }, filler, x.dtype) }, 3)
  end
  index = (index + 1):reshape { elements * count }
  return flat:index_select(3, index):view { shape[1], shape[2], elements, count }, sizes
end

--- kernel, stride, padding and dilation as lists of nd counts.
local function settings(self, what, nd, kernel, options)
  self.kernel = check.counts(what, "kernel", kernel, nd)
  self.stride = check.counts(what, "stride", options.stride, nd)
  self.padding = check.counts(what, "padding", options.padding, nd, 0)
  self.dilation = check.counts(what, "dilation", options.dilation, nd)
end

local function conv(name, nd)
  local Conv = module.class(name)

  function Conv:init(eng, inputs, outputs, kernel, options)
    check.engine(name, eng)
    options = check.options(name, options, { stride = check.none, padding = check.none, dilation = check.none, groups = 1, bias = true, dtype = "f32" })
    options.stride, options.padding, options.dilation = options.stride or 1, options.padding or 0, options.dilation or 1
    self.inputs, self.outputs = check.count(name, "inputs", inputs), check.count(name, "outputs", outputs)
    settings(self, name, nd, kernel, options)
    self.groups = check.count(name, "groups", options.groups)
    if inputs % self.groups ~= 0 or outputs % self.groups ~= 0 then
      caller.fail("%s: %d inputs and %d outputs do not divide into %d groups", name, inputs, outputs, self.groups)
    end
    local shape = { outputs, inputs / self.groups, unpack(self.kernel) }
    self.weight = eng:param(shape, nil, { dtype = options.dtype })
    local bound = 1 / math.sqrt((init.fans(self.weight)))
    init.uniform(self.weight, -bound, bound)
    if options.bias then self.bias = init.uniform(eng:param({ outputs }, nil, { dtype = options.dtype }), -bound, bound) end
  end

  function Conv:forward(x)
    local shape = checked_shape(x, nd, self.inputs)
    local columns, sizes = unfold(x, self, 0)
    local n, g, elements, count = shape[1], self.groups, columns.shape[3], columns.shape[4]
    local rows, inner = self.outputs / g, self.inputs / g * elements
    local y
    if g == 1 then
      y = self.weight:view({ rows, inner }):matmul(columns:view { n, inner, count })
    else
      y = self.weight:view({ g, rows, inner }):matmul(columns:view { n, g, inner, count }):view { n, self.outputs, count }
    end
    if self.bias then y = y + self.bias:view { self.outputs, 1 } end
    return y:view { n, self.outputs, unpack(sizes) }
  end

  function Conv:describe()
    return ("%d, %d, kernel = %s"):format(self.inputs, self.outputs, table.concat(self.kernel, "x"))
  end

  window[name] = Conv
end

--- x (N, inputs, sizes ..) to (N, outputs, sizes ..) with a kernel of one size, or one size per dim. Options, each a number or one per dim: stride
--- (1), padding (0), dilation (1); groups (1), bias (true), dtype. Weight (outputs, inputs / groups, kernel ..), first values as Linear's.
---@class perilune.Conv1d: perilune.Module
---@class perilune.Conv2d: perilune.Module
---@overload fun(eng, inputs: integer, outputs: integer, kernel: integer|integer[], options?: table): perilune.Module
conv("Conv1d", 1)
conv("Conv2d", 2)

local function pool(name, nd, filler, reduce)
  local Pool = module.class(name)

  function Pool:init(kernel, options)
    options = check.options(name, options, { stride = check.none, padding = check.none })
    options.stride, options.padding, options.dilation = options.stride or kernel, options.padding or 0, 1
    settings(self, name, nd, kernel, options)
    for d = 1, nd do
      if 2 * self.padding[d] > self.kernel[d] then
        caller.fail("%s: a padding of %d is more than half of the kernel's %d", name, self.padding[d], self.kernel[d])
      end
    end
  end

  function Pool:forward(x)
    local shape = checked_shape(x, nd)
    local columns, sizes = unfold(x, self, filler)
    return reduce(columns):view { shape[1], shape[2], unpack(sizes) }
  end

  function Pool:describe() return table.concat(self.kernel, "x") end

  window[name] = Pool
end

--- Windows' maxima and means; the stride is the kernel unless given. Options, each a number or one per dim: stride, padding (0). Padding counts as 0 in
--- the mean and never is the maximum.
---@class perilune.MaxPool1d: perilune.Module
---@class perilune.MaxPool2d: perilune.Module
---@class perilune.AvgPool1d: perilune.Module
---@class perilune.AvgPool2d: perilune.Module
---@overload fun(kernel: integer|integer[], options?: table): perilune.Module
for nd = 1, 2 do
  pool(("MaxPool%dd"):format(nd), nd, -math.huge, function(columns) return (columns:max(3)) end)
  pool(("AvgPool%dd"):format(nd), nd, 0, function(columns) return columns:mean(3) end)
end

--- The mean over all dims after the second: (N, C, ..) to (N, C).
local GlobalAvgPool = module.class "GlobalAvgPool"

function GlobalAvgPool:forward(x)
  local dims = {}
  for d = 3, x.ndim do dims[#dims + 1] = d end
  if #dims == 0 then caller.fail("x has at least 3 dimensions (N, C, ..), got shape %s", check.shape_text(x.shape)) end
  return x:mean(dims)
end

window.GlobalAvgPool = GlobalAvgPool

return window
