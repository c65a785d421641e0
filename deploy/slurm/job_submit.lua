-- Validates --comment=kubenergy:allowed-delay=6h,… and reports errors to the submitter. A job that may wait is delayed by a
-- minute, but not beyond its allowed delay, so that it does not start before kubenergy-slurm has processed it. In case of
-- an error the job is submitted without changes; no job is rejected.
--
-- In an existing job_submit.lua, call kubenergy_submit(job_desc) in slurm_job_submit.

local GRACE = 60 -- in seconds; must match internal/slurm/driver.go

local function duration(value)
   local seconds, rest = 0, value
   while rest ~= "" do
      local number, unit, after = rest:match("^(%d+%.?%d*)([hms])(.*)$")
      if number == nil then
         return value == "0" and 0 or nil
      end
      seconds = seconds + tonumber(number) * ({h = 3600, m = 60, s = 1})[unit]
      rest = after
   end
   return value ~= "" and seconds or nil
end

local function number(value) return tonumber(value) end
local function share(value)
   local n = tonumber(value)
   return n and n >= 0 and n <= 1 and n or nil
end
local function flag(value) return (value == "true" or value == "false") or nil end
local function text(value) return value ~= "" and value or nil end
local function instant(value) return value:match("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.?%d*[Z+-]") end

-- Options with their patterns and formats.
local KEYS = {
   ["allowed-delay"] = {duration, "a duration, as 6h or 90m"},
   ["expected-duration"] = {duration, "a duration, as 6h or 90m"},
   ["finish-by"] = {instant, "a time, as 2026-06-01T18:00:00Z"},
   ["run-now"] = {flag, "true or false"},
   ["skip"] = {flag, "true or false"},
   ["strategy"] = {text, "the name of a strategy, as carbon+window"},
   ["carbon-threshold"] = {number, "g/kWh"},
   ["carbon-percentile"] = {number, "1 to 99"},
   ["price-threshold"] = {number, "money per kWh"},
   ["carbon-counts"] = {flag, "true or false"},
   ["performance-weight"] = {share, "0 to 1"},
}

-- read returns the options of a comment, and an error.
local function read(comment)
   local words = (" " .. comment):match("%skubenergy:(%S+)")
   if words == nil then
      if comment:lower():find("kubenergy:", 1, true) then
         return nil, {"nothing that is read follows it in the comment: write kubenergy:allowed-delay=6h, in one word"}
      end
      return nil, {}
   end
   local asked, wrong = {}, {}
   for entry in words:gmatch("[^,]+") do
      local key, value = entry:match("^([^=]*)=?(.*)$")
      local known = KEYS[key]
      if known == nil then
         wrong[#wrong + 1] = key .. " has no effect: there is none of that name here"
      else
         asked[key] = known[1](value)
         if asked[key] == nil then
            wrong[#wrong + 1] = key .. "=" .. value .. " makes no sense, so none of it counts: want " .. known[2]
         end
      end
   end
   return asked, wrong
end

local function submit(job)
   if type(job.comment) ~= "string" then
      return
   end
   local asked, wrong = read(job.comment)
   for _, text in ipairs(wrong) do
      slurm.log_user("kubenergy: %s", text)
   end
   local delay = asked and asked["allowed-delay"]
   local now = job.comment:find("run%-now=true") or job.comment:find("skip=true")
   if #wrong > 0 or not delay or delay <= 0 or now then
      return
   end
   local own = (job.begin_time or 0) > os.time() and (job.begin_time or 0) < 4294967294
   if own or job.reservation ~= nil then
      slurm.log_user("kubenergy: it has a time of its own, which stands")
      return
   end
   if job.admin_comment == nil and delay >= GRACE then
      job.admin_comment = "kubenergy: looked at within a minute"
      job.begin_time = os.time() + GRACE
   end
   slurm.log_user("kubenergy: it may start up to %d minutes later; squeue --start says when", math.floor(delay / 60))
end

function kubenergy_submit(job)
   local fine, why = pcall(submit, job)
   if not fine then
      slurm.log_error("kubenergy: submitted as it is: %s", tostring(why))
   end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   kubenergy_submit(job_desc)
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end
