-- SPDX-License-Identifier: MIT
-- loss: losses as functions of a prediction and a target, with PyTorch's meanings. x and target have the same shape (but for classes in
-- cross_entropy): broadcasting here would hide mistakes. Option reduction: "mean" (default), "sum" or "none".

local core = require "perilune.core"
local caller = require "perilune.caller"
local check = require "perilune.nn.check"

local T = core.tensor
local fail = caller.fail
local loss = {}

local REDUCTIONS = { "mean", "sum", "none" }

--- Checks the two tensors and the options.
local function prepare(what, x, target, options, defaults)
  for i, t in ipairs { x or false, target or false } do
    if not T.is_tensor(t) then fail("%s: argument %d is a tensor, got %s", what, i, t and type(t) or "nil") end
  end
  local a, b = check.shape_text(x.shape), check.shape_text(target.shape)
  if a ~= b then fail("%s: x has shape %s and the target %s; they must be the same", what, a, b) end
  defaults.reduction = "mean"
  options = check.options(what, options, defaults)
  check.word(what, "reduction", options.reduction, defaults.batchmean ~= nil and { "mean", "sum", "none", "batchmean" } or REDUCTIONS)
  return options
end

local function reduce(each, reduction)
  if reduction == "none" then return each end
  if reduction == "sum" then return each:sum() end
  return each:mean()
end

--- -log softmax(x)[target]: x (N, C, ..), target classes 1 .. C (N, ..) or probabilities of x's shape. Options: weight (C), ignore_index, label_smoothing (0).
function loss.cross_entropy(x, target, options)
  options = check.options("cross_entropy", options,
    { weight = check.none, ignore_index = check.none, label_smoothing = 0, reduction = "mean" })
  check.word("cross_entropy", "reduction", options.reduction, REDUCTIONS)
  check.number("cross_entropy", "label_smoothing", options.label_smoothing, 0, 1)
  for i, t in ipairs { x or false, target or false } do
    if not T.is_tensor(t) then fail("cross_entropy: argument %d is a tensor, got %s", i, t and type(t) or "nil") end
  end
  return x:cross_entropy(target, options.weight, options.ignore_index, options.reduction, options.label_smoothing)
end

--- (x - target)^2
function loss.mse(x, target, options)
  options = prepare("mse", x, target, options, {})
  return reduce((x - target):square(), options.reduction)
end

--- |x - target|
function loss.l1(x, target, options)
  options = prepare("l1", x, target, options, {})
  return reduce((x - target):abs(), options.reduction)
end

--- Huber 1964: d^2 / 2 where |d| <= delta (1), else delta (|d| - delta / 2).
function loss.huber(x, target, options)
  options = prepare("huber", x, target, options, { delta = 1 })
  local delta = check.number("huber", "delta", options.delta, 1e-30, math.huge)
  local d = (x - target):abs()
  local inner = d:clamp(nil, delta) -- d^2 / 2 below delta, and the line above it: inner (d - inner / 2)
  return reduce(inner * (d - inner * 0.5), options.reduction)
end

--- Binary cross-entropy of sigmoid(x): -target log s - (1 - target) log(1 - s), accurate for large |x|. Options: pos_weight: a number or tensor that
--- multiplies the first term.
function loss.bce_with_logits(x, target, options)
  options = prepare("bce_with_logits", x, target, options, { pos_weight = check.none })
  local positive = target * (-x):softplus()
  if options.pos_weight then positive = positive * options.pos_weight end
  return reduce(positive + (1 - target) * x:softplus(), options.reduction)
end

--- Kullback-Leibler divergence of log-probabilities x from probabilities: target (log target - x), 0 where target is 0. Options: log_target (false):
--- the target holds logs too; reduction "batchmean" as well: the sum over the first dim's size.
function loss.kl_div(x, target, options)
  options = prepare("kl_div", x, target, options, { log_target = false, batchmean = check.none })
  local each
  if options.log_target then
    each = target:exp() * (target - x)
  else
    local logs = x.engine:where(target:gt(0), target, 1):log()
    each = target * (logs - x)
  end
  if options.reduction == "batchmean" then return each:sum() / x.shape[1] end
  return reduce(each, options.reduction)
end

return loss
