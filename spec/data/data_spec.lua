-- SPDX-License-Identifier: MIT
-- CSV, raw bytes, text, batches, and checkpoints that continue bit for bit.

local nn = require "perilune.nn"
local optim = require "perilune.optim"
local data = require "perilune.data"
local engines = require "spec.support.engines"

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return message
end

describe("data", function()
  local path

  before_each(function() path = os.tmpname() end)
  after_each(function()
    engines.close()
    os.remove(path)
  end)

  local function write(text)
    local f = assert(io.open(path, "wb"))
    f:write(text)
    f:close()
    return path
  end

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("reads CSV with and without names, quotes, other delimiters and missing values", function()
        local eng = open()
        local t, names = data.csv(eng, write "1,2.5,-3e2\n4,5,6\n")
        assert.same({ { 1, 2.5, -300 }, { 4, 5, 6 } }, t:totable())
        assert.equal("persistent", t.home)
        assert.is_nil(names)
        t, names = data.csv(eng, write "a,\"b, c\"\r\n\r\n 1 ,\"2\"\r\n3,4")
        assert.same({ { 1, 2 }, { 3, 4 } }, t:totable())
        assert.same({ "a", "b, c" }, names)
        assert.same({ "a", "b" }, select(2, data.csv(eng, write "a,b\r\n1,2\r\n")))
        t, names = data.csv(eng, write "1;2\n3;\n", { header = true, delimiter = ";", dtype = "i64", missing = -1 })
        assert.same({ { 3, -1 } }, t:totable())
        assert.equal("i64", t.dtype)
        assert.same({ "1", "2" }, names)
        t, names = data.csv(eng, write '"a ""b""" , "", """"\n1,2,"3"\n')
        assert.same({ 'a "b"', "", '"' }, names)
        assert.same({ { 1, 2, 3 } }, t:totable())
        assert.same({ { 0, 1, 2 } }, (data.csv(eng, write '\t"1"\t 2\n', { delimiter = "\t", missing = 0 })):totable())
        assert.same({ { 1, 2 } }, (data.csv(eng, write '"1" "2"\n', { delimiter = " " })):totable())
        assert.same({ 0, 2 }, (data.csv(eng, write "a,b\n")).shape)
        assert.equal(math.huge, (data.csv(eng, write "inf\nnan\n")):get(1, 1))
      end)

      it("says which field of a CSV is wrong", function()
        local eng = open()
        local function refused(text, message, options)
          local got = message_of(function() data.csv(eng, write(text), options) end)
          assert.matches(message, got, 1, true)
          assert.matches("^spec/data/data_spec.lua:%d+: csv: ", got)
        end
        refused("1,2\n3\n", path .. ":2: 1 fields, the first line has 2")
        refused("1,2\n3,x\n", path .. ":2: field 2 is \"x\", which is no number")
        refused("1,2\n3,\n", path .. ":2: field 2 is \"\", which is no number")
        refused("a,b\n", path .. ":1: field 1 is \"a\", which is no number", { header = false })
        refused("1,\"2\"x\n", path .. ":1: text behind a closing quote")
        refused("1,2\n3,4.5\n", "row 2, field 2: 4.5 is no i32", { dtype = "i32" })
        refused("256\n", "row 1, field 1: 256 is no u8", { dtype = "u8" })
        refused("1\n-9007199254740993\n", "row 2, field 1: -9007199254740992 is beyond 2^53 - 1, which is read exactly", { dtype = "i64" })
        refused("inf\n", "row 1, field 1: inf is no i64", { dtype = "i64" })
        refused("1,\"2\"\"\n", path .. ":1: text behind a closing quote")
        refused("\n\n", "holds no line")
        refused("1\n", "there is no dtype \"f16\"", { dtype = "f16" })
        refused("1\n", "the delimiter is one character, got \"\"", { delimiter = "" })
      end)

      it("reads raw bytes", function()
        local eng = open()
        write("\0\0\128\63\0\0\0\64\0\0\64\64\0\0\128\64")
        assert.same({ 1, 2, 3, 4 }, data.raw(eng, path):totable())
        assert.same({ { 1, 2 }, { 3, 4 } }, data.raw(eng, path, { shape = { -1, 2 } }):totable())
        assert.same({ 3, 4 }, data.raw(eng, path, { offset = 8 }):totable())
        assert.same({ 16 }, data.raw(eng, path, { dtype = "u8" }).shape)
        assert.matches("has a bool of 128, neither 0 nor 1 at byte 2", message_of(data.raw, eng, path, { dtype = "bool" }), 1, true)
        for text, options in pairs {
          ["holds 16 bytes from byte 0 on, shape (3) of f32 needs 12"] = { shape = { 3 } },
          ["holds 16 bytes from byte 0 on, shape (0, 5) of f32 needs 0"] = { shape = { -1, 5 } },
          ["holds 13 bytes from byte 3 on, shape (3) of f32 needs 12"] = { offset = 3 },
          ["ends at byte 16, before the offset 17"] = { offset = 17 },
          ["size 1 is a whole number of at least 0, got -2"] = { shape = { -2 } },
          ["offset is a whole number of at least 0, got -1"] = { offset = -1 },
        } do
          assert.matches(text, message_of(data.raw, eng, path, options), 1, true)
        end
      end)

      it("reads text as ids and gives it back", function()
        local eng = open()
        local ids, vocabulary = data.text(eng, write "banana\n")
        assert.equal("i64", ids.dtype)
        assert.equal(4, vocabulary.size)
        assert.same({ 3, 2, 4, 2, 4, 2, 1 }, ids:totable())
        assert.equal("banana\n", vocabulary:decode(ids))
        assert.equal("nab", vocabulary:decode(vocabulary:encode "nab"))
        assert.matches("vocabulary: \"x\" at byte 1 has no id", message_of(vocabulary.encode, vocabulary, "nx"), 1, true)
        assert.matches("vocabulary: id 5 is outside 1..4", message_of(vocabulary.decode, vocabulary, { 1, 5 }), 1, true)
        assert.same({ 2, 2 }, (data.text(eng, write "aa", { vocabulary = vocabulary })):totable())
        assert.matches("\"c\" at byte 2 is not in the vocabulary", message_of(data.text, eng, write "aac", { vocabulary = vocabulary }), 1, true)
        assert.same({ 0 }, (data.text(eng, write "")).shape)
      end)

      it("gives each row once per epoch, in another order each time, over resets", function()
        local eng = open()
        local x, y = eng:persistent({ 10 }, eng:arange(1, 11)), eng:persistent({ 10, 2 }, eng:arange(20):view { 10, 2 })
        local loader = data.batches({ x, y }, { size = 4, seed = 7 })
        assert.equal(3, loader.count)
        local orders = {}
        for epoch = 1, 2 do
          local seen, order = {}, {}
          for bx, by in loader do
            assert.equal(bx.shape[1], by.shape[1])
            for i, v in ipairs(bx:totable()) do
              seen[v] = (seen[v] or 0) + 1
              order[#order + 1] = v
              assert.equal(2 * (v - 1), by:get(i, 1))
            end
            eng:reset()
          end
          for v = 1, 10 do assert.equal(1, seen[v]) end
          assert.equal(epoch, loader.epoch)
          orders[epoch] = table.concat(order, " ")
        end
        assert.is_true(orders[1] ~= orders[2])
        assert.is_true(orders[1] ~= "1 2 3 4 5 6 7 8 9 10")
        local plain = {}
        for bx in data.batches(x, { size = 3, shuffle = false, drop_last = true }) do plain[#plain + 1] = table.concat(bx:totable(), " ") end
        assert.same({ "1 2 3", "4 5 6", "7 8 9" }, plain)
      end)

      it("goes on with batches from a state, and writes them into given tensors", function()
        local eng = open()
        local x = eng:persistent({ 10 }, eng:arange(1, 11))
        local into = eng:persistent { 3 }
        local a = data.batches(x, { size = 3, seed = 5, drop_last = true, into = { into } })
        local function take(loader, n)
          local list = {}
          for i = 1, n do
            local batch = loader:next()
            list[i] = batch and table.concat(batch:totable(), " ") or "end"
          end
          return list
        end
        take(a, 6)
        assert.same({ seed = 5, epoch = 1, position = 2 }, a:state())
        local b = data.batches(x, { size = 3, seed = 9, drop_last = true })
        b:load(a:state())
        local rest = take(b, 9)
        assert.same(rest, take(a, 9))
        assert.equal("end", rest[2])
        assert.equal(into, a:next() or a:next())
      end)

      it("goes on from a checkpoint bit for bit", function()
        local function run(eng)
          local r = { engine = eng }
          r.model = nn.Sequential(nn.Linear(eng, 3, 8), nn.Dropout(0.3), nn.GELU(), nn.Linear(eng, 8, 2))
          r.optimizer = optim.AdamW(r.model, { lr = 0.01 })
          r.schedule = optim.cosine(r.optimizer, { steps = 20, warmup = 3 })
          local x = eng:persistent({ 10, 3 }, eng:arange(30):view({ 10, 3 }):sin())
          local y = eng:persistent({ 10 }, { 1, 2, 1, 2, 2, 2, 1, 1, 2, 1 }, { dtype = "i64" })
          r.loader = data.batches({ x, y }, { size = 4, seed = 3 })
          r.progress = { step = 0, note = "a \"b\"", rates = { 0.1, 0.2 } }
          return r
        end
        local function steps(r, n)
          local losses = {}
          while #losses < n do
            local bx, by = r.loader:next()
            if bx then
              local loss = nn.loss.cross_entropy(r.model(bx), by)
              r.model:zero_grad()
              loss:backward()
              r.optimizer:step()
              r.schedule:step()
              r.progress.step = r.progress.step + 1
              losses[#losses + 1] = loss:bytes()
              r.engine:reset()
            end
          end
          return losses
        end
        local first = run(open { seed = 1 })
        steps(first, 5)
        data.checkpoint.save(path, first)
        local want = steps(first, 7)
        local second = run(open { seed = 2 })
        steps(second, 2)
        data.checkpoint.load(path, second)
        assert.equal(5, second.progress.step)
        assert.equal(0.2, second.progress.rates[2])
        assert.same(want, steps(second, 7))
        for key, t in pairs(first.model:state()) do assert.equal(t:bytes(), second.model:state()[key]:bytes()) end
        for key, t in pairs(first.optimizer:state()) do assert.equal(t:bytes(), second.optimizer:state()[key]:bytes()) end
        assert.equal(12, second.progress.step)
      end)

      it("gives back just the plain values that were saved, through any number of rounds", function()
        local eng = open()
        local values = { n = 3, inf = "inf", note = "'nan'", nan = "nan", best = math.huge, worst = -math.huge, tiny = 5e-324, third = 1 / 3, zero = -0.0,
          on = false, empty = {}, ["a b"] = "\195\188\n\0", list = { 1, "n", { n = 2, x = { 1 } } }, both = { 1, 2, n = 2, list = 3, ["'list"] = 4 },
          ["'"] = "'" }
        local progress = {}
        for key, value in pairs(values) do progress[key] = value end
        for round = 1, 3 do
          data.checkpoint.save(path, { n = progress, engine = eng })
          local second = { gone = true }
          data.checkpoint.load(path, { n = second, engine = eng })
          assert.same(values, second)
          assert.equal(-math.huge, 1 / second.zero)
          values.list[3 + round], second.list[3 + round] = round, round -- what is appended after a load counts
          progress = second
        end
        assert.equal(6, #progress.list)
        local average = { eng:persistent({ 2 }, 1), eng:persistent({ 2 }, 2) }
        data.checkpoint.save(path, { average = average })
        average[2]:zero()
        data.checkpoint.load(path, { average = average })
        assert.same({ 2, 2 }, average[2]:totable())
      end)

      it("refuses a checkpoint of something else and changes nothing", function()
        local eng = open()
        local parts = { model = nn.Linear(eng, 2, 3), loader = data.batches(eng:persistent { 4 }, { size = 1 }), progress = { step = 3 }, engine = eng }
        data.checkpoint.save(path, parts)
        local other = { model = nn.Linear(eng, 2, 3), loader = data.batches(eng:persistent { 2 }, { size = 2 }), progress = { step = 1 }, engine = eng }
        local bits = other.model.weight:bytes()
        local function refused(changes, message)
          local asked = {}
          for key, part in pairs(other) do asked[key] = part end
          for key, part in pairs(changes) do asked[key] = part or nil end
          local rng = table.concat(eng:rng(), " ")
          local got = message_of(function() data.checkpoint.load(path, asked) end)
          assert.matches(message, got, 1, true)
          assert.matches("^spec/data/data_spec.lua:%d+: ", got)
          assert.equal(bits, other.model.weight:bytes())
          assert.same({ step = 1 }, other.progress)
          assert.same({ seed = 0, epoch = 0, position = 0 }, other.loader:state())
          assert.equal(rng, table.concat(eng:rng(), " "))
        end
        parts.loader:load { seed = 9, epoch = 2, position = 3 }
        data.checkpoint.save(path, parts)
        refused({}, "'loader' was not taken: load: position 3, an epoch has 1 batches")
        refused({ model = nn.Linear(eng, 2, 4) }, "'model.weight' is f32 (3, 2), expected f32 (4, 2)")
        refused({ model = nn.Linear(eng, 2, 3, { dtype = "f64" }) }, ", expected f64 (3")
        refused({ model = nn.Linear(eng, 2, 3, { bias = false }) }, "'model.bias' is not known here")
        refused({ model = nn.Sequential(nn.Linear(eng, 2, 3)) }, "'model.1.weight' is missing")
        refused({ model = false }, "also holds 'model', which was not asked for")
        refused({ more = {} }, "holds no 'more'")
        refused({ model = 3 }, "part 'model' is a number, not an engine or a table")
        refused({ ["a.b"] = {} }, "\"a.b\" is no name for a part")
        data.safetensors.save(path, { x = eng:persistent {} })
        refused({}, "is no checkpoint: its metadata lack 'perilune.checkpoint'")
        for _, text in ipairs { "{", "3", '{"progress":{"\'list":3}}' } do
          data.safetensors.save(path, { x = eng:persistent {} }, { ["perilune.checkpoint"] = text })
          refused({}, "'perilune.checkpoint' in the metadata is no JSON")
        end
        data.safetensors.save(path, { x = eng:persistent {} }, { ["perilune.checkpoint"] = '{"progress":{}, "loader":3, "model":{}, "engine":{"rng":[1,2]}}' })
        refused({ model = {} }, "'loader' was not taken: ")
        write "nonsense"
        refused({}, "safetensors: ")
        local cycle = { deep = {} }
        cycle.deep.back = cycle
        for text, value in pairs {
          ["'a.b' is a function, which no file can hold"] = { b = print },
          ["'a.b.1' is a tensor within a table, which no file can hold"] = { b = { eng:persistent {} } },
          ["'a.deep.back.deep' is a table within itself"] = cycle,
          ["'a' has no element 1, but others: numbers as keys count from 1"] = { [5] = 2 },
          ["'a.b' has no element 2, but others: numbers as keys count from 1"] = { b = { 1, nil, 3 } },
          ["'a' has a boolean as a key: keys are names or count from 1"] = { [true] = 2 },
        } do
          local got = message_of(data.checkpoint.save, path, { a = value, engine = eng })
          assert.matches("checkpoint: " .. text, got, 1, true)
        end
        assert.matches("none of the parts has an engine", message_of(data.checkpoint.load, path, { a = { b = 1 } }), 1, true)
      end)

      it("refuses batches of what does not fit", function()
        local eng = open()
        local x = eng:persistent { 4 }
        for text, fn in pairs {
          ["batches: size is a whole number of at least 1, got nil"] = function() data.batches(x) end,
          ["batches: tensor 2 has 3 rows, the first has 4"] = function() data.batches({ x, eng:persistent { 3 } }, { size = 1 }) end,
          ["batches: tensor 1 has no dimensions"] = function() data.batches(eng:persistent {}, { size = 1 }) end,
          ["batches: tensor 2 is a number"] = function() data.batches({ x, 3 }, { size = 1 }) end,
          ["batches: a list of tensors was expected, got number"] = function() data.batches(3, { size = 1 }) end,
          ["batches: into needs one tensor for each of the 1, and batches of one size"] = function()
            data.batches(x, { size = 3, into = { eng:persistent { 3 } } })
          end,
          ["load: epoch is a whole number of at least 0, got -1"] = function()
            data.batches(x, { size = 1 }):load { seed = 0, epoch = -1, position = 0 }
          end,
        } do
          assert.matches(text, message_of(fn), 1, true)
        end
        if eng:zeros({ 1 }).home == "arena" then
          assert.matches("tensor 1 is in the arena", message_of(data.batches, eng:zeros { 4 }, { size = 1 }), 1, true)
        end
      end)
    end)
  end)
end)
