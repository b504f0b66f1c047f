-- SPDX-License-Identifier: MIT
-- faults: the catalogue of planted faults. Each entry names a fault, the harness and schedule that must catch it, and the text that its
-- report must contain, so that it is caught for what it is and where it is.
--
-- `point` entries switch a fault point of the core (src/fault.def) and run sound ops. `plant` entries are ops written in Lua,
-- plant(true) wrongly and plant(false) soundly; the sound twin must pass where the faulty one must not.

local perilune = require "perilune"

local faults = {}

local list = {}

local function plant(entry)
  entry.kind = "op in Lua"
  list[#list + 1] = entry
end

local function point(entry)
  entry.kind = "core"
  entry.point = entry.name
  list[#list + 1] = entry
end

-- Lifetime, in Lua ---------------------------------------------------------------------------------

local function cube(forward, backward)
  return perilune.op { name = "cube", forward = forward, backward = backward }
end

plant { name = "cached_in_field", what = "an intermediate is kept in a field instead of saved", harness = "parity",
  schedule = "reset-between-fwd-bwd", expect = "stale", plant = function(faulty)
    local layer = {}
    return cube(function(ctx, x)
      local x2 = x * x
      layer.x2 = x2
      if not faulty then ctx:save(x2) end
      return x2 * x
    end, function(ctx, g) return g * (faulty and layer.x2 or ctx:saved()) * 3 end)
  end }

plant { name = "cached_in_field_unchecked", what = "the same where stale reads are let through: poison must show it", harness = "parity",
  schedule = "reset-between-fwd-bwd", engine = { stale = "allow" }, expect = "gradient of x: element 1 is nan", plant = function(faulty)
    local layer = {}
    return cube(function(ctx, x)
      layer.x2 = x * x
      if not faulty then ctx:save(layer.x2) end
      return layer.x2 * x
    end, function(ctx, g) return g * (faulty and layer.x2 or ctx:saved()) * 3 end)
  end }

plant { name = "cached_in_upvalue", what = "an intermediate is kept in a closure", harness = "parity", schedule = "reset-per-sample",
  expect = "stale", plant = function(faulty)
    local kept
    return cube(function(ctx, x)
      local x2 = x * x
      kept = kept or x2
      if not faulty then kept = x2 end
      ctx:save(x2)
      return x2 * x
    end, function(ctx, g) return g * (faulty and kept or ctx:saved()) * 3 end)
  end }

plant { name = "cached_in_nested_node", what = "the node is sound, one that it calls inside is not", harness = "parity",
  schedule = "reset-between-fwd-bwd", expect = "stale", plant = function(faulty)
    local inner_state = {}
    local inner = perilune.op { name = "inner",
      forward = function(ctx, x)
        inner_state.t = x:tanh()
        if not faulty then ctx:save(inner_state.t) end
        return inner_state.t
      end,
      backward = function(ctx, g)
        local t = faulty and inner_state.t or ctx:saved()
        return g * (1 - t * t)
      end }
    return function(x) return inner(x * 2) * 3 end
  end }

plant { name = "wrapper_without_saves", what = "a wrapper calls an op's forward and forwards its result but not what it saved",
  harness = "parity", schedule = "reset-between-fwd-bwd", expect = "stale", plant = function(faulty)
    local function forward(ctx, x)
      local s = x:sigmoid()
      ctx:save(s)
      return s
    end
    return perilune.op { name = "wrapped",
      forward = function(ctx, x)
        if not faulty then return forward(ctx, x) end
        ctx.own = { save = function(self, t) self.t = t end }
        return forward(ctx.own, x)
      end,
      backward = function(ctx, g)
        local s = faulty and ctx.own.t or ctx:saved()
        return g * s * (1 - s)
      end }
  end }

plant { name = "stale_cache_preferred", what = "what was computed for an earlier input is used instead of the live one", harness = "parity",
  schedule = "no-reset", expect = "sample 2 result 1: element 1", plant = function(faulty)
    local seen
    return perilune.op { name = "double",
      forward = function(_, x)
        if not faulty then return x * 2 end
        seen = seen or x:detach()
        return seen * 2
      end,
      backward = function(_, g) return g * 2 end }
  end }

plant { name = "recompute_from_field", what = "a checkpoint keeps its inputs in a field", harness = "parity", schedule = "reset-between-fwd-bwd",
  expect = "stale", plant = function(faulty)
    local kept = {}
    return perilune.op { name = "recompute",
      forward = function(ctx, x)
        kept.x = x
        if not faulty then ctx:save(x) end
        return x:tanh()
      end,
      backward = function(ctx, g)
        local t = (faulty and kept.x or ctx:saved()):tanh()
        return g * (1 - t * t)
      end }
  end }

plant { name = "freed_within_the_pass", what = "memory is used again within the pass, without any reset", harness = "parity",
  schedule = "eager-free", expect = "freed", plant = function(faulty)
    local layer = {}
    return cube(function(ctx, x)
      layer.x2 = x * x
      if not faulty then ctx:save(layer.x2) end
      return (x * x) * x * (layer.x2 + 1 - layer.x2)
    end, function(ctx, g) return g * (faulty and layer.x2 or ctx:saved()) * 3 end)
  end }

-- Numbers, in Lua ------------------------------------------------------------------------------------

plant { name = "wrong_axis", what = "a bias's gradient is summed over the wrong dimension of something square", harness = "gradcheck",
  expect = "gradient of w", second = { 4 }, plant = function(faulty)
    return perilune.op { name = "add_bias",
      forward = function(_, x, w) return x + w end,
      backward = function(_, g) return g, g:sum(faulty and 2 or 1) end }
  end }

plant { name = "missing_transpose", what = "a product's gradient lacks a transpose, shapes agree", harness = "gradcheck", expect = "gradient of x",
  second = { 4, 4 }, plant = function(faulty)
    return perilune.op { name = "product",
      forward = function(ctx, x, w)
        ctx:save(x, w)
        return x:matmul(w)
      end,
      backward = function(ctx, g)
        local x, w = ctx:saved()
        return g:matmul(faulty and w or w:t()), x:t():matmul(g)
      end }
  end }

plant { name = "missing_term", what = "a norm's gradient lacks the term through the mean", harness = "gradcheck", expect = "gradient of x",
  plant = function(faulty)
    return perilune.op { name = "center",
      forward = function(_, x) return x - x:mean(-1, true) end,
      backward = function(_, g) return faulty and g or g - g:mean(-1, true) end }
  end }

plant { name = "poison_swallowed", what = "an op gives a number for NaN", harness = "poison", expect = "poison is swallowed", plant = function(faulty)
    return function(x) return faulty and perilune.where(x:gt(0), x, 0) or x:relu() end
  end }

plant { name = "partly_unwritten", what = "an op leaves part of its result as it was handed out", harness = "parity", schedule = "no-reset",
  expect = "sample 1 result 1: element 13 is nan", plant = function(faulty)
    return perilune.op { name = "rows",
      forward = function(_, x)
        local y = x.engine:empty(x.shape, { dtype = x.dtype })
        local n = faulty and 3 or 4
        y:narrow(1, 1, n):copy(x:narrow(1, 1, n))
        return y
      end,
      backward = function(_, g) return g end }
  end }

-- The core ---------------------------------------------------------------------------------------------

point { name = "unpin_early", harness = "parity", schedule = "reset-between-fwd-bwd", ops = { "exp", "mul" }, expect = "gradient of" }
point { name = "leak_pin", harness = "parity", schedule = "no-reset", ops = { "exp" }, expect = "pins are left" }
point { name = "gradient_unpinned", harness = "parity", schedule = "reset-mid-backward", ops = { "exp" }, expect = "element 1 is nan" }
point { name = "late_free", harness = "parity", ops = { "composite.adaptive_layer_norm", "composite.group_norm" }, expect = "result 1: element 1 is",
  otherwise = "was freed", -- whose memory or header it is that the free takes depends on how large the engine's blocks are
  schedule = { name = "late-finalizers", engine = { arena = "4KiB" }, run = function(s)
    for i = 1, s.n do
      collectgarbage "stop"
      s:forward(i)
      s:reset()
      s:on("op", function() s:collect() end)
      s:backward(i)
      collectgarbage "restart"
    end
  end } }
point { name = "issued_twice", harness = "parity", schedule = "no-reset", ops = { "add" }, expect = "result 1" }
point { name = "pinned_poisoned", harness = "parity", schedule = "reset-between-fwd-bwd", ops = { "exp" }, expect = "gradient of x: element 1 is nan" }
point { name = "overflow_kept", harness = "parity", schedule = "overflow", ops = { "mul" }, expect = "overflow blocks are left" }
point { name = "scratch_early", harness = "parity", schedule = "no-reset", ops = { "cross_entropy" }, samples = 20,
  expect = ":i32<5" }
point { name = "destination_ignored", harness = "destinations", ops = { "add", "softmax" }, expect = "into fresh" }
point { name = "overlap_ignored", harness = "destinations", ops = { "matmul", "softmax", "add", "cumsum", "repeat", "mul" }, expect = "overlaps operand" }
point { name = "gradient_rehomed", harness = "parity", schedule = "no-reset", ops = { "exp" }, expect = "input x was re-homed" }
point { name = "gradient_kept", harness = "parity", schedule = "no-reset", ops = { "exp" }, expect = "input x was re-homed" }
point { name = "sum_dropped", harness = "parity", schedule = "reset-per-sample", ops = { "exp" }, expect = "gradient of x: element 1 is 0" }
point { name = "double_count", harness = "parity", schedule = "reset-per-sample", ops = { "exp" }, expect = "gradient of x: element 1" }
point { name = "seed_is_value", harness = "gradcheck", ops = { "exp" }, expect = "gradient of x" }
point { name = "mask_redrawn", harness = "parity", schedule = "no-reset", ops = { "dropout" }, expect = "gradient of x" }
point { name = "no_wait", harness = "parity", schedule = "late-host-reads", ops = { "add" }, expect = "read late", device = "host" }
point { name = "reordered", harness = "parity", schedule = "no-reset", ops = { "composite.layer_norm" }, expect = "element 1 is nan", device = "host" }
point { name = "fill_at_once", harness = "parity", ops = { "composite.fixed_dropout" }, expect = "is nan", device = "host",
  schedule = { name = "reset-behind-a-queued-op", run = function(s)
    s:on("op", function() s.engine:sync() end)
    for i = 1, s.n do
      s:forward(i)
      s:reset()
      s:backward(i)
    end
  end } }
point { name = "tail_unwritten", harness = "parity", schedule = "no-reset", ops = { "exp", "matmul", "sum" }, expect = "is nan", device = "host" }
point { name = "past_the_end", harness = "parity", schedule = "no-reset", ops = { "exp" }, engine = { poison = { redzone = 64 } },
  expect = "red zone", device = "host" }
point { name = "capture_unheld", harness = "parity", schedule = "captured", ops = { "exp" }, expect = "result 1: element 1 is nan" }
point { name = "draw_frozen", harness = "parity", schedule = "captured", ops = { "dropout" }, expect = "result 1" }
point { name = "square_transpose", harness = "oracle", ops = { "t", "transpose" }, expect = "result 1" }

faults.list = list

--- The inputs of a planted op: x (4,4), and a second one where the entry says so.
function faults.inputs(entry)
  return function(set)
    local function array(shape, phase)
      local n, out = 1, { shape = shape, dtype = entry.harness == "gradcheck" and "f64" or "f32" }
      for _, size in ipairs(shape) do n = n * size end
      for i = 1, n do out[i] = (math.floor(64 * math.sin(phase + set + 0.9 * i)) + 0.5) / 64 end
      return out
    end
    local inputs = { { array = array({ 4, 4 }, 0.3), grad = true, slot = "x" } }
    if entry.second then inputs[2] = { array = array(entry.second, 1.1), grad = true, slot = "w" } end
    return inputs
  end
end

return faults
