-- Bodies of about 254 KiB for `wrk`, of four kinds:
--   wrk -t1 -c100 -d60s --latency --timeout 60s -s tests/tools/bench/service.lua http://127.0.0.1:8000/api/traces -- long
--   long   a trace with 254 steps of 1 KiB, which is stored
--   small  a trace with 6,000 steps of one letter, which is refused
--   ids    6,670 ids to export, none of which is there        (/api/tunix/sft/export)
--   calls  samples of tool calls, JSON Lines of a file          (/api/toolcalls/validate; -- calls FILE)
local function trace(steps)
  return '{"trace_version":"1.0","prompt":"p","final_answer":"f","steps":[' .. table.concat(steps, ",") .. "]}"
end

local kinds = {
  long = function()
    local steps = {}
    for i = 1, 254 do
      steps[i] = string.format('{"i":%d,"type":"reasoning","content":"%s"}', i - 1, string.rep("a step of words ", 61))
    end
    return trace(steps)
  end,
  small = function()
    local steps = {}
    for i = 1, 6000 do steps[i] = string.format('{"i":%d,"type":"t","content":"c"}', i - 1) end
    return trace(steps)
  end,
  ids = function()
    local ids = {}
    for i = 1, 6670 do ids[i] = string.format('"00000000-0000-4000-8000-%012d"', i) end
    return '{"trace_ids":[' .. table.concat(ids, ",") .. "]}"
  end,
  calls = function(name)
    local file = io.open(name, "rb")
    local text = file:read("*a")
    file:close()
    text = string.rep(text, 1 + math.floor(254 * 1024 / #text)):sub(1, 254 * 1024)
    return text:match("^(.*\n)")
  end,
}

function init(words)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = words[1] == "calls" and "application/x-ndjson" or "application/json"
  wrk.body = kinds[words[1]](words[2])
end
