-- SPDX-License-Identifier: MIT
-- attention: MultiheadAttention with causal and padding masks, rotary positions and a cache of keys and values for generation.
-- The cache is persistent, so it outlives the reset after each token; positions count from its length on.

local caller = require "perilune.caller"
local check = require "perilune.nn.check"
local init = require "perilune.nn.initialize"
local linear = require "perilune.nn.linear"
local module = require "perilune.nn.module"

local fail = caller.fail

--- Rotary positions (Su et al. 2021): x (.., L, D) with each pair (x_i, x_(i + D/2)) turned by the angle (offset + row) * base^(-2 i / D), rows
--- counted from 0. Angles are computed in f64.
---@param x userdata
---@param offset? integer  position of the first row (0)
---@param base? number  10000
local function rotary(x, offset, base)
  local shape, eng = x.shape, x.engine
  local rows, width = shape[#shape - 1], shape[#shape]
  if #shape < 2 or width % 2 ~= 0 then fail("rotary: x is (.., rows, an even width), got shape %s", check.shape_text(shape)) end
  local half = width / 2
  local speeds = (eng:arange(half, nil, nil, "f64") * (-math.log(base or 10000) / half)):exp()
  local angles = (eng:arange(rows, nil, nil, "f64") + (offset or 0)):view { rows, 1 } * speeds
  local cos, sin = angles:cos():to(x.dtype), angles:sin():to(x.dtype)
  local a, b = x:narrow(-1, 1, half), x:narrow(-1, half + 1, half)
  return eng:concat({ a * cos - b * sin, b * cos + a * sin }, -1)
end

--- Attention of `heads` heads over x (B, L, width), with PyTorch's parameters: weight (3 width, width) for queries, keys and values, bias, and a linear
--- layer `out`. Options: bias (true), rotary (false; true or the base), dtype.
---@class perilune.MultiheadAttention: perilune.Module
---@overload fun(eng, width: integer, heads: integer, options?: table): perilune.MultiheadAttention
local Attention = module.class "MultiheadAttention"

function Attention:init(eng, width, heads, options)
  check.engine("MultiheadAttention", eng)
  options = check.options("MultiheadAttention", options, { bias = true, rotary = check.none, dtype = "f32" })
  self.width, self.heads = check.count("MultiheadAttention", "width", width), check.count("MultiheadAttention", "heads", heads)
  if width % heads ~= 0 then fail("MultiheadAttention: a width of %d does not divide into %d heads", width, heads) end
  self.rotary = options.rotary == true and 10000 or options.rotary or false
  if self.rotary and (width / heads) % 2 ~= 0 then fail("MultiheadAttention: rotary needs heads of an even width, got %d", width / heads) end
  local made = { dtype = options.dtype }
  self.weight = init.xavier_uniform(eng:param({ 3 * width, width }, nil, made))
  if options.bias then self.bias = eng:param({ 3 * width }, nil, made) end
  self.out = linear.Linear(eng, width, width, { bias = options.bias, dtype = options.dtype })
  if options.bias then init.zeros(self.out.bias) end
end

--- Room for the keys and values of `length` positions of a batch, outside the arena. Its field `length` counts the positions in use; set it to 0 to
--- start anew.
function Attention:cache(batch, length)
  check.count("cache", "batch", batch)
  check.count("cache", "length", length)
  local eng, made = self.weight.engine, { dtype = self.weight.dtype }
  local shape = { batch, self.heads, length, self.width / self.heads }
  return { k = eng:persistent(shape, nil, made), v = eng:persistent(shape, nil, made), length = 0, capacity = length }
end

local function extend(cache, k, v)
  local eng, n = k.engine, k.shape[3]
  if eng:recording() and k:requires_grad() then fail("a cache keeps no gradients: call the layer inside eng:no_grad") end
  if cache.k.shape[1] ~= k.shape[1] then fail("the cache is for a batch of %d, x has %d", cache.k.shape[1], k.shape[1]) end
  if cache.length + n > cache.capacity then
    fail("the cache holds %d positions: %d are in use and %d more do not fit", cache.capacity, cache.length, n)
  end
  cache.k:narrow(3, cache.length + 1, n):copy(k)
  cache.v:narrow(3, cache.length + 1, n):copy(v)
  cache.length = cache.length + n
  return cache.k:narrow(3, 1, cache.length), cache.v:narrow(3, 1, cache.length)
end

--- Rows a .. b of the weight and bias applied to x (B, L, width), as heads: (parts, B, heads, L, head width).
function Attention:project(x, first, parts)
  local w, b = self.weight, self.bias
  if parts < 3 then
    w = w:narrow(1, first * self.width + 1, parts * self.width)
    b = b and b:narrow(1, first * self.width + 1, parts * self.width)
  end
  local shape = x.shape
  return x:linear(w, b):view({ shape[1], shape[2], parts, self.heads, self.width / self.heads }):permute { 3, 1, 4, 2, 5 }
end

--- What may be seen: the mask, the keys that are no padding, and for new rows behind cached ones the past; and whether sdpa's causal does the rest.
local function masks(eng, options, rows, columns)
  local mask, causal = options.mask, options.causal or false
  local offset = columns - rows
  if causal and options.cache and offset > 0 then
    causal = false
    if rows > 1 then
      local past = eng:arange(columns, nil, nil, "i64"):le(eng:arange(offset, columns, nil, "i64"):view { rows, 1 })
      mask = mask and (mask.dtype:sub(1, 1) == "f" and mask:masked_fill(past:logical_not(), -math.huge) or mask:logical_and(past)) or past
    end
  end
  if options.keys then
    local keys = options.keys:view { options.keys.shape[1], 1, 1, columns }
    if not mask then
      mask = keys:ne(0)
    elseif mask.dtype:sub(1, 1) == "f" then
      mask = mask:masked_fill(keys:logical_not(), -math.huge)
    else
      mask = mask:logical_and(keys)
    end
  end
  return mask, causal
end

--- x (B, L, width) to (B, L, width). Options: causal: rows see no later ones; mask: as sdpa's, bool (true is seen) or float (added), broadcast to
--- (B, heads, L, S); keys (B, S): true where there is a token, false where there is padding; context (B, S, width): where keys and values come from
--- instead of x; cache: of self:cache, which x's keys and values are added to and which are all seen then.
function Attention:forward(x, options)
  options = check.options("MultiheadAttention", options,
    { causal = false, mask = check.none, keys = check.none, context = check.none, cache = check.none })
  local shape = x.shape
  if #shape ~= 3 or shape[3] ~= self.width then
    fail("x is (B, L, %d), got shape %s", self.width, check.shape_text(shape))
  end
  local q, k, v
  if options.context then
    q = self:project(x, 0, 1)[1]
    local both = self:project(options.context, 1, 2)
    k, v = both[1], both[2]
  else
    local all = self:project(x, 0, 3)
    q, k, v = all[1], all[2], all[3]
  end
  local cache = options.cache
  if self.rotary then
    local offset = cache and cache.length or 0
    q, k = rotary(q, offset, self.rotary), rotary(k, offset, self.rotary)
  end
  if cache then k, v = extend(cache, k, v) end
  local rows, columns = q.shape[3], k.shape[3]
  if options.keys then
    local given = options.keys.shape
    if #given ~= 2 or given[1] ~= shape[1] or given[2] ~= columns then
      fail("keys is (%d, %d), got shape %s", shape[1], columns, check.shape_text(given))
    end
  end
  local mask, causal = masks(x.engine, options, rows, columns)
  local y = q:sdpa(k, v, mask, causal)
  return self.out(y:transpose(2, 3):reshape { shape[1], rows, self.width })
end

function Attention:describe() return ("%d, %d%s"):format(self.width, self.heads, self.rotary and ", rotary" or "") end

return { MultiheadAttention = Attention, rotary = rotary }
