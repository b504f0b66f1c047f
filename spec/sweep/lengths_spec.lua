-- SPDX-License-Identifier: MIT
-- Every length from 0 to 130 along the dimensions that kernels cut into vectors, tiles and tails, on every engine: elementwise ops as parts of one
-- long result, starting anywhere; the rest against the reference. A row of the op table that has no lengths here fails by name.

local samples = require "perilune.samples"
local engines = require "spec.support.engines"
local sweep = require "spec.support.sweep"

local LONGEST = 130

local REDUCTION = "(N,3) dims=1 | (2,N) dims=2 | (N)"
local EXTREME = "(N,3) dim=1 | (2,N) dim=2 | (N)"
local ALONG = "(N,3) dim=1 | (2,N) dim=2"
local ALONG2 = "(N,3) (N,3) dim=1 | (2,N) (2,N) dim=2"

-- Means and deviations that are not x's own leave little of large terms, so that these stay small.
local SMALL = { lo = -1, hi = 1, kinks = {}, tie = false }

-- N is the length; `from` where 0 is no length, `powers` where only those of two are.
local templates = {
  sum = { REDUCTION }, mean = { REDUCTION }, prod = { REDUCTION }, any = { REDUCTION }, all = { REDUCTION }, var = { REDUCTION },
  logsumexp = { REDUCTION },
  norm = { REDUCTION .. " | (2,N) p=1 dims=2 | (2,N) p=3 dims=2 | (N,3) p=0 dims=1" },
  max = { EXTREME, from = 1 }, min = { EXTREME, from = 1 }, argmax = { EXTREME, from = 1 }, argmin = { EXTREME, from = 1 },
  cumsum = { ALONG }, cumsum_reverse = { ALONG }, softmax = { ALONG }, log_softmax = { ALONG },
  softmax_backward = { ALONG2 }, log_softmax_backward = { ALONG2 },
  cross_entropy = { "(N,3) (N):i64<3 reduction=none | (N,3) (N):i64<3 reduction=sum | (2,N) (2):i64<N | (2,N) (2,N) | (2,3,N) (2,N):i64<3", from = 1 },
  cross_entropy_backward = { "() (N,3) (N):i64<3 | () (2,N) (2):i64<N | () (2,3,N) (2,N):i64<3", from = 1 },
  layer_norm = { "(2,N) normalized_shape=N (N) (N) | (N,3) normalized_shape=3 (3) (3)" },
  layer_norm_forward = { "(2,N) normalized_shape=N (N) (N) | (N,3) normalized_shape=3", from = 1 },
  layer_norm_backward = { "(2,N) (2,N) (2):f64 (2):f64 (N) normalized_shape=N | (N,3) (N,3) (N):f64 (N):f64 (3) normalized_shape=3", from = 1, domain = SMALL },
  rms_norm = { "(2,N) normalized_shape=N (N) | (N,3) normalized_shape=3 (3)" },
  rms_norm_forward = { "(2,N) normalized_shape=N (N) | (N,3) normalized_shape=3", from = 1 },
  rms_norm_backward = { "(2,N) (2,N) (2):f64 (N) normalized_shape=N | (N,3) (N,3) (N):f64 (3) normalized_shape=3", from = 1, domain = SMALL },
  group_norm = { "(2,2,N) groups=1 (2) (2) | (2,2,N) groups=2 (2) (2) | (N,4) groups=2 (4) (4)", from = 1 },
  group_norm_forward = { "(2,2,N) groups=1 (2) (2) | (N,4) groups=2", from = 1 },
  group_norm_backward = { "(2,2,N) (2,2,N) (2,2):f64 (2,2):f64 (2) groups=2 | (N,4) (N,4) (N,2):f64 (N,2):f64 (4) groups=2", from = 1, domain = SMALL },
  matmul = { "(N,3)(3,5) | (3,N)(N,5) | (3,5)(5,N) | (N)(N) | (N,2)(2) | (2)(2,N) | (2,N,2)(2,2,3)" },
  addmm = { "(5)(N,3)(3,5) beta=0.5 | (3,5)(3,N)(N,5) | (N)(3,5)(5,N) alpha=2" },
  linear = { "(N,3)(4,3)(4) | (2,N)(4,N)(4) | (2,3)(N,3)(N)" },
  hadamard_transform = { "(3,N)", powers = true },
  gather = { "(3,N) (2,N):i64<3 dim=1 | (3,2) (N,2):i64<3 dim=1 | (2,3) (2,N):i64<3 dim=2" },
  gather_backward = { "(2,N) (2,N):i64<3 dim=1 shape={3,N} | (N,2) (N,2):i64<3 dim=1 shape={3,2}" },
  index_select = { "(3,N) (2):i64<3 dim=1 | (3,2) (N):i64<3 dim=1 | (2,3) (N):i64<3 dim=2" },
  index_select_backward = { "(2,N) (2):i64<3 dim=1 size=3 | (N,2) (N):i64<3 dim=1 size=3" },
  scatter_add = { "(3,N) (2,N):i64<3 (2,N) dim=1 | (3,2) (N,2):i64<3 (N,2) dim=1 | (N) (3):i64<N (3) dim=1", from = 1 },
  embedding = { "(N):i64<3 (3,4) | (2):i64<3 (3,N)" },
  embedding_backward = { "(N,4) (N):i64<3 rows=3 | (2,N) (2):i64<3 rows=3" },
  one_hot = { "(N):i64<3 classes=3 | (2):i64<N classes=N", from = 1 },
  concat = { "[(N) (3)] | [(2,3) (2,N)] dim=2 | [(N,2) (N,1)] dim=2" },
  cat = { "[(N) (3)] | [(2,3) (2,N)] dim=2" },
  stack = { "[(N) (N)] dim=2 | [(2,N) (2,N)]" },
  flip = { "(N) dim=1 | (N,3) dim=1 | (2,N) dim=2" },
  ["repeat"] = { "(N) counts=2 | (N,2) counts={1,2}" },
  tile = { "(N) counts=2 | (2,N) counts={2,1}" },
  repeat_interleave = { "(N) n=2 | (N,2) n=3 dim=1 | (2,N) n=2 dim=2" },
  tril = { "(N,5) | (3,N) k=1 | (N,N) k=-1" },
  triu = { "(N,5) | (3,N) k=1 | (N,N) k=-1" },
  gelu = { "(N) | (N) approximate=tanh" },
  sdpa = { "(N,3)(5,3)(5,2) | (4,3)(N,3)(N,2) causal=true | (N,3)(N,3)(N,2) causal=true | (4,N)(5,N)(5,2) | (4,3)(5,3)(5,N)" },
  sdpa_forward = { "(N,3)(5,3)(5,2) | (4,3)(N,3)(N,2)" },
  sdpa_backward = { "(N,2)(N,2)(N)=3 (N,3)(5,3)(5,2) | (4,2)(4,2)(4)=3 (4,3)(N,3)(N,2) causal=true | (4,2)(4,2)(4)=3 (4,N)(5,N)(5,2) | (4,N)(4,N)(4)=3 (4,3)(5,3)(5,N)" },
  dropout = { "(N) p=0.3" },
  copy = { "(N)(N) | (N)(1)" }, fill = { "(N) value=2" }, zero = { "(N)" },
  sgd = { "(N)(N) lr=0.1" }, adamw = { "(N)(N)(N)=0 (N)=0 step=2" },
  full = { "shape=N value=2.5 | shape={3,N} value=1" }, zeros = { "shape=N" }, ones = { "shape=N" }, eye = { "n=N | n=3 m=N" },
  arange = { "a=N | a=N dtype=i64" }, linspace = { "a=0 b=1 steps=N | a=0 b=1 steps=N dtype=f64" },
  rand = { "shape=N | shape=N dtype=f64" },
  slice_backward = { "(2,N) first={2} last={3} step={1} shape={4,N} | (N) first={1} last={-1} step={1} shape={N}" },
}

-- Neither elementwise nor here, and why.
local exempt = {
  empty = "writes nothing", randn = "random_spec has its lengths", randint = "random_spec has its lengths",
  dropout_backward = "random_spec has its lengths", where = "its samples are elementwise in all operands", masked_fill = "as where",
}

local elementwise = { where = "(N):bool (N)(N)", masked_fill = "(N)(N):bool value=2", clamp = "(N) lo=-1 hi=1", cast = "(N) dtype=f64 | (N) dtype=i32" }

--- Elementwise text of a row whose tensor slots all have the result's length; nil where it has other slots that need a value.
local function elementwise_text(row)
  if elementwise[row.name] then return elementwise[row.name] end
  if not row.pointwise or row.random or row.inplace or templates[row.name] then return nil end
  local text = ""
  for _, slot in ipairs(row.slots) do
    if slot.kind == "tensor" or slot.kind == "tensor or number" then
      text = text .. "(N)"
    elseif not slot.optional then
      return nil
    end
  end
  return text
end

local function lengths(template)
  local list, n = {}, template.from or 0
  if template.powers then n = 1 end
  while n <= LONGEST do
    list[#list + 1] = n
    n = template.powers and 2 * n or n + 1
  end
  return list
end

describe("lengths 0 to 130 of", function()
  local list

  setup(function() list = sweep.open() end)
  teardown(engines.close)

  local function each_part(row, sample, values, what)
    local want = sweep.reference(row, values)
    local first
    for _, e in ipairs(list) do
      for _, name in ipairs { "contiguous", "stepped" } do
        local args = samples.build(e.eng, row, sample, values, { layout = samples.layouts[name] })
        local whole = sweep.results(samples.call(e.eng, row, args))
        if want then sweep.check(row, values, whole, want, what .. " on " .. e.kind) end
        first = first or whole
        local size = #whole[1].bytes / LONGEST
        for n = 0, LONGEST do
          local start = (n * 7) % (LONGEST + 1 - n)
          local part = samples.map(row, args, function(t) return t end)
          for k = 1, values.n do
            if samples.is_array(values[k]) then part[k] = args[k]:narrow(1, start + 1, n) end
          end
          local got = samples.call(e.eng, row, part)[1]:bytes()
          if got ~= whole[1].bytes:sub(start * size + 1, (start + n) * size) then
            error(("%s on %s, %s: elements %d to %d alone have other bits"):format(what, e.kind, name, start + 1, start + n), 0)
          end
        end
      end
    end
    sweep.settle(list)
  end

  local function each_length(row, template)
    for _, n in ipairs(lengths(template)) do
      for _, sample in ipairs(samples.parse(row, (template[1]:gsub("%f[%w]N%f[%W]", n)))) do
        for i, dtype in ipairs(samples.dtypes(row, sample)) do
          if dtype == "f32" or n % 7 == i then
            local values = samples.values(row, sample, { dtype = dtype, domain = template.domain })
            local what = ("%s %s %s"):format(row.name, sample.text, dtype)
            local want, first = sweep.reference(row, values), {}
            for _, e in ipairs(list) do
              local got = sweep.run(e.eng, row, sample, values)
              if first[e.family] then
                sweep.same_bits(got, first[e.family], what .. " on " .. e.kind)
              elseif want then
                sweep.check(row, values, got, want, what .. " on " .. e.kind)
              end
              first[e.family] = first[e.family] or got
            end
          end
        end
      end
      sweep.settle(list)
    end
  end

  for _, row in ipairs(sweep.rows) do
    local text = elementwise_text(row)
    if text then
      it(row.name, function()
        for _, sample in ipairs(samples.parse(row, (text:gsub("N", LONGEST)))) do
          for _, dtype in ipairs(samples.dtypes(row, sample)) do
            each_part(row, sample, samples.values(row, sample, { dtype = dtype }), ("%s %s %s"):format(row.name, sample.text, dtype))
          end
        end
      end)
    elseif templates[row.name] then
      it(row.name, function() each_length(row, templates[row.name]) end)
    end
  end

  it("leave out no op", function()
    local missing = {}
    for _, row in ipairs(sweep.rows) do
      local derivative = row.internal and row.pointwise and row.name:match "_backward$"
      if not (elementwise_text(row) or templates[row.name] or exempt[row.name] or row.view or derivative) then missing[#missing + 1] = row.name end
    end
    assert.same({}, missing)
  end)
end)
