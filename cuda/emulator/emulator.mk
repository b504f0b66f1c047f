# SPDX-License-Identifier: MIT
# The emulator's sources, for any makefile. Compile them as C++17 with -fPIC, never with a
# sanitizer: they look for its runtime when the program starts.
PLEMU_SOURCES = block.cpp capture.cpp copy.cpp copy_async.cpp event.cpp fiber.cpp guard.cpp \
  launch.cpp memory.cpp properties.cpp settings.cpp stream.cpp
