-- INFO dlock for redis_exporter: redis_exporter -script dlock.lua
-- It wants keys and values in turn, all as strings; values are numbers. See docs/monitoring.md.

local result = {}

local function add(name, value)
  table.insert(result, name)
  table.insert(result, value)
end

for name, value in string.gmatch(redis.call("INFO", "dlock"), "(dlock_[%w_]+):([^\r\n]*)") do
  if string.match(value, "^%d+$") then
    add(name, value)
  elseif string.match(value, "^count=") then
    -- count=12,sum=3400,p50=210,p99=900,p99.9=900,max=910 in microseconds
    for figure, number in string.gmatch(value, "([%w%.]+)=(%d+)") do
      add(name .. "_" .. string.gsub(figure, "%.", "_"), number)
    end
  end
end

return result
