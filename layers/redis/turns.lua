-- One exchange of a process with the budgets that it uses, all or nothing by
-- the server's clock: it tells of pauses, gives slots back, takes, reserves.
--
-- A budget is a line of slots, one turn each, T apart. The slot of a turn is the
-- latest instant at which it may be used, and burst-1 slots before that is the
-- earliest, when it is due. However the turns are spread over processes, no
-- window then holds more than its length / T + burst of them. Instants are in
-- microseconds since 2026. Slots that follow each other are told and kept as a
-- run: the first, "*" and their number.
--
-- KEYS: the processes, this one's last answer, the end of a fallback, and for
--   each budget its state (hash), the runs given back (by slot) and those
--   reserved (by when the last is due).
-- ARGV: process, number of the exchange, lease, channel, request as JSON, how
--   long a fallback lasts that this exchange finds over; 0: there is none.
local clock = redis.call('TIME')
local now = (clock[1] - 1767225600) * 1000000 + clock[2]
local function str(x) return string.format('%.17g', x) end

local procs, answer = KEYS[1], KEYS[2]
local proc, number, lease, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local request = cjson.decode(ARGV[5])

-- Asked again, since the answer was lost: it counts once.
local last = redis.call('GET', answer)
if last then
  local space = string.find(last, ' ', 1, true)
  if string.sub(last, 1, space - 1) == number then return string.sub(last, space + 1) end
end

redis.call('ZADD', procs, str(now + lease), proc) -- first, and so refused whole when memory is full
redis.call('ZREMRANGEBYSCORE', procs, '-inf', str(now - 9 * lease))
redis.call('ZREMRANGEBYSCORE', procs, str(now + 9 * lease), '+inf') -- by a clock that went back
redis.call('PEXPIRE', procs, math.ceil(lease / 100))
if request.own ~= '' then redis.call('PUBLISH', request.own, '') end

-- All processes end their fallback at the same time: who did so earlier would
-- have the quota beside the shares of the others.
local rest, left = tonumber(ARGV[6]), 0
if rest > 0 then
  local till = tonumber(redis.call('GET', KEYS[3]))
  -- None yet, or one by a clock that went back, or of an earlier fallback.
  if not till or till > now + rest + 9 * lease or till < now - request.down then
    till = now + rest
    redis.call('SET', KEYS[3], str(till), 'PX', math.ceil(rest / 200))
  end
  left = math.max(0, math.min(rest, till - now))
end

local function run(v, k) return str(v) .. '*' .. k end

local function parse(text)
  local star = string.find(text, '*', 1, true)
  return tonumber(string.sub(text, 1, star - 1)), tonumber(string.sub(text, star + 1))
end

local function alive(p)
  local till = redis.call('ZSCORE', procs, p)
  return till and tonumber(till) > now
end

-- free has a run ready for whoever asks.
local function free(b, v, k)
  if k > 0 then redis.call('ZADD', b.free, str(v), run(v, k)) end
end

-- ahead is how many of the first turns of a run lie before an instant.
local function ahead(b, v, k, at) return math.min(k, math.max(0, math.ceil((at - v) / b.t))) end

-- load reads a budget and puts in order what time has done to it.
local function load(q, hash, free_, held)
  local s = redis.call('HMGET', hash, 'next', 'pause', 'length', 'era', 'check', 'rivals', 'version', 'at', 't', 'born')
  local b = {
    hash = hash, free = free_, held = held, t = q.t, n = q.n, slack = (q.n - 1) * q.t, got = {},
    pause = tonumber(s[2]) or 0, length = tonumber(s[3]) or 0, era = s[4] or '0',
    check = tonumber(s[5]) or 0, rivals = tonumber(s[6]) or 1,
    version = tonumber(s[7]) or now, born = tonumber(s[10]) or s[7] and 0 or now, -- 0: an earlier weir's
  }
  b.next = tonumber(s[1]) or 0
  -- The clock was set if the last exchange is to come, or if more time has passed
  -- since than the process has seen pass since its own. What is to come is then as
  -- far away as before, and who has turns by the old time forgets them.
  local at, expect, jump = tonumber(s[8]) or now, q.expect, 0
  if at > now + 1000000 then
    jump = now - at
  elseif expect > 0 and now > expect + 1000000 and at < expect + 1000000 then
    jump = now - expect
  end
  if jump ~= 0 then
    b.next, b.pause, b.era = b.next + jump, b.pause + jump, str(now)
    redis.call('DEL', free_, held)
  end
  local was, base = tonumber(s[9]) or b.t, math.max(now, b.pause)
  if was ~= b.t then -- a new rate: as many turns are owed as before
    if b.next > base then b.next = base + (b.next - base) * b.t / was end
    redis.call('DEL', free_, held)
  end
  -- Versions begin with the time: those that a process has seen of what the server
  -- has lost since are later than the last, or from before the first. Who knows more
  -- of it than this process is to tell it.
  if b.version < q.version then
    b.version = math.max(now, q.version + 1)
    b.born = b.version
  end
  if b.born == b.version then
    redis.call('DEL', free_, held) -- which may have been given out since
    redis.call('PUBLISH', channel, 'lost ' .. hash)
  end
  if 0 < q.version and q.version < b.born then b.next, b.lost = math.max(b.next, now + q.floor), true end
  b.version = b.version + 1
  redis.call('ZREMRANGEBYSCORE', held, '-inf', str(now))
  for _, text in ipairs(redis.call('ZRANGEBYSCORE', free_, '-inf', '(' .. str(now))) do
    redis.call('ZREM', free_, text)
    local v, k = parse(text)
    local i = ahead(b, v, k, now)
    free(b, v + i * b.t, k - i)
  end
  if q.cold then b.next = math.max(b.next, math.max(now, b.pause) + q.n * b.t) end
  return b
end

local function pause(b, length)
  if now + length <= b.pause then return end
  b.pause, b.length, b.era = now + length, length, str(now)
  b.next = math.max(b.next, b.pause + b.slack) -- one turn comes with its end, and one after the other
  redis.call('DEL', b.free, b.held)
  redis.call('PUBLISH', channel, 'pause ' .. b.hash .. ' ' .. b.era .. ' ' .. str(length))
end

local function last(b, v, k) return math.abs(v + k * b.t - b.next) < b.t / 100 end

local function giveBack(b, runs)
  for _, r in ipairs(runs) do
    local v, k = r[1], r[2]
    redis.call('ZREM', b.held, proc .. ':' .. r[3])
    if r[4] ~= b.t then -- at an earlier rate
      local left = math.min(k, math.max(0, k - math.ceil((now - v) / r[4])))
      if b.next > now then b.next = math.max(now, b.next - left * b.t) end
    elseif last(b, v, k) then
      b.next = v
    else
      local i = ahead(b, v, k, now)
      free(b, v + i * b.t, k - i)
    end
  end
  while true do -- the end of the line
    local top = redis.call('ZREVRANGE', b.free, 0, 0)[1]
    if not top then return end
    local v, k = parse(top)
    if not last(b, v, k) then return end
    b.next = v
    redis.call('ZREM', b.free, top)
  end
end

-- reclaim gives back, now and then, what the dead had reserved and cannot have
-- used.
local function reclaim(b)
  if now < b.check and b.check < now + lease then return end
  b.check, b.rivals = now + lease / 4, 1
  local seen = {[proc] = true}
  for _, member in ipairs(redis.call('ZRANGE', b.held, 0, -1)) do
    local colon = string.find(member, ':', 1, true)
    local owner = string.sub(member, 1, colon - 1)
    if not alive(owner) then
      redis.call('ZREM', b.held, member)
      local v, k = parse(string.sub(member, colon + 1))
      local i = ahead(b, v, k, now + b.slack)
      free(b, v + i * b.t, k - i)
    elseif not seen[owner] then
      seen[owner] = true
      b.rivals = b.rivals + 1
    end
  end
end

-- pick finds n slots before an instant, in the order of the line. It returns
-- nil if there are fewer, or else what to do to have them.
local function pick(b, n, before)
  local p = {runs = {}, used = {}, next = b.next}
  local at = 0
  while n > 0 do
    local text = redis.call('ZRANGE', b.free, at, at)[1]
    if not text then break end
    local v, k = parse(text)
    local m = math.min(n, ahead(b, v, k, before))
    if m == 0 then break end
    p.runs[#p.runs + 1] = {v, m}
    p.used[#p.used + 1] = text
    p.rest = {v + m * b.t, k - m}
    n, at = n - m, at + 1
  end
  if n > 0 then
    local v = math.max(b.next, now)
    if v + (n - 1) * b.t >= before then return nil end
    p.runs[#p.runs + 1] = {v, n}
    p.next = v + n * b.t
  end
  return p
end

local function take(b, p)
  for _, text in ipairs(p.used) do redis.call('ZREM', b.free, text) end
  if p.rest then free(b, p.rest[1], p.rest[2]) end
  b.next = p.next
  return p.runs
end

-- due finds n slots that are due.
local function due(b, n)
  if b.pause > now then return nil end
  return pick(b, n, now + b.slack + b.t / 100)
end

-- further adds slots that are due and keep for a while. They come out of the
-- burst, of which half is left. Those that keep for less are there for others.
local function further(b, runs, n, hold)
  local v = math.max(b.next, now)
  local i = math.max(0, math.ceil((now + hold - v) / b.t))
  local first = v + i * b.t
  n = math.min(n, math.floor((now + b.slack / 2 - first) / b.t) + 1)
  if n < 1 then return end
  free(b, v, i)
  runs[#runs + 1] = {first, n}
  b.next = first + n * b.t
end

local function reserve(b, n)
  if n < 1 then return end
  b.got = take(b, pick(b, n, math.huge))
  for _, r in ipairs(b.got) do
    local at = r[1] + (r[2] - 1) * b.t - b.slack
    if at > now then redis.call('ZADD', b.held, str(at), proc .. ':' .. run(r[1], r[2])) end
  end
end

local budgets = {}
for i, q in ipairs(request.budgets) do
  local b = load(q, KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3])
  if q.pause > 0 and (q.tell or b.lost) then pause(b, q.pause) end
  if q.era == b.era then giveBack(b, q.back) end
  reclaim(b)
  budgets[i] = b
end

local taken = {}
for i, all in ipairs(request.takes) do
  local found = {}
  for j, c in ipairs(all.claims) do
    found[j] = due(budgets[c.budget], c.n)
    if not found[j] then found = nil break end
  end
  for j, c in ipairs(found and all.claims or {}) do
    found[j] = take(budgets[c.budget], found[j])
  end
  if found and all.further > 0 then further(budgets[all.claims[1].budget], found[1], all.further, all.hold) end
  taken[i] = found or false
end

local out = {str(now), redis.call('ZCOUNT', procs, '(' .. str(now), '+inf'), str(left)}
local function add(runs)
  out[#out + 1] = #runs
  for _, r in ipairs(runs) do out[#out + 1] = run(r[1], r[2]) end
end
for i, q in ipairs(request.budgets) do
  local b = budgets[i]
  reserve(b, q.want)
  redis.call('HSET', b.hash, 'next', str(b.next), 'pause', str(b.pause), 'length', str(b.length),
    'era', b.era, 'check', str(b.check), 'rivals', b.rivals, 'version', str(b.version), 'born', str(b.born), 'at', str(now), 't', str(b.t))
  local keep = math.ceil((math.max(b.next, b.pause, now) - now + 5 * lease) / 1000)
  for _, key in ipairs({b.hash, b.free, b.held}) do redis.call('PEXPIRE', key, keep) end
  local first = tonumber(redis.call('ZRANGE', b.free, 0, 0, 'WITHSCORES')[2]) or math.max(b.next, now)
  out[#out + 1] = str(b.version)
  out[#out + 1] = str(b.next - now)
  out[#out + 1] = b.era
  out[#out + 1] = str(math.max(0, b.pause - now))
  out[#out + 1] = str(first - b.slack - now)
  out[#out + 1] = b.rivals
  add(b.got)
end
for _, found in ipairs(taken) do
  out[#out + 1] = found and 1 or 0
  for _, slots in ipairs(found or {}) do add(slots) end
end
local text = table.concat(out, ' ')
redis.call('SET', answer, number .. ' ' .. text, 'PX', math.ceil(lease / 100))
return text
