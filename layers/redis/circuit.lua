-- One step of a circuit, by the server's clock. Its era is new with each change
-- of state: what belongs to an earlier one counts for nothing, and so does what
-- is told twice.
--
-- KEYS: the state (hash), the probes not settled (by the end of their lease).
-- ARGV: what to do, id of the probe, era, open time, its longest, what it is
--   multiplied with, number of probes, channel, how much longer it is open as
--   far as the process knows.
local clock = redis.call('TIME')
local now = (clock[1] - 1767225600) * 1000000 + clock[2]
local function str(x) return string.format('%.17g', x) end

local hash, probes = KEYS[1], KEYS[2]
local what, id, era, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[8]
local open, longest, spread, most, known = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9])

local s = redis.call('HMGET', hash, 'state', 'era', 'until', 'length', 'opens', 'good')
local c = {
  state = s[1] or 'closed', era = s[2] or '0', till = tonumber(s[3]) or 0, length = tonumber(s[4]) or 0,
  opens = tonumber(s[5]) or 0, good = tonumber(s[6]) or 0,
}
if c.till > now + c.length then c.till = now + c.length end -- the clock went back
local ours = not s[2] or era == c.era -- also if the server has lost it

local function change(state)
  c.state, c.era, c.good = state, str(now), 0
  redis.call('DEL', probes)
  redis.call('PUBLISH', channel, 'circuit ' .. hash .. ' ' .. state .. ' ' .. c.era .. ' ' .. str(math.max(0, c.till - now)))
end

local function opens(length)
  c.till, c.length = now + length, length
  c.opens = c.opens + 1
  change('open')
end

local function trip()
  local length = math.min(open * 2 ^ math.min(c.opens, 60), math.max(open, longest))
  opens(length * spread)
end

redis.call('ZREMRANGEBYRANK', probes, 0, -1001) -- of those given up, the latest can still succeed
redis.call('ZREMRANGEBYSCORE', probes, str(now + open + 1000000), '+inf') -- leased by a clock that went back
local over = '(' .. str(now) -- the lease of a probe ends later, if it has one
local function leased() return (tonumber(redis.call('ZSCORE', probes, id)) or 0) > now end
local granted, wait = 0, 0
if what == 'trip' and c.state == 'closed' and ours then
  trip()
elseif what == 'look' and not s[2] and known > 0 then
  opens(known)
elseif what == 'probe' and c.state == 'open' and c.till <= now then
  if leased() then
    granted = 1
  elseif redis.call('ZCOUNT', probes, over, '+inf') + c.good < most then
    redis.call('ZADD', probes, str(now + open), id)
    granted = 1
  else
    local first = redis.call('ZRANGEBYSCORE', probes, over, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    wait = first and tonumber(first) - now or 0
  end
elseif what == 'sent' and leased() then
  redis.call('ZADD', probes, str(now + open), id)
elseif what == 'neutral' or what == 'success' or what == 'failure' then
  local late = not leased()
  local counts = redis.call('ZREM', probes, id) == 1 and era == c.era and c.state == 'open'
  if counts and what == 'failure' and not late then
    trip()
  elseif counts and what == 'success' then -- late too, or a slow server would be shut out for ever
    c.good = c.good + 1
    if c.good >= most then
      c.opens, c.till = 0, 0
      change('closed')
    end
  end
end
if s[2] or c.era ~= '0' then
  redis.call('HSET', hash, 'state', c.state, 'era', c.era, 'until', str(c.till), 'length', str(c.length), 'opens', c.opens, 'good', c.good)
  local keep = math.ceil(10 * math.max(open, longest, 360000000) / 1000)
  redis.call('PEXPIRE', hash, keep)
  redis.call('PEXPIRE', probes, keep)
end
return table.concat({c.state, c.era, str(math.max(0, c.till - now)), granted, str(wait)}, ' ')
