-- SPDX-License-Identifier: MIT
-- native: what the functions written in C do, in the form of declarations. Nothing here is run; the reference reads the comments, and a spec checks that
-- each C function has its lines here and that no others are here.

---@class perilune.Library
local perilune = {}

--- Whether a value is a tensor, alive or not.
---@param value any
---@return boolean
function perilune.is_tensor(value) end

---@class perilune.Engine
local eng = {}

--- Ends the epoch: all tensors of the arena that are not pinned are gone, and their memory is free. Inside a scope only that scope's.
function eng:reset() end

--- Calls fn; what was made before it survives its end, what was made in it is gone unless pinned or copied to persistent. Gives what fn returns; an
--- error inside ends the scope, too.
---@param fn fun(): ...
---@return any ...
function eng:scope(fn) end

--- Keeps a tensor's block through resets, unpoisoned and at its place; counted. Of a view, its base's block.
---@param t perilune.Tensor
---@return perilune.Tensor t
function eng:pin(t) end

--- Takes back one pin; after the last the block is valid until the next reset.
---@param t perilune.Tensor
---@return perilune.Tensor t
function eng:unpin(t) end

--- Ends a tensor's storage and all its views. A second free does nothing; of a pinned, saved or captured block it is an error.
---@param t perilune.Tensor
function eng:free(t) end

--- Waits for all that is queued, and raises errors that only data could tell.
function eng:sync() end

--- Ends the engine and all its tensors. A second close does nothing.
function eng:close() end

--- Whether it was closed.
---@return boolean
function eng:closed() end

--- Counts and sizes: capacity, offset, high_water, epoch, resets, allocs, reuses, misses, stale_frees, pins, pinned_bytes, pinned_high_water,
--- overflow_bytes, largest_alloc, fallbacks, first_overflow; on CUDA devices products: which library computes matrix products, and why no other.
---@return table
function eng:stats() end

--- Records the Lua line that made each tensor from now on, or stops it; without an argument, whether it does.
---@param on? boolean
---@return boolean
function eng:places(on) end

--- The random numbers' state, { seed, draw }; with a state, sets it.
---@param state? { [1]: integer, [2]: integer }
---@return { [1]: integer, [2]: integer }
function eng:rng(state) end

--- Calls fn without recording gradients; gives what it returns.
---@param fn fun(...): ...
---@return any ...
function eng:no_grad(fn, ...) end

--- Whether ops are recorded where an operand requires grad.
---@return boolean
function eng:recording() end

--- Runs fn once, records its ops and executes none: the step that replays them, and what fn returned. Lua's numbers, shapes and control flow are frozen;
--- what varies from step to step lies in tensors. Reads, uploads, resets and scopes are errors inside.
---@param fn fun(): ...
---@return perilune.Step step, any ...
function eng:capture(fn) end

--- What it was opened as: "cpu", "stress", "cuda" or "cuda-emu".
---@type string
eng.kind = nil

--- The raw arena, for tests and tools.
---@type perilune.Arena
eng.arena = nil

---@class perilune.Arena
local arena = {}

--- What lies where: { state, offset or overflow, bytes, asked, pins, captures, depth, place } for each block.
---@return table[]
function arena:blocks() end

--- What is inconsistent in the arena's books, "" if nothing is.
---@return string
function arena:check() end

--- A raw block as a tensor of u8, on engines made with test = true.
---@param bytes integer
---@return perilune.Tensor
function arena:alloc(bytes) end

---@class perilune.Step
local step = {}

--- Runs the step n times (once), without Lua.
---@param n? integer
function step:replay(n) end

--- Ends the step. What was made in it lives on as results do; a second release does nothing.
function step:release() end

--- Calls of a step, pieces that they run in, storages and bytes that it holds, draws, replays so far.
---@return table
function step:stats() end

--- Neither released nor its engine closed.
---@return boolean
function step:is_valid() end

---@class perilune.Tensor
local x = {}

--- One element as a number.
---@param ... integer one index for each dimension, from 1, negative from the end
---@return number
function x:get(...) end

--- Writes one element: indices, then the value.
---@param ... number
---@return perilune.Tensor x
function x:set(...) end

--- The number in a tensor of one element. { int64 = true } gives LuaJIT's int64.
---@param options? { int64: boolean }
---@return number
function x:item(options) end

--- All elements as nested tables; of a tensor without dimensions a number. { int64 = true } gives LuaJIT's int64.
---@param options? { int64: boolean }
---@return table|number
function x:totable(options) end

--- The elements row-major as a string in the machine's byte order.
---@return string
function x:bytes() end

--- Writes all elements from such a string.
---@param bytes string
---@return perilune.Tensor x
function x:set_bytes(bytes) end

--- Number of elements.
---@return integer
function x:numel() end

--- Distance of neighbours in each dimension, in elements.
---@return integer[]
function x:strides() end

--- Whether the elements lie row-major without gaps.
---@return boolean
function x:is_contiguous() end

--- Whether two tensors are views of one storage.
---@param other perilune.Tensor
---@return boolean
function x:same_storage(other) end

--- How often the storage has been written.
---@return integer
function x:version() end

--- Where the first element lies, for tools; a number that nothing should be read from.
---@return integer
function x:address() end

--- Whether the tensor may be used: neither freed nor ended by a reset, a scope or its engine.
---@return boolean
function x:is_valid() end

--- The Lua line that made it, where engines record places.
---@return string?
function x:place() end

--- Whether gradients are recorded for it; with a flag, switches that for a tensor that is no result.
---@param flag? boolean
---@return boolean|perilune.Tensor
function x:requires_grad(flag) end

--- Runs the recorded graph backward from here and adds up in the gradients of what requires grad. A tensor of more than one element needs its own gradient
--- dy. Options: retain (the graph may be used again), create_graph (the gradients have graphs themselves).
---@param dy? perilune.Tensor
---@param options? { retain?: boolean, create_graph?: boolean }
function x:backward(dy, options) end

--- The same memory, without a graph.
---@return perilune.Tensor
function x:detach() end

--- Sizes of the dimensions.
---@type integer[]
x.shape = nil

--- "f32", "f64", "i32", "i64", "u8" or "bool".
---@type string
x.dtype = nil

--- The engine that it belongs to.
---@type perilune.Engine
x.engine = nil

--- Where it lives: "arena", "persistent" or "owned".
---@type string
x.home = nil

--- Number of dimensions.
---@type integer
x.ndim = nil

--- The gradient of a tensor that requires grad and is no result; assigning copies into it, nil writes zeros.
---@type perilune.Tensor?
x.grad = nil
