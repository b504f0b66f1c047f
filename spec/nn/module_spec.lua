-- SPDX-License-Identifier: MIT
-- Modules: order and names of parameters, state, copies to other engines, training mode, and errors that say which layer.

local perilune = require "perilune"
local nn = require "perilune.nn"
local engines = require "spec.support.engines"

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return message
end

local function line() return debug.getinfo(2, "l").currentline end

local HERE = debug.getinfo(1, "S").short_src

--- A module with layers in a table, one tied tensor and one buffer.
local function make_net(eng)
  local Net = nn.Module "Net"
  function Net:init()
    self.blocks = {}
    for i = 1, 2 do self.blocks[i] = nn.Sequential(nn.Linear(eng, 4, 4), nn.Dropout(0.5)) end
    self.tied = self.blocks[1]["1"].weight
    self.scale = eng:persistent({}, 2)
    self.heads = { b = nn.Linear(eng, 4, 3, { bias = false }), a = nn.LayerNorm(eng, 4) }
    self.note = "text"
  end
  function Net:forward(x)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.heads.b(self.heads.a(x * self.scale))
  end
  return Net()
end

local NAMES = { "blocks.1.1.weight", "blocks.1.1.bias", "blocks.2.1.weight", "blocks.2.1.bias", "heads.a.weight", "heads.a.bias", "heads.b.weight" }

describe("modules", function()
  after_each(engines.close)

  engines.each(function(name, open)
    describe("on " .. name, function()
      it("list parameters in order of definition, tied ones once, and layers by name", function()
        local net = make_net(open())
        local list, names = net:parameters()
        assert.same(NAMES, names)
        assert.equal(net.blocks[1]["1"].weight, list[1])
        assert.equal(20 + 20 + 4 + 4 + 12, net:count())
        local modules, paths = net:modules()
        assert.same({ "blocks.1", "blocks.1.1", "blocks.1.2", "blocks.2", "blocks.2.1", "blocks.2.2", "heads.a", "heads.b" }, paths)
        assert.equal(net.heads.b, modules[8])
        assert.is_true(nn.is_module(net))
        assert.is_false(nn.is_module(net.blocks) or nn.is_module(3) or nn.is_module(nil))
      end)

      it("find layers under numbers as well, wherever these begin", function()
        local eng = open()
        local Net = nn.Module "Net"
        function Net:init()
          self[2] = nn.Linear(eng, 2, 3, { bias = false })
          self[1] = nn.Linear(eng, 3, 2, { bias = false })
          self.list = { [0] = nn.Linear(eng, 2, 2, { bias = false }), [7] = nn.LayerNorm(eng, 2), last = nn.RMSNorm(eng, 2) }
        end
        function Net:forward(x) return self[2](x) end
        local net, names = Net(), { "2.weight", "1.weight", "list.0.weight", "list.7.weight", "list.7.bias", "list.last.weight" }
        assert.same(names, select(2, net:parameters()))
        assert.same(names, select(2, net:to "f64":parameters()))
        assert.matches("in layer '2', Linear(2, 3, bias = false): ", message_of(net, eng:zeros { 1, 5 }), 1, true)
        net[2] = nil
        assert.equal(5, #net:parameters())
      end)

      it("count a tensor that no longer requires grad as state, not as parameter", function()
        local net = make_net(open())
        net.heads.b.weight:requires_grad(false)
        assert.equal(6, #net:parameters())
        assert.is_not_nil(net:state()["heads.b.weight"])
      end)

      it("keep only persistent tensors as state; others die with the reset", function()
        local eng = open()
        local net = make_net(eng)
        net.last = eng:randn { 3 }
        eng:reset()
        assert.same(NAMES, select(2, net:parameters()))
        assert.is_nil(net:state().last)
        assert.is_nil(net:to "f64".last)
      end)

      it("save and load their state, all or nothing", function()
        local eng = open()
        local net, other = make_net(eng), make_net(open())
        local state = other:state()
        assert.is_not_nil(state.scale)
        other.scale:set(7)
        local address = net.heads.b.weight:address()
        assert.equal(net, net:load(state))
        for key, t in pairs(net:state()) do assert.equal(state[key]:bytes(), t:bytes()) end
        assert.equal(7, net.scale:item())
        assert.equal(address, net.heads.b.weight:address())
        state.scale = eng:persistent({}, 9)
        state["heads.b.weight"] = eng:persistent { 3, 5 }
        local at = line() + 1
        local message = message_of(function() net:load(state) end)
        assert.matches(("%s:%d: load: 'heads.b.weight' has shape (3, 5), expected (3, 4)"):format(HERE, at), message, 1, true)
        state["heads.b.weight"] = eng:persistent({ 3, 4 }, 1, { dtype = "f64" })
        assert.matches("'heads.b.weight' is f64, expected f32", message_of(net.load, net, state), 1, true)
        state["heads.b.weight"], state.more = 3, eng:persistent {}
        message = message_of(net.load, net, state)
        assert.matches("'heads.b.weight' is a number, not a tensor", message, 1, true)
        assert.matches("'more' is not known here", message, 1, true)
        assert.matches("'blocks.1.1.bias' is missing; .*; and 3 more$", message_of(net.load, net, {}))
        assert.equal(7, net.scale:item())
      end)

      it("are copied to another engine or dtype, ties included", function()
        local eng, there = open(), engines.open("cpu", { arena = "2MiB" })
        local net = make_net(eng)
        local copy = net:to(there)
        assert.same(NAMES, select(2, copy:parameters()))
        assert.equal(there, copy.scale.engine)
        assert.equal(copy.tied, copy.blocks[1]["1"].weight)
        for key, t in pairs(net:state()) do
          assert.equal(t:bytes(), copy:state()[key]:bytes())
          assert.equal(eng, t.engine)
        end
        copy:eval()
        local x = there:persistent({ 2, 4 }, { 1, 2, 3, 4, 5, 6, 7, 8 })
        copy(x):sum():backward()
        assert.equal(copy, copy:to(there))
        local double = net:to "f64"
        assert.equal("f64", double.heads.a.weight.dtype)
        assert.is_true(double.heads.a.weight:requires_grad())
        assert.matches("an engine, \"f32\" or \"f64\" was expected, got \"i64\"", message_of(net.to, net, "i64"), 1, true)
      end)

      it("switch training on and off in all layers", function()
        local net = make_net(open())
        local function modes()
          local seen = {}
          for _, m in ipairs((net:modules())) do seen[tostring(m.training)] = true end
          seen[tostring(net.training)] = true
          return seen
        end
        assert.same({ ["true"] = true }, modes())
        net:eval()
        assert.same({ ["false"] = true }, modes())
        net:train()
        assert.same({ ["true"] = true }, modes())
        assert.matches("train: a boolean was expected, got number", message_of(net.train, net, 1), 1, true)
      end)

      it("zero their gradients", function()
        local eng = open()
        local net = make_net(eng)
        net(eng:randn { 2, 4 }):sum():backward()
        assert.is_true(net.heads.b.weight.grad:abs():sum():item() > 0)
        net:zero_grad()
        for _, p in ipairs((net:parameters())) do assert.equal(0, p.grad:abs():sum():item()) end
      end)

      it("say in which layer an error happened, at the caller's line, and go on", function()
        local eng = open()
        local net = nn.Sequential(nn.Linear(eng, 3, 4), nn.Residual(nn.LayerNorm(eng, 4), nn.Linear(eng, 5, 4)))
        local at = line() + 1
        local message = message_of(function() local y = net(eng:randn { 2, 3 }) return y end)
        assert.matches(("%s:%d: in layer '2.inner.2', Linear(5, 4): linear: argument 'w': inner sizes 4 and 5 differ"):format(HERE, at), message, 1, true)
        assert.matches("module.lua", nn.traceback(), 1, true)
        message = message_of(function() local y = net(3) return y end)
        assert.matches("in layer '1', Linear(3, 4): attempt to index", message, 1, true)
        assert.equal(4, net["1"](eng:randn { 2, 3 }).shape[2])
      end)

      it("name a layer of the user's by its own line, pass errors that are no text, and layers that catch their own", function()
        local eng = open()
        local Bad, Outer, at = nn.Module "Bad", nn.Module "Outer", nil
        function Bad:forward(x)
          at = line() + 1
          local y = x:view { 7 }
          return y
        end
        function Outer:init() self.list = { Bad() } end
        function Outer:forward(x, fallback)
          local ok, y = pcall(self.list[1], x)
          if not ok and fallback then return fallback end
          if not ok then error(y, 0) end
          return y
        end
        local outer = nn.Sequential(Outer())
        local message = message_of(function() outer(eng:zeros { 2 }) end)
        assert.matches(("^%s:%d: in layer '1.list.1', Bad%%(%%): "):format(HERE:gsub("%p", "%%%0"), at), message)
        assert.equal(5, outer["1"](eng:zeros { 2 }, 5))
        local thing = {}
        local Thrower = nn.Module "Thrower"
        function Thrower.forward() error(thing) end
        assert.equal(thing, message_of(nn.Sequential(Thrower()), eng:zeros { 2 }))
        assert.matches("Empty() has no method 'forward'", message_of(nn.Module "Empty"(), 1), 1, true)
      end)

      it("yield from inside, each coroutine on its own", function()
        local eng = open()
        local Yielder = nn.Module "Yielder"
        function Yielder:forward(x)
          coroutine.yield()
          local y = x:view { 7 }
          return y
        end
        local a, b = nn.Sequential(Yielder()), nn.Sequential(nn.GELU(), Yielder())
        local ca, cb = coroutine.create(function() a(eng:zeros { 2 }) end), coroutine.create(function() b(eng:zeros { 2 }) end)
        coroutine.resume(ca)
        coroutine.resume(cb)
        local _, first = coroutine.resume(ca)
        local _, second = coroutine.resume(cb)
        assert.matches("in layer '1', Yielder", first, 1, true)
        assert.matches("in layer '2', Yielder", second, 1, true)
      end)
    end)
  end)

  it("show their layers as text", function()
    local net = make_net(engines.open "cpu")
    assert.equal([[
Net()
  (blocks.1) Sequential()
    (1) Linear(4, 4)
    (2) Dropout(0.5)
  (blocks.2) Sequential()
    (1) Linear(4, 4)
    (2) Dropout(0.5)
  (heads.a) LayerNorm(4)
  (heads.b) Linear(4, 3, bias = false)]], tostring(net))
  end)

  it("refuse wrong arguments by name", function()
    local eng = engines.open "cpu"
    for text, fn in pairs {
      ["Linear: argument 1 is an engine, got 3"] = function() nn.Linear(3, 4) end,
      ["Linear: inputs is a whole number of at least 1, got 0"] = function() nn.Linear(eng, 0, 4) end,
      ["Linear: outputs is a whole number of at least 1, got nil"] = function() nn.Linear(eng, 3) end,
      ["there is no option 'bais' (did you mean 'bias'?)"] = function() nn.Linear(eng, 3, 4, { bais = false }) end,
      ["Linear: option 'bias' is a boolean, got 1"] = function() nn.Linear(eng, 3, 4, { bias = 1 }) end,
      ["Linear: options are a table, got boolean"] = function() nn.Linear(eng, 3, 4, false) end,
      ["Dropout: p is a number from 0 to below 1, got 1"] = function() nn.Dropout(1) end,
      ["GroupNorm: 5 channels do not divide into 2 groups"] = function() nn.GroupNorm(eng, 2, 5) end,
      ["LayerNorm: size 1 is a whole number"] = function() nn.LayerNorm(eng, {}) end,
      ["GELU: approximate is one of none, tanh, got \"tan\""] = function() nn.GELU { approximate = "tan" } end,
      ["Conv2d: kernel is a whole number of at least 1, got nil"] = function() nn.Conv2d(eng, 1, 1, { 3 }) end,
      ["Conv1d: stride is a whole number of at least 1, got 0"] = function() nn.Conv1d(eng, 1, 1, 3, { stride = 0 }) end,
      ["Conv1d: 3 inputs and 4 outputs do not divide into 2 groups"] = function() nn.Conv1d(eng, 3, 4, 3, { groups = 2 }) end,
      ["MaxPool2d: a padding of 2 is more than half of the kernel's 3"] = function() nn.MaxPool2d(3, { padding = 2 }) end,
      ["MultiheadAttention: a width of 6 does not divide into 4 heads"] = function() nn.MultiheadAttention(eng, 6, 4) end,
      ["rotary needs heads of an even width, got 3"] = function() nn.MultiheadAttention(eng, 6, 2, { rotary = true }) end,
      ["RNN: activation is one of tanh, relu, got \"gelu\""] = function() nn.RNN(eng, 3, 4, { activation = "gelu" }) end,
      ["LSTM: layers is a whole number of at least 1, got 0"] = function() nn.LSTM(eng, 3, 4, { layers = 0 }) end,
      ["Sequential: layer 2 is a layer or a function, got 3"] = function() nn.Sequential(nn.GELU(), 3) end,
      ["Sequential: at least one layer was expected"] = function() nn.Sequential {} end,
      ["Module: a name was expected, got nil"] = function() nn.Module() end,
    } do
      local message = message_of(fn)
      assert.matches(text, message, 1, true)
      assert.matches("^" .. HERE:gsub("%p", "%%%0") .. ":%d+: ", message)
    end
    assert.equal(perilune, require "perilune")
  end)
end)
