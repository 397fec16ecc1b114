-- What wrk sends: one notification a request, each with a key of its own, and a line of JSON at the end.
-- "user-?" in a body is one of BENCH_PEOPLE people, chosen anew for each request.
local bodies = {}
for body in os.getenv("BENCH_BODIES"):gmatch("[^\n]+") do
  bodies[#bodies + 1] = body
end
local run = os.getenv("BENCH_RUN")
local people = tonumber(os.getenv("BENCH_PEOPLE") or "0")
local number = 0

request = function()
  number = number + 1
  local body = bodies[number % #bodies + 1]
  if people > 0 then
    body = body:gsub("user%-%?", "user-" .. math.random(0, people - 1))
  end
  return wrk.format("POST", "/api/v1/notifications/send",
    { ["Content-Type"] = "application/json", ["Idempotency-Key"] = run .. "-" .. number }, body)
end

done = function(summary, latency, requests)
  local bad = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
  io.write(string.format('{"rate": %.3f, "bad": %d, "p50_ms": %.3f, "p99_ms": %.3f}\n',
    summary.requests / summary.duration * 1000000, bad,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
