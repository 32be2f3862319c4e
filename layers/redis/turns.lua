-- One exchange of a process with the budgets that it uses, all or nothing by
-- the server's clock: it tells of pauses, gives slots back, takes, reserves.
--
-- A budget is a line of slots, one turn each, T apart. The slot of a turn is the
-- latest instant at which it may be used, and burst-1 slots before that is the
-- earliest, when it is due. However the turns are spread over processes, no
-- window then holds more than its length / T + burst of them. Instants are in
-- microseconds since 2026.
--
-- KEYS: the processes, this one's last answer, the end of a fallback, and for
--   each budget its state (hash), the slots given back (by slot) and those
--   reserved (by when due).
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

-- All processes end their fallback at the same time: who did so earlier would
-- have the quota beside the shares of the others.
local rest, left = tonumber(ARGV[6]), 0
if rest > 0 then
  redis.call('SET', KEYS[3], str(now + rest), 'NX', 'PX', math.ceil(rest / 200))
  left = math.max(0, math.min(rest, tonumber(redis.call('GET', KEYS[3])) - now))
end

local function alive(p)
  local till = redis.call('ZSCORE', procs, p)
  return till and tonumber(till) > now
end

-- load reads a budget and puts in order what time has done to it.
local function load(q, hash, free, held)
  local s = redis.call('HMGET', hash, 'next', 'pause', 'length', 'era', 'check', 'rivals', 'version')
  local b = {
    hash = hash, free = free, held = held, t = q.t, n = q.n, slack = (q.n - 1) * q.t, got = {},
    pause = tonumber(s[2]) or 0, length = tonumber(s[3]) or 0, era = s[4] or '0',
    check = tonumber(s[5]) or 0, rivals = tonumber(s[6]) or 1, version = tonumber(s[7]) or 0,
  }
  if b.pause > now + b.length then b.pause = now + b.length end -- the clock went back
  redis.call('ZREMRANGEBYSCORE', free, '-inf', '(' .. str(now))
  redis.call('ZREMRANGEBYSCORE', held, '-inf', str(now))
  b.next = tonumber(s[1]) or 0
  if b.version < q.version then -- the server has lost what the process knows of
    b.next, b.lost, b.version = math.max(b.next, q.floor), true, q.version
  end
  b.version = b.version + 1
  local base = math.max(now, b.pause)
  local most = q.n + redis.call('ZCARD', free) + redis.call('ZCARD', held) + q.most
  b.next = math.min(b.next, base + most * b.t) -- also if the clock went back
  if q.cold then b.next = math.max(b.next, base + q.n * b.t) end
  return b
end

local function pause(b, length)
  if now + length <= b.pause then return end
  b.pause, b.length, b.era = now + length, length, str(now)
  b.next = math.max(b.next, b.pause + b.slack) -- one turn comes with its end, and one after the other
  redis.call('DEL', b.free, b.held)
  redis.call('PUBLISH', channel, 'pause ' .. b.hash .. ' ' .. b.era .. ' ' .. str(length))
end

local function near(b, v) return math.abs(v + b.t - b.next) < b.t / 100 end

local function giveBack(b, slots)
  for _, slot in ipairs(slots) do
    local v = tonumber(slot)
    redis.call('ZREM', b.held, proc .. ':' .. slot)
    if near(b, v) then
      b.next = v
    elseif v >= now then
      redis.call('ZADD', b.free, slot, slot)
    end
  end
  while true do -- the end of the line
    local top = redis.call('ZREVRANGE', b.free, 0, 0)[1]
    if not top or not near(b, tonumber(top)) then return end
    b.next = tonumber(top)
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
    local owner, slot = string.sub(member, 1, colon - 1), string.sub(member, colon + 1)
    if not alive(owner) then
      redis.call('ZREM', b.held, member)
      redis.call('ZADD', b.free, slot, slot)
    elseif not seen[owner] then
      seen[owner] = true
      b.rivals = b.rivals + 1
    end
  end
end

-- due returns n slots that are due, or nil.
local function due(b, n)
  if b.pause > now then return nil end
  local got = redis.call('ZRANGEBYSCORE', b.free, str(now), str(now + b.slack), 'LIMIT', 0, n)
  local freed, next = #got, math.max(b.next, now)
  while #got < n and next <= now + b.slack + b.t / 100 do
    got[#got + 1] = str(next)
    next = next + b.t
  end
  if #got < n then return nil end
  return {slots = got, freed = freed, next = next}
end

local function take(b, d)
  for i = 1, d.freed do redis.call('ZREM', b.free, d.slots[i]) end
  if #d.slots > d.freed then b.next = d.next end
  return d.slots
end

-- further adds slots that are due and keep for a while. They come out of the
-- burst, of which half is left. Those that keep for less are there for others.
local function further(b, slots, n, hold)
  if now + hold - math.max(b.next, now) > 64 * b.t then return end
  while n > 0 do
    local v = math.max(b.next, now)
    if v > now + b.slack / 2 then return end
    b.next = v + b.t
    if v < now + hold then
      redis.call('ZADD', b.free, str(v), str(v))
    else
      slots[#slots + 1] = str(v)
      n = n - 1
    end
  end
end

local function reserve(b, n)
  for i = 1, n do
    local slot = redis.call('ZPOPMIN', b.free)[1]
    if not slot then
      local v = math.max(b.next, now)
      slot, b.next = str(v), v + b.t
    end
    local at = tonumber(slot) - b.slack
    if at > now then redis.call('ZADD', b.held, str(at), proc .. ':' .. slot) end
    b.got[i] = slot
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
local function add(slots)
  out[#out + 1] = #slots
  for _, slot in ipairs(slots) do out[#out + 1] = slot end
end
for i, q in ipairs(request.budgets) do
  local b = budgets[i]
  reserve(b, q.want)
  redis.call('HSET', b.hash, 'next', str(b.next), 'pause', str(b.pause), 'length', str(b.length),
    'era', b.era, 'check', str(b.check), 'rivals', b.rivals, 'version', b.version)
  local keep = math.ceil((math.max(b.next, b.pause, now) - now + 5 * lease) / 1000)
  for _, key in ipairs({b.hash, b.free, b.held}) do redis.call('PEXPIRE', key, keep) end
  local first = tonumber(redis.call('ZRANGE', b.free, 0, 0)[1]) or math.max(b.next, now)
  out[#out + 1] = b.version
  out[#out + 1] = str(b.next)
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
