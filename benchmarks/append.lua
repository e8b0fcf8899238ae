-- Appends of one size, spread evenly over a set of streams.
--
--   wrk -s append.lua URL -- PREFIX STREAMS SIZE CONTENT_TYPE
--
-- Stream number i is PREFIX .. i, for i from 0 to STREAMS - 1. The streams are
-- visited in steps of a prime, so that every stream gets the same share but
-- neighbours are not visited one after the other.
--
-- Every response has to have a 2xx status; others are counted as refused.
-- done() prints one line that begins with "RESULT " and goes on as JSON.
-- Times are in microseconds.

local STEP = 7919

local threads = {}
local head, tail, streams
local position = 0

refused = 0 -- global, so that done() can ask each thread for it

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  local prefix, size, content_type
  prefix, streams, size, content_type = args[1], tonumber(args[2]), tonumber(args[3]), args[4]
  head = "POST " .. prefix
  tail = " HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port
    .. "\r\nContent-Type: " .. content_type
    .. "\r\nContent-Length: " .. size
    .. "\r\n\r\n" .. string.rep("x", size)
end

function request()
  position = (position + STEP) % streams
  return head .. position .. tail
end

function response(status)
  if status < 200 or status > 299 then
    refused = refused + 1
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  local refused_by_all = 0
  for _, thread in ipairs(threads) do
    refused_by_all = refused_by_all + thread:get("refused")
  end
  io.write(string.format(
    'RESULT {"requests":%d,"duration_us":%d,"refused":%d,"socket_errors":%d,'
      .. '"timeouts":%d,"p50_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d}\n',
    summary.requests, summary.duration, refused_by_all,
    errors.connect + errors.read + errors.write, errors.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    latency.max))
end
