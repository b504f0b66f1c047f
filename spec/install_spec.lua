-- SPDX-License-Identifier: MIT
-- What `make install`, `make uninstall` and `make deb` put in place, tried in a folder of its own: the command, a C host program built with pkg-config's
-- words, the man page, the completion, the editor's stubs, and that nothing stays behind.

local commands = require "perilune.commands"
local core = require "perilune.core"

local source = os.getenv "PERILUNE_SRCDIR" or "."
local build = os.getenv "PERILUNE_BUILDDIR" or "build"
local preload = os.getenv "PERILUNE_PRELOAD" or ""

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

--- Output and status of a command, outside of the make and the Lua paths that this spec runs in.
local function run(command)
  local pipe = assert(io.popen(("unset MAKEFLAGS MAKELEVEL LUA_PATH LUA_CPATH LD_PRELOAD; cd / && { %s; } 2>&1 </dev/null; echo status $?"):format(command)))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

local function done(command)
  local output, status = run(command)
  assert(status == 0, output)
  return output
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

local function has(name) return select(2, run("command -v " .. name)) == 0 end

--- The files below a folder, sorted, one a line.
local function files(folder, filter) return done(("cd %s && find . -type f %s | LC_ALL=C sort"):format(quote(folder), filter or "")) end

local make = "make --no-print-directory -C " .. quote(build) .. " "
local root

local variables = {}

--- A variable of the Makefile.
local function variable(name)
  variables[name] = variables[name] or done(make .. "-s show VARIABLE=" .. name):match "([^\n]*)\n$"
  return variables[name]
end

describe("an installation", function()
  setup(function()
    root = done("mktemp -d"):gsub("\n", "")
    done(make .. "install DESTDIR=" .. quote(root))
  end)
  teardown(function() done("rm -rf " .. quote(root)) end)

  local function at(name) return root .. variable(name) end
  local function perilune(arguments) return done(("%s/perilune %s"):format(quote(at "bindir"), arguments)) end

  it("has all Lua files, all pages and examples, and the modules that were built", function()
    assert.equal(files(source .. "/lua/perilune"), files(at "luadir" .. "/perilune"))
    for _, folder in ipairs { "docs", "examples" } do assert.equal(files(source .. "/" .. folder), files(at "docdir" .. "/" .. folder)) end
    assert.equal(done(("cd %s/lib/perilune && ls *.so"):format(quote(build))), done(("cd %s && ls"):format(quote(at "luacexecdir"))))
  end)

  it("runs scripts with its own files, finds its schedules, and explains itself", function()
    local where = perilune [[-e 'local p = require "perilune"; print(p.engine("stress"):full({ 2 }, 3):sum():item())
      print(package.searchpath("perilune", package.path)); print(package.searchpath("perilune.core", package.cpath))']]
    assert.equal(("6\n%s/perilune/init.lua\n%s/core.so\n"):format(at "luadir", at "luacexecdir"), where)
    assert.matches("\nreset%-between%-fwd%-bwd\n", perilune "parity --list")
    assert.matches("^a:matmul%(b%)\n", perilune "reference matmul")
    assert.equal(core.version, perilune("--version"):match "^perilune (%S+),")
  end)

  it("runs from a link, too", function()
    done(("ln -s %s/perilune %s/link"):format(quote(at "bindir"), quote(root)))
    assert.matches("^perilune ", done(quote(root) .. "/link --version"))
    done("rm " .. quote(root) .. "/link")
  end)

  it("has what a C host program needs, by pkg-config", function()
    local function config(words)
      return (done(("PKG_CONFIG_PATH=%s/pkgconfig pkg-config %s perilune"):format(quote(at "libdir"), words)):gsub("%s+$", ""))
    end
    --- A variable, with the root of this installation before it.
    local function path(name)
      return config(("--define-variable=libdir=%s --define-variable=datadir=%s --variable=%s"):format(quote(at "libdir"), quote(at "datadir"), name))
    end
    assert.equal(variable "docdir", config "--variable=docdir")
    assert.equal(core.version, config "--modversion")
    local program = quote(root .. "/embed")
    done(("cc -o %s %s/examples/embed.c %s"):format(program, quote(at "docdir"), config "--cflags --libs"))
    local out = done(("LD_PRELOAD=%s ASAN_OPTIONS=detect_leaks=0 LUA_PATH=%s LUA_CPATH=%s %s"):format(
      quote(preload), quote(path "lua_path"), quote(path "lua_cpath"), program))
    done("rm " .. program)
    assert.matches("y = 3%.000 x %+ 0%.500\n$", out)
  end)

  it("has a man page that names every command, option, flag and variable", function()
    local page = read(at "mandir" .. "/man1/perilune.1"):gsub("\\%-", "-")
    for _, name in ipairs(commands.names) do
      assert.truthy(page:find("\n.SS " .. name .. "\n", 1, true), name)
      for option in pairs(commands.of(name).options) do assert.truthy(page:find("\n.B --" .. option, 1, true), option) end
    end
    for _, list in ipairs { commands.flags, commands.environment } do
      for _, item in ipairs(list) do assert.truthy(page:find(("\n.B %s\n"):format(item[1]), 1, true), item[1]) end
    end
    if has "man" then assert.equal("", done(("man --warnings -l %s/man1/perilune.1 >/dev/null"):format(quote(at "mandir")))) end
  end)

  --- What bash offers for a line's last word.
  local function complete(...)
    local words = { ... }
    for i, word in ipairs(words) do words[i] = quote(word) end
    local script = ([[source %s/bash-completion/completions/perilune; compopt() { :; }
      COMP_WORDS=(perilune %s) COMP_CWORD=%d; cd %s; _perilune %s/perilune; echo "${COMPREPLY[*]}"]]):format(
      quote(at "datadir"), table.concat(words, " "), #words, quote(source), quote(at "bindir"))
    return (done("bash -c " .. quote(script)):gsub("\n", ""))
  end

  it("completes commands, options, engines, schedules, names and files in bash", function()
    assert.equal("parity", complete "pa")
    assert.equal("redproof reference", complete "re")
    assert.equal("--schedule", complete("parity", "--s"))
    assert.equal("stress", complete("parity", "--engine", "s"))
    assert.equal("reset-mid-backward", complete("parity", "--schedule", "reset-m"))
    assert.equal("matmul", complete("gradcheck", "matm"))
    assert.equal("examples/digits.lua", complete "examples/dig")
    assert.equal("README.md", complete("examples/digits.lua", "READ"))
    for _, name in ipairs(commands.names) do
      for option in pairs(commands.of(name).options) do assert.equal("--" .. option, complete(name, "--" .. option):match "^%S+") end
    end
  end)

  it("has stubs for editors in a folder of their own", function()
    local path = at "datadir" .. "/perilune/luals/library/perilune.lua"
    assert.truthy(loadstring(read(path)))
    assert.equal("./perilune.lua\n", files(at "datadir" .. "/perilune/luals/library"))
  end)

  it("is gone after make uninstall, and nothing else is", function()
    done(("echo theirs >%s/other.lua"):format(quote(at "luadir")))
    done(make .. "uninstall DESTDIR=" .. quote(root))
    assert.equal("." .. variable "luadir" .. "/other.lua\n", files(root))
    assert.equal("", done(("cd %s && find . -path '*perilune*'"):format(quote(root .. variable "prefix"))))
  end)
end)

describe("a release", function()
  it("holds all sources and no products", function()
    local folder = done("mktemp -d"):gsub("\n", "")
    finally(function() done("chmod -R u+w " .. quote(folder) .. " && rm -rf " .. quote(folder)) end)
    done(("%s-s distdir distdir=%s/perilune"):format(make, quote(folder)))
    local products = [[-name '*.o' -o -name '*.lo' -o -name '*.la' -o -name '*.so' -o -name .deps -o -name .libs]]
    assert.equal("", done(("find %s/perilune %s"):format(quote(folder), products)))
    for _, part in ipairs { "src", "cuda", "lua", "tests", "spec", "docs", "examples", "scripts", "bench" } do
      assert.equal("", (run(("diff -rq -x '*.o' -x '*.l[oa]' -x .deps -x .libs -x .dirstamp %s/%s %s/perilune/%s"):format(quote(source), part,
        quote(folder), part))))
    end
    for _, name in ipairs { "configure", "bootstrap", "README.md", "CHANGELOG.md", "LICENSE", "perilune.in", "perilune.pc.in" } do read(folder .. "/perilune/" .. name) end
  end)
end)

describe("the version", function()
  it("is configure.ac's wherever it is named", function()
    local version = read(source .. "/configure.ac"):match "AC_INIT%(%[perilune%], %[(%d+%.%d+%.%d+)%]%)"
    assert.equal(version, core.version)
    assert.equal(version, read(source .. "/CHANGELOG.md"):match "\n## (%S+)\n")
    local rock = {}
    setfenv(assert(loadfile(("%s/perilune-%s-1.rockspec"):format(source, version))), rock)()
    assert.equal(version .. "-1", rock.version)
    assert.equal(("file://perilune-%s.tar.gz"):format(version), rock.source.url)
  end)
end)

describe("the command line's table", function()
  it("has every command that there is a file for", function()
    local names = {}
    for name in done(("cd %s/lua/perilune/commands && ls"):format(quote(source))):gmatch "(%w+)%.lua" do
      if name ~= "init" then names[#names + 1] = name end
    end
    table.sort(names)
    assert.same(names, commands.names)
  end)

  it("has every variable that the library reads", function()
    local known = {}
    for _, item in ipairs(commands.environment) do
      for name in item[1]:gmatch "[%u_]+" do known[name] = true end
    end
    local asked = done(("cd %s && grep -rhoE '\"PERILUNE_[A-Z_]+\"' lua src cuda"):format(quote(source)))
    local count = 0
    for name in asked:gmatch '"([%u_]+)"' do
      assert.truthy(known[name], name .. " is not in commands.environment")
      count = count + 1
    end
    assert.is_true(count >= 8)
  end)
end)

if has "dpkg-deb" then
  describe("the Debian package", function()
    it("installs, runs, and lintian finds no error in it", function()
      local folder = done("mktemp -d"):gsub("\n", "")
      finally(function() done("rm -rf " .. quote(folder)) end)
      local package = done(make .. "-s deb"):match "(deb/%S+%.deb)\n$"
      local path = quote(build .. "/" .. package)
      assert.equal(core.version .. "-1\n", done("dpkg-deb -f " .. path .. " Version"))
      done(("dpkg-deb -x %s %s"):format(path, quote(folder)))
      assert.equal("2\n", done(quote(folder) .. [[/usr/bin/perilune -e 'print(require("perilune").engine("cpu"):ones(2):sum():item())']]))
      for _, name in ipairs { "copyright", "changelog.Debian.gz", "changelog.gz", "README.md" } do read(folder .. "/usr/share/doc/perilune/" .. name) end
      done(("cd %s && dpkg-deb -e %s e && md5sum --quiet -c e/md5sums"):format(quote(folder), path))
      if has "lintian" then
        local said = run("lintian --allow-root " .. path)
        assert.is_nil(said:match "%f[^\n%z]E: [^\n]*", said)
      end
    end)
  end)
end
