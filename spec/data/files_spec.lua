-- SPDX-License-Identifier: MIT
-- NPY and safetensors, both ways: files of NumPy and the safetensors package are read, what is written is byte for byte what they write (the files
-- are scripts/record/files.py's), every truncation and many kinds of nonsense are refused with what is wrong at which byte, and a
-- failed write leaves the old file.

local perilune = require "perilune"
local data = require "perilune.data"
local engines = require "spec.support.engines"

local FILES = "spec/data/files/"

local function read(path)
  local f = assert(io.open(path, "rb"))
  local bytes = f:read "*a"
  f:close()
  return bytes
end

local function write(path, bytes)
  local f = assert(io.open(path, "wb"))
  assert(f:write(bytes))
  f:close()
end

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return message
end

--- The values of the script, kind "f", "i", "u" or "b".
local function expected(n, kind)
  local list = {}
  for i = 0, n - 1 do
    local v = 7 * i % 11 - 3
    if kind == "u" then v = v + 3 elseif kind == "b" then v = v > 0 elseif kind == "f" then v = v * 0.5 end
    list[i + 1] = v
  end
  return list
end

local function flat(t) return t:reshape({ -1 }):totable() end

local HALVES = { 0, 0, math.huge, -math.huge, 0, 65504, 2 ^ -24, 2 ^ -14, 1.0009765625 }

local function check_halves(t)
  assert.equal("f32", t.dtype)
  for i, v in ipairs(flat(t)) do
    if i == 5 then assert.is_true(v ~= v) else assert.equal(HALVES[i], v) end
  end
  assert.equal(-math.huge, 1 / t:get(2))
end

describe("files", function()
  local folder

  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(os.execute("mkdir " .. folder) == 0)
  end)
  teardown(function() os.execute("rm -r " .. folder) end)
  after_each(engines.close)

  local function temporary(name) return folder .. "/" .. (name or "file") end

  engines.each(function(name, open)
    it("of NumPy become tensors on " .. name .. ", whatever their dtype, byte order and layout", function()
      local eng = open()
      for file, dtype in pairs { f8 = "f64", f4 = "f32", f2 = "f32", i8 = "i64", i4 = "i32", i2 = "i32", i1 = "i32", u8 = "i64", u4 = "i64", u2 = "i32",
        u1 = "u8", b1 = "bool", big_f4 = "f32", big_i8 = "i64", big_f2 = "f32", version2 = "f32", version3 = "f32" } do
        local t = data.npy.load(eng, FILES .. file .. ".npy")
        assert.equal(dtype == "u8" and file == "u1" and "u8" or dtype, t.dtype, file)
        assert.equal("persistent", t.home)
        assert.same({ 2, 3 }, t.shape)
        local kind = file:match "version" and "f" or file:match "([fiub])%d$"
        assert.same(expected(6, kind), flat(t), file)
      end
      local fortran = data.npy.load(eng, FILES .. "fortran.npy")
      assert.same({ 2, 3, 4 }, fortran.shape)
      assert.is_true(fortran:is_contiguous())
      assert.same(expected(24, "f"), flat(fortran))
      assert.same(expected(5, "f"), data.npy.load(eng, FILES .. "vector.npy"):totable())
      assert.equal(-1.5, data.npy.load(eng, FILES .. "scalar.npy"):item())
      assert.same({ 0, 3 }, data.npy.load(eng, FILES .. "empty.npy").shape)
      check_halves(data.npy.load(eng, FILES .. "half.npy"))
    end)

    it("of the safetensors package become tensors on " .. name, function()
      local eng = open()
      local own, metadata = data.safetensors.load(eng, FILES .. "own.safetensors")
      assert.same({ note = "h\195\169 \"x\"\n" }, metadata)
      local want = { weight = { "f32", 2, 3 }, double = { "f64", 2 }, long = { "i64", 0, 3 }, int = { "i32", 4 }, byte = { "u8", 3 },
        ["flag \195\188 \"quoted\""] = { "bool" } }
      for key, t in pairs(own) do
        assert.equal(want[key][1], t.dtype)
        assert.same({ unpack(want[key], 2) }, t.shape)
        local kind = t.dtype:sub(1, 1)
        if t:numel() > 0 then assert.same(expected(t:numel(), kind), #t.shape == 0 and { t:item() } or flat(t), key) end
        want[key] = nil
      end
      assert.same({}, want)
      local narrow = data.safetensors.load(eng, FILES .. "narrow.safetensors")
      check_halves(narrow.half)
      for key, dtype in pairs { short = "i32", char = "i32", ulong = "i64", uint = "i64", ushort = "i32" } do
        assert.equal(dtype, narrow[key].dtype)
        assert.same(expected(narrow[key]:numel(), key:sub(1, 1) == "u" and "u" or "i"), flat(narrow[key]), key)
      end
      assert.same({}, (data.safetensors.load(eng, FILES .. "nothing.safetensors")))
    end)

    it("are written on " .. name .. " as NumPy and the package write them, byte for byte", function()
      local eng = open()
      for _, file in ipairs { "f8", "f4", "i8", "i4", "u1", "b1", "vector", "scalar", "empty" } do
        data.npy.save(temporary(), data.npy.load(eng, FILES .. file .. ".npy"))
        assert.equal(read(FILES .. file .. ".npy"), read(temporary()), file)
      end
      local fortran = data.npy.load(eng, FILES .. "fortran.npy")
      data.npy.save(temporary(), fortran:permute { 3, 1, 2 })
      assert.same(flat(fortran:permute { 3, 1, 2 }), flat(data.npy.load(eng, temporary())))
      for _, file in ipairs { "own", "nothing" } do
        data.safetensors.save(temporary(), data.safetensors.load(eng, FILES .. file .. ".safetensors"))
        assert.equal(read(FILES .. file .. ".safetensors"), read(temporary()), file)
      end
    end)
  end)

  it("that end too soon are refused at every length, with the byte, and make nothing", function()
    local eng = engines.open("stress")
    for file, load in pairs { ["f4.npy"] = data.npy.load, ["version2.npy"] = data.npy.load, ["own.safetensors"] = data.safetensors.load } do
      local whole = read(FILES .. file)
      for length = 0, #whole - 1 do
        write(temporary(), whole:sub(1, length))
        local message = message_of(load, eng, temporary())
        local at = length < 6 and file:match "npy" and 0 or length
        assert.matches(("at byte %d$"):format(at), message)
        assert.matches(temporary(), message, 1, true)
      end
      write(temporary(), whole .. "xy")
      assert.matches(("2 bytes [%%w ]+ at byte %d$"):format(#whole), message_of(load, eng, temporary()))
    end
  end)

  --- A safetensors file of a header and data.
  local function safe(header, bytes)
    local length = ""
    local left = #header
    for _ = 1, 8 do
      length = length .. string.char(left % 256)
      left = math.floor(left / 256)
    end
    return length .. header .. (bytes or "")
  end

  it("of nonsense are refused with what is wrong and where", function()
    local eng = engines.open("cpu")
    local function refused(load, bytes, text)
      write(temporary(), bytes)
      local message = message_of(function() load(eng, temporary()) end)
      assert.matches(text, message, 1, true)
      assert.matches("^spec/data/files_spec.lua:%d+: ", message)
    end
    local good = read(FILES .. "f4.npy")
    local function edit(from, to) -- within the header, whose length stays
      local header, n = good:sub(11, 127):gsub(from:gsub("%p", "%%%0"), to)
      assert.equal(1, n)
      header = #header <= 117 and header .. (" "):rep(117 - #header) or header:sub(1, 117)
      return good:sub(1, 10) .. header .. good:sub(128)
    end
    for text, bytes in pairs {
      ["this is no NPY file: it does not begin with \"\\x93NUMPY\" at byte 0"] = "PK\3\4" .. good,
      ["version 4.0 is not known at byte 6"] = good:sub(1, 6) .. "\4" .. good:sub(8),
      ["the header is no dictionary at byte 10"] = edit("{'descr", "['descr"),
      ["dtype '<f3' is not supported at byte 20"] = edit("<f4", "<f3"),
      ["dtype '<U4' is not supported at byte 20"] = edit("<f4", "<U4"),
      ["'fortran_order' is missing or of the wrong kind at byte 10"] = edit("'fortran_order': False, ", ""),
      ["'fortran_order' is missing or of the wrong kind at byte 44"] = edit("False", "'yes'"),
      ["\"-2\" is no size at byte 60"] = edit("(2, 3)", "(-2, 3)"),
      ["needs 28 bytes from byte 128 on, there are 24 at byte 152"] = edit("(2, 3), ", "(1, 7), "),
      ["needs too many bytes"] = edit("(2, 3)", "(99999999999999999, 3)"),
      ["a string without an end at byte 44"] = edit("False", '"yes '),
      ["',' or '}' was expected at byte 52"] = edit("False", "'yes "),
    } do
      refused(data.npy.load, bytes, text)
    end
    refused(data.npy.load, read(FILES .. "records.npy"), "arrays of records are not supported at byte 20")
    refused(data.npy.load, read(FILES .. "complex.npy"), "dtype '<c8' is not supported at byte 20")
    refused(data.npy.load, read(FILES .. "b1.npy"):sub(1, -3) .. "\2\0", "a bool of 2, neither 0 nor 1 at byte 132")
    refused(data.npy.load, (read(FILES .. "u8.npy"):gsub("%z%z%z%z$", "\0\0\0\255")), "a u64 above 2^63 - 1 at byte 168")

    local one = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    local eight = ("\0"):rep(8)
    local function change(from, to) return safe((one:gsub(from:gsub("%p", "%%%0"), to)), eight) end
    for text, bytes in pairs {
      ["a header of 100000001 bytes, more than 100000000 at byte 0"] = "\1\225\245\5\0\0\0\0" .. one,
      ["the header does not begin with '{' at byte 8"] = safe("[]"),
      ["the header is no JSON: a string without an end at byte 9"] = safe '{"a',
      ["the header is no JSON: a value was expected at byte 13"] = safe '{"a":',
      ["the header is no JSON: a value was expected at byte 15"] = safe '{"abc":}',
      ["the header is no JSON: the key \"a\" for the second time"] = safe('{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[4,8]}}', eight),
      ["the header is no JSON: more text than one value"] = safe(one .. "{}", eight),
      ["tensor 'a' has the dtype F8_E4M3, which is not supported at byte 9"] = change("F32", "F8_E4M3"),
      ["tensor 'a' has the dtype nil, which is not supported"] = change("dtype", "type"),
      ["tensor 'a' has no shape"] = change("[2]", "2"),
      ["tensor 'a' has the size -2"] = change("[2]", "[-2]"),
      ["tensor 'a' has the size 0.5"] = change("[2]", "[0.5]"),
      ["tensor 'a' has no data_offsets [begin, end]"] = change("[0,8]", "[8,0]"),
      ["tensor 'a' holds 8 bytes, but its shape (3) of F32 needs 12"] = change("[2]", "[3]"),
      ["its shape (9007199254740992, 9007199254740992) of F32 needs too many"] = change("[2]", "[9007199254740992,9007199254740992]"),
      ["there is a hole at byte 63"] = safe((one:gsub("0,8", "4,12")), eight .. eight):sub(1, 80),
      ["tensor 'b' begins at byte 119: tensors overlap at byte 123"] = safe('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', eight),
      ["tensor 'a' has a bool of 255, neither 0 nor 1 at byte 70"] = safe('{"a":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}}', eight:sub(1, 6) .. "\1\255"),
      ["4 bytes behind the last tensor"] = safe(one, eight .. "1234"),
      ["__metadata__ is no object of strings"] = safe('{"__metadata__":{"a":1}}'),
      ["tensor 'a' is no object"] = safe '{"a":3}',
    } do
      refused(data.safetensors.load, bytes, text)
    end
    assert.same({ format = "nan" }, (select(2, (function()
      write(temporary(), safe '{"__metadata__":{"format":"nan"}}')
      return data.safetensors.load(eng, temporary())
    end)())))
    assert.matches("npy: nowhere/x.npy: No such file or directory", message_of(data.npy.load, eng, "nowhere/x.npy"), 1, true)
    assert.matches("npy: .*: Is a directory", message_of(data.npy.load, eng, folder))
  end)

  it("keep characters outside ASCII in names", function()
    local eng = engines.open("cpu")
    write(temporary(), safe('{"\\u00fc\\u20ac\\ud83c\\udf19":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', "\7"))
    local tensors = data.safetensors.load(eng, temporary())
    assert.equal(7, tensors["\195\188\226\130\172\240\159\140\153"]:item())
    write(temporary(), safe('{"\\ud83c":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', "\7"))
    assert.matches("half a character", message_of(data.safetensors.load, eng, temporary()), 1, true)
  end)

  it("are not written from what isn't a tensor or has no name", function()
    local eng = engines.open("cpu")
    local t = eng:persistent { 2 }
    for text, fn in pairs {
      ["npy: argument 2 is a tensor, got table"] = function() data.npy.save(temporary(), {}) end,
      ["npy: a file's path was expected, got nil"] = function() data.npy.save(nil, t) end,
      ["safetensors: 'a' is a number, not a tensor"] = function() data.safetensors.save(temporary(), { a = 3 }) end,
      ["safetensors: a number is no name for a tensor"] = function() data.safetensors.save(temporary(), { t }) end,
      ["safetensors: \"\255\" is no name for a tensor"] = function() data.safetensors.save(temporary(), { ["\255"] = t }) end,
      ["safetensors: \"__metadata__\" is no name for a tensor"] = function() data.safetensors.save(temporary(), { __metadata__ = t }) end,
      ["safetensors: metadata are strings by name, got number for 'a'"] = function() data.safetensors.save(temporary(), { a = t }, { a = 3 }) end,
      ["safetensors: a table of tensors by name was expected, got userdata"] = function() data.safetensors.save(temporary(), t) end,
    } do
      assert.matches(text, message_of(fn), 1, true)
    end
  end)

  it("stay as they were when a write fails, and no other file is left", function()
    local eng = engines.open("cpu")
    local t = eng:persistent({ 5000 }, 3)
    data.npy.save(temporary "kept", t)
    local before = read(temporary "kept")
    -- files of at most 8 blocks, in a process of its own
    local script = ([[
      local perilune = require "perilune"
      local eng = perilune.engine "cpu"
      local ok, message = pcall(perilune.data.npy.save, %q, eng:persistent({ 50000 }, 4))
      io.write(tostring(ok), " ", tostring(message))
    ]]):format(temporary "kept")
    write(temporary "script.lua", script)
    local pipe = io.popen(("sh -c \"trap '' XFSZ; ulimit -f 8; exec '%s' %s\" 2>&1"):format(os.getenv "PERILUNE_LAUNCHER" or "./perilune", temporary "script.lua"))
    local said = pipe:read "*a"
    pipe:close()
    assert.matches("^false .*npy: .*/kept was not written: ", said)
    assert.equal(before, read(temporary "kept"))
    os.execute("mkdir " .. temporary "taken")
    assert.matches("was not written", message_of(data.npy.save, temporary "taken", t), 1, true)
    assert.matches("No such file", message_of(data.npy.save, temporary "no/where", t), 1, true)
    pipe = io.popen("ls " .. folder)
    assert.is_nil(pipe:read("*a"):match "tmp")
    pipe:close()
    assert.equal(perilune.data, data)
  end)
end)
