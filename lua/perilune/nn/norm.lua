-- SPDX-License-Identifier: MIT
-- norm: layers that normalize: LayerNorm, RMSNorm, GroupNorm. Weights start as 1, biases as 0.

local check = require "perilune.nn.check"
local init = require "perilune.nn.initialize"
local module = require "perilune.nn.module"

local function affine(self, eng, shape, options, bias)
  if not options.affine then return end
  self.weight = init.ones(eng:param(shape, nil, { dtype = options.dtype }))
  if bias then self.bias = eng:param(shape, nil, { dtype = options.dtype }) end
end

local function shape_of(what, shape)
  local list = type(shape) == "table" and shape or { shape }
  if #list == 0 then list = { false } end
  for i, size in ipairs(list) do check.count(what, "size " .. i, size) end
  return list
end

--- (x - mean) / sqrt(var + eps) over the last dims, of the sizes given. Options: eps (1e-5), affine (true), bias (true), dtype.
---@class perilune.LayerNorm: perilune.Module
---@overload fun(eng, shape: integer|integer[], options?: table): perilune.LayerNorm
local LayerNorm = module.class "LayerNorm"

function LayerNorm:init(eng, shape, options)
  check.engine("LayerNorm", eng)
  options = check.options("LayerNorm", options, { eps = 1e-5, affine = true, bias = true, dtype = "f32" })
  self.shape, self.eps = shape_of("LayerNorm", shape), options.eps
  affine(self, eng, self.shape, options, options.bias)
end

function LayerNorm:forward(x) return x:layer_norm(self.shape, self.weight, self.bias, self.eps) end

function LayerNorm:describe() return table.concat(self.shape, ", ") end

--- x / sqrt(mean of x^2 + eps) over the last dims. Options: eps (1e-5), affine (true), dtype.
---@class perilune.RMSNorm: perilune.Module
---@overload fun(eng, shape: integer|integer[], options?: table): perilune.RMSNorm
local RMSNorm = module.class "RMSNorm"

function RMSNorm:init(eng, shape, options)
  check.engine("RMSNorm", eng)
  options = check.options("RMSNorm", options, { eps = 1e-5, affine = true, dtype = "f32" })
  self.shape, self.eps = shape_of("RMSNorm", shape), options.eps
  affine(self, eng, self.shape, options, false)
end

function RMSNorm:forward(x) return x:rms_norm(self.shape, self.weight, self.eps) end

RMSNorm.describe = LayerNorm.describe

--- LayerNorm of each of `groups` groups of channels of x (N, channels, ..), weight and bias per channel. Options: eps (1e-5), affine (true), dtype.
---@class perilune.GroupNorm: perilune.Module
---@overload fun(eng, groups: integer, channels: integer, options?: table): perilune.GroupNorm
local GroupNorm = module.class "GroupNorm"

function GroupNorm:init(eng, groups, channels, options)
  check.engine("GroupNorm", eng)
  options = check.options("GroupNorm", options, { eps = 1e-5, affine = true, dtype = "f32" })
  self.groups, self.channels = check.count("GroupNorm", "groups", groups), check.count("GroupNorm", "channels", channels)
  if channels % groups ~= 0 then
    require("perilune.caller").fail("GroupNorm: %d channels do not divide into %d groups", channels, groups)
  end
  self.eps = options.eps
  affine(self, eng, { channels }, options, true)
end

function GroupNorm:forward(x) return x:group_norm(self.groups, self.weight, self.bias, self.eps) end

function GroupNorm:describe() return ("%d, %d"):format(self.groups, self.channels) end

return { LayerNorm = LayerNorm, RMSNorm = RMSNorm, GroupNorm = GroupNorm }
