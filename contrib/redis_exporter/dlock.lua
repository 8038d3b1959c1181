-- INFO dlock for redis_exporter: redis_exporter -script dlock.lua
-- It wants keys and values in turn, all as strings; values are numbers. See docs/monitoring.md.
--
-- Each number has its name in INFO. What contrib/prometheus/alerts.yml uses has a second one, that of
-- `dlock exporter` with its labels: prometheus.yml in this folder makes metrics of these.

local result = { "dlock_up", "1" }

local function add(name, value)
  table.insert(result, name)
  table.insert(result, value)
end

local lost = 'dlock_holds_lost_total{reason="%s"}'
local refused = 'dlock_refusals_total{code="%s"}'
local metrics = {
  dlock_expiries = { string.format(lost, "expired"), 1 },
  dlock_disconnected = { string.format(lost, "disconnected"), 1 },
  dlock_unclaimed = { string.format(lost, "unclaimed"), 1 },
  dlock_evicted = { string.format(lost, "evicted"), 1 },
  dlock_deadlocks_refused = { "dlock_deadlocks_refused_total", 1 },
  dlock_deadlock_searches_cut = { "dlock_deadlock_searches_cut_total", 1 },
  dlock_refused_notheld = { string.format(refused, "NOTHELD"), 1 },
  dlock_refused_stale = { string.format(refused, "STALE"), 1 },
  dlock_panics_caught = { "dlock_panics_caught_total", 1 },
  dlock_quarantine_left_ms = { "dlock_quarantine_left_seconds", 1e3 },
  dlock_quarantine_age_ms = { "dlock_quarantine_age_seconds", 1e3 },
  dlock_quarantine_length_ms = { "dlock_quarantine_length_seconds", 1e3 },
  dlock_alarm_late_last_us = { "dlock_alarm_late_last_seconds", 1e6 },
  dlock_alarm_late_worst_us = { "dlock_alarm_late_worst_seconds", 1e6 },
}

for name, value in string.gmatch(redis.call("INFO", "dlock"), "(dlock_[%w_]+):([^\r\n]*)") do
  local family = string.match(name, "^dlock_(%w+)_waited_buckets$")
  if string.match(value, "^%d+$") then
    add(name, value)
    local metric = metrics[name]
    if metric then
      add(metric[1], metric[2] == 1 and value or string.format("%.6f", value / metric[2]))
    end
  elseif string.match(value, "^count=") then
    -- count=12,sum=3400,p50=210,p99=900,p99.9=900,max=910 in microseconds
    for figure, number in string.gmatch(value, "([%w%.]+)=(%d+)") do
      add(name .. "_" .. string.gsub(figure, "%.", "_"), number)
    end
  elseif family then
    -- 100=0,250=7,inf=12: microseconds, cumulative
    for bound, number in string.gmatch(value, "(%w+)=(%d+)") do
      local le = bound == "inf" and "+Inf" or string.format("%.6f", bound / 1e6)
      add(string.format('dlock_wait_seconds_bucket{family="%s",le="%s"}', family, le), number)
    end
  end
end

return result
