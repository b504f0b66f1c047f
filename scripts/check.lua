-- SPDX-License-Identifier: MIT
-- Runs the specs: luajit scripts/check.lua [SPEC FILES]; `make check` sets the environment.
-- Each file runs in a busted process of its own under a time limit, PERILUNE_CHECK_JOBS at a time, longest first (by
-- the times of the run before).  Invariant: every file is accounted for: one that crashed, ran too long, left no
-- result or ran no test is a failure by name.  Ends with "N passed, N failed" and a status to match.

local source = assert(os.getenv "PERILUNE_SRCDIR", "run this by make check")
local build = assert(os.getenv "PERILUNE_BUILDDIR", "run this by make check")
local preload = os.getenv "PERILUNE_PRELOAD" or ""
local limit = tonumber(os.getenv "PERILUNE_CHECK_SECONDS") or (preload == "" and 600 or 1800)
local dir = build .. "/check"

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function lines(command)
  local list = {}
  local pipe = assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

local function read(path)
  local file = io.open(path)
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  assert(file:write(text))
  assert(file:close())
end

--- Where the run of spec `file` leaves its log, result and status.
local function place(file) return dir .. "/" .. file:gsub("/", "_") end

--- Exit status and seconds of the last run of `file`, or nil.
local function status(file)
  local code, seconds = (read(place(file) .. ".status") or ""):match "^(%d+) (%S+)"
  return tonumber(code), tonumber(seconds)
end

local function longest_first(files)
  local seconds = {}
  for _, file in ipairs(files) do seconds[file] = select(2, status(file)) or math.huge end
  table.sort(files, function(a, b)
    if seconds[a] ~= seconds[b] then return seconds[a] > seconds[b] end
    return a < b
  end)
end

local jobs = tonumber(os.getenv "PERILUNE_CHECK_JOBS") or math.min(4, tonumber(lines "nproc"[1]) or 1)

-- One spec file: $1.  Its environment is set below.
local one = [[
out="$DIR/$(printf %s "$1" | tr / _)"
begin=$(date +%s%N)
PERILUNE_RESULT="$out.result" timeout -k 10 "$LIMIT" env LD_PRELOAD="$PERILUNE_PRELOAD" \
  "$LUAJIT" scripts/busted.lua --output=spec/support/summary.lua "$1" >"$out.log" 2>&1 </dev/null
code=$?
ms=$(( ($(date +%s%N) - begin) / 1000000 ))
echo "$code $((ms / 1000)).$(printf %03d $((ms % 1000)))" >"$out.status"
if [ -f "$out.result" ]; then said=$(tail -n 1 "$out.log"); else said="no result, status $code"; fi
printf '%4d.%d s  %s: %s\n' $((ms / 1000)) $((ms % 1000 / 100)) "$1" "$said"
]]

local environment = {
  LUAJIT = os.getenv "LUAJIT" or "luajit",
  DIR = dir,
  LIMIT = tostring(limit),
  PERILUNE_PRELOAD = preload,
  PERILUNE_LAUNCHER = build .. "/perilune",
  LUA_PATH = ("%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;%s"):format(source, source, source,
    os.getenv "LUA_PATH" or ";"),
  LUA_CPATH = ("%s/lib/?.so;%s"):format(build, os.getenv "LUA_CPATH" or ";"),
  -- LuaJIT's own heap holds no leaks when the state is closed, so what is reported is ours.
  ASAN_OPTIONS = os.getenv "ASAN_OPTIONS" or "detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=64",
  UBSAN_OPTIONS = os.getenv "UBSAN_OPTIONS" or "halt_on_error=1:print_stacktrace=1",
  TSAN_OPTIONS = os.getenv "TSAN_OPTIONS" or "halt_on_error=1",
}

local function run(files)
  for _, file in ipairs(files) do
    for _, suffix in ipairs { ".log", ".result", ".status" } do os.remove(place(file) .. suffix) end
  end
  local command = { "cd", quote(source), "&&", "env" }
  for name, value in pairs(environment) do command[#command + 1] = name .. "=" .. quote(value) end
  write(dir .. "/files", table.concat(files, "\n") .. "\n")
  command[#command + 1] = ("xargs -P %d -n 1 sh -c %s sh <%s"):format(jobs, quote(one), quote(dir .. "/files"))
  os.execute(table.concat(command, " "))
end

--- What happened to the process of `file`, where the counts do not tell; nil when all is well.
local function trouble(file, result)
  local code = status(file)
  if not code then return "did not run" end
  if code == 124 or code == 137 then return ("ran past the limit of %d s"):format(limit) end
  if code > 128 then return ("died by signal %d"):format(code - 128) end
  if not result then return ("ended early with status %d"):format(code) end
  if code ~= 0 and #result.failed == 0 then return ("ended with status %d after its tests"):format(code) end
  if result.passed + #result.failed + #result.skipped == 0 then return "ran no test" end
end

local function tail(file, count)
  local log = {}
  for line in (read(place(file) .. ".log") or ""):gmatch "[^\n]+" do log[#log + 1] = line end
  return table.concat(log, "\n    ", math.max(1, #log - count + 1))
end

local files = { unpack(arg) }
if #files == 0 then
  for word in (os.getenv "PERILUNE_SPEC" or ""):gmatch "%S+" do files[#files + 1] = word end
end
if #files == 0 then files = lines(("cd %s && find spec -name '*_spec.lua' | sort"):format(quote(source))) end
os.execute("mkdir -p " .. quote(dir))
longest_first(files)
io.stdout:setvbuf "line"
run(files)

local passed, failed, skipped, times = 0, {}, {}, {}
for _, file in ipairs(files) do
  local text = read(place(file) .. ".result")
  local result = text and assert(loadstring(text))()
  local wrong = trouble(file, result)
  if result then
    passed = passed + result.passed
    for _, line in ipairs(result.skipped) do skipped[#skipped + 1] = line end
    for _, line in ipairs(result.failed) do failed[#failed + 1] = line end
  end
  if wrong then failed[#failed + 1] = ("FAILED %s: %s\n    %s"):format(file, wrong, tail(file, 40)) end
  times[#times + 1] = { file = file, seconds = select(2, status(file)) or 0 }
end

table.sort(times, function(a, b) return a.seconds > b.seconds end)
print "\nslowest:"
for i = 1, math.min(10, #times) do print(("%8.2f s  %s"):format(times[i].seconds, times[i].file)) end
for _, list in ipairs { skipped, failed } do
  if #list > 0 then print("\n" .. table.concat(list, "\n")) end
end
local total = ("%d passed, %d failed"):format(passed, #failed)
if #skipped > 0 then total = ("%s, %d skipped"):format(total, #skipped) end
write(dir .. "/total", total .. "\n")
-- PERILUNE_TOTAL=later: whoever calls prints it after make has had its say.
if os.getenv "PERILUNE_TOTAL" ~= "later" then print("\n" .. total) end
os.exit(passed > 0 and #failed == 0)
