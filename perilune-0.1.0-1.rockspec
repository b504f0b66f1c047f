-- SPDX-License-Identifier: MIT
-- LuaRocks, which has to know LuaJIT as its interpreter:
--   luarocks config lua_interpreter luajit && luarocks --lua-version 5.1 make
-- The version is configure.ac's; a spec compares them. The command is wrapped by LuaRocks, which knows where it puts the files in the end.
rockspec_format = "3.0"
package = "perilune"
version = "0.1.0-1"
source = { url = "file://perilune-0.1.0.tar.gz" }
description = {
  summary = "Tensor engine driven from LuaJIT whose memory cannot lie",
  detailed = "A C11 core and CUDA kernels with gradients, captured steps, layers and optimizers; every use of memory that was recycled is an error.",
  license = "MIT",
  labels = { "tensor", "machine learning", "cuda", "luajit" },
}
supported_platforms = { "linux" }
dependencies = { "lua ~> 5.1" }
build = {
  type = "command",
  build_command = [[
    test -x configure || autoreconf --install --force
    mkdir -p build.rock && cd build.rock &&
    ../configure --quiet --without-cuda --prefix=$(PREFIX) LUAJIT="$(LUA_BINDIR)/luajit" && $(MAKE) -j2]],
  install_command = [[
    $(MAKE) -C build.rock install bindir=$(BINDIR) luadir=$(LUADIR) luacexecdir=$(LIBDIR)/perilune]],
  install = { bin = { perilune = "lua/perilune/cli.lua" } },
}
