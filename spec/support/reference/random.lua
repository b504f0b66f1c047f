-- SPDX-License-Identifier: MIT
-- Reference of the random numbers: Philox4x32-10, from Salmon, Moraes, Dror and Shaw, "Parallel
-- random numbers: as easy as 1, 2, 3" (2011), and dropout on top of it.
-- All words are numbers in 0 .. 2^32 - 1.

local ffi = require "ffi"
local array = require "spec.support.reference.array"

local random = { ops = {} }

local WORD = 2 ^ 32
local uint64 = ffi.typeof "uint64_t"

local function xor(a, b, c)
  return bit.bxor(a, b, c) % WORD
end

local function high_low(a, b)
  local product = ffi.cast(uint64, a) * ffi.cast(uint64, b)
  return tonumber(product / 0x100000000ULL), tonumber(product % 0x100000000ULL)
end

-- Four random words for a key of two words and a counter of four.
function random.philox(key_lo, key_hi, c0, c1, c2, c3)
  for _ = 1, 10 do
    local high0, low0 = high_low(0xD2511F53, c0)
    local high1, low1 = high_low(0xCD9E8D57, c2)
    c0, c1, c2, c3 = xor(high1, c1, key_lo), low1, xor(high0, c3, key_hi), low0
    key_lo, key_hi = (key_lo + 0x9E3779B9) % WORD, (key_hi + 0xBB67AE85) % WORD
  end
  return c0, c1, c2, c3
end

-- The word of element e (from 0) in the engine's draw: the key is the seed; the counter is the
-- group of four elements, then the draw, low words first; the element picks one of the four.
function random.word(seed, draw, e)
  local group = math.floor(e / 4)
  local words = { random.philox(seed % WORD, math.floor(seed / WORD), group % WORD,
    math.floor(group / WORD), draw % WORD, math.floor(draw / WORD)) }
  return words[e % 4 + 1]
end

-- In [0, 1): the upper 24 bits, all of which an f32 holds.
function random.uniform(word)
  return math.floor(word / 256) / 2 ^ 24
end

-- Elements whose uniform number is below p become 0, the others grow by 1 / (1 - p).
function random.ops.dropout(x, p, draw)
  local out = array.new(x.shape, x.dtype)
  for i = 1, array.numel(x.shape) do
    local drop = random.uniform(random.word(draw.seed, draw.draw, i - 1)) < p
    out[i] = x[i] * (drop and 0 or 1 / (1 - p))
  end
  return out
end

return random
