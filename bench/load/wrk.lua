-- wrk -s wrk.lua URL -- FILE PER_SECOND: requests of a file, one a line, at a fixed rate over all connections.
-- A line: method, path, body ('-' = none), headers as name=value, separated by tabs. wrk itself has no rate: each request
-- is given the next instant of one schedule, and waits for it (`delay`), whichever connection is free.
local ffi = require("ffi")
ffi.cdef [[
typedef struct { long s; long ns; } outlast_time;
int clock_gettime(int clock, outlast_time *now);
]]
local time = ffi.new("outlast_time")

local function now_ms()
  ffi.C.clock_gettime(1, time)
  return tonumber(time.s) * 1000 + tonumber(time.ns) / 1e6
end

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  requests, at, due = {}, 0, nil
  refused, failed, asked = 0, 0, 0
  step = 1000 / tonumber(args[2])
  for line in io.lines(args[1]) do
    local parts = {}
    for part in line:gmatch("[^\t]+") do table.insert(parts, part) end
    local headers = {}
    for i = 4, #parts do
      local name, value = parts[i]:match("^([^=]+)=(.*)$")
      headers[name] = value
    end
    local body = parts[3] ~= "-" and parts[3] or nil
    if body then headers["Content-Type"] = "application/json" end
    table.insert(requests, { parts[1], parts[2], headers, body })
  end
end

function delay()
  local now = now_ms()
  if due == nil then due = now end
  local pause = due - now
  due = due + step
  if pause < 0 then pause = 0 end
  return math.floor(pause + 0.5)
end

function request()
  at = at + 1
  local each = requests[at]
  if each == nil then
    at = #requests
    each = requests[at]
    wrk.thread:stop()
  end
  asked = asked + 1
  return wrk.format(each[1], each[2], each[3], each[4])
end

function response(status)
  if status >= 500 then failed = failed + 1 elseif status >= 400 then refused = refused + 1 end
end

function done(summary, latency)
  local refused, failed = 0, 0
  for _, thread in ipairs(threads) do
    refused = refused + thread:get("refused")
    failed = failed + thread:get("failed")
  end
  local e = summary.errors
  io.write(string.format(
    'JSON {"count":%d,"seconds":%.3f,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f,"refused":%d,"failed":%d,"broken":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, refused, failed, e.connect + e.read + e.write + e.timeout))
end
