"""The Lua scripts of the service's storage in Redis, and the layout of its keys.

All documents of a kind are in one slot, and so is their order, so each script has one slot:

    d   hash: by key, `version:expires:stamp:value` (expires is empty for a document that is kept for ever)
    o   sorted set: the keys, all with the score 0, which sorts them by their bytes
    x   sorted set: the keys of documents that expire, by time
    v   the last version

Event logs are spread over `BUCKETS` slots. The events of a run are a list, whose positions are their numbers. A stream
would have to translate numbers to ids, and needs more memory. Of the logs in a bucket:

    l   sorted set: runs, by the time of the last append
    e   set: runs that have ended
    s:  and the name of a run: list of events

The key `kinds`, in a slot of its own, is a set of the kinds that have documents, for `purge`.
"""

from __future__ import annotations

from longtalk.stores.redis.command import Script

BUCKETS = 64
"""The number of slots over which logs are spread. Other buckets than those that wrote a log would not find it."""

_PARSE = """
-- Return version, stamp and whether a document is live, or nothing if there is no document.
local function parse(stored, now)
    if stored then
        local version, expires, stamp = string.match(stored, '^(%d+):(%-?%d*):(%x+):')
        return version, stamp, expires == '' or tonumber(expires) > tonumber(now)
    end
end
"""

PUT = Script(
    _PARSE
    + """
local documents, order, expiry, counter = unpack(KEYS)
local key, value, expect, expires, now, stamp = unpack(ARGV)
local version, last_stamp, live = parse(redis.call('HGET', documents, key), now)
if last_stamp == stamp then return version end
if expect ~= '' and expect ~= (live and version or '0') then return false end
version = string.format('%.0f', redis.call('INCR', counter))
redis.call('HSET', documents, key, version .. ':' .. expires .. ':' .. stamp .. ':' .. value)
redis.call('ZADD', order, 0, key)
if expires == '' then redis.call('ZREM', expiry, key) else redis.call('ZADD', expiry, expires, key) end
return version
"""
)
"""Store a document and return its version, or nil if it doesn't have the expected version."""

DELETE = Script(
    _PARSE
    + """
local documents, order, expiry = unpack(KEYS)
local key, expect, now = unpack(ARGV)
local version, _, live = parse(redis.call('HGET', documents, key), now)
if not live or (expect ~= '' and expect ~= version) then return 0 end
redis.call('HDEL', documents, key)
redis.call('ZREM', order, key)
redis.call('ZREM', expiry, key)
return 1
"""
)

LIST = Script(
    _PARSE
    + """
local documents, order = unpack(KEYS)
local start, stop, now, limit = unpack(ARGV)
limit = tonumber(limit)
local found = {}
while #found < 2 * limit do
    local count = math.min(limit - #found / 2, 100)
    local keys = redis.call('ZRANGEBYLEX', order, start, stop, 'LIMIT', 0, count)
    if #keys == 0 then break end
    local values = redis.call('HMGET', documents, unpack(keys))
    for i, key in ipairs(keys) do
        local _, _, live = parse(values[i], now)
        if live then
            found[#found + 1] = key
            found[#found + 1] = values[i]
        end
    end
    start = '(' .. keys[#keys]
end
return found
"""
)
"""Return keys and stored documents in turn, in the order of keys."""

APPEND = Script(
    """
local list, logs, ended = unpack(KEYS)
local run, first, ends, at, channel = unpack(ARGV, 1, 5)
if redis.call('SISMEMBER', ended, run) == 1 or redis.call('LLEN', list) ~= tonumber(first) then return 0 end
if #ARGV == 5 and ends == '0' and redis.call('ZSCORE', logs, run) then return 1 end
for i = 6, #ARGV, 1000 do
    redis.call('RPUSH', list, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
redis.call('ZADD', logs, at, run)
if ends == '1' then redis.call('SADD', ended, run) end
redis.call('PUBLISH', channel, run)
return 1
"""
)
"""Append events and return 1, or return 0 if the log has another number of events or has ended."""

READ = Script(
    """
local list, logs, ended = unpack(KEYS)
local run, first, last = unpack(ARGV)
if not redis.call('ZSCORE', logs, run) then return false end
local events = {}
if tonumber(last) >= tonumber(first) then events = redis.call('LRANGE', list, first, last) end
return {redis.call('LLEN', list), redis.call('SISMEMBER', ended, run), events}
"""
)

PURGE = Script(
    """
local documents, order, expiry = unpack(KEYS)
local keys = redis.call('ZRANGEBYSCORE', expiry, '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, key in ipairs(keys) do
    redis.call('HDEL', documents, key)
    redis.call('ZREM', order, key)
    redis.call('ZREM', expiry, key)
end
return #keys
"""
)
"""Delete some of the documents that have expired, and return how many."""

DROP = Script(
    """
local list, logs, ended = unpack(KEYS)
local run, before = unpack(ARGV)
local at = redis.call('ZSCORE', logs, run)
if not at or tonumber(at) >= tonumber(before) then return 0 end
redis.call('DEL', list)
redis.call('ZREM', logs, run)
redis.call('SREM', ended, run)
return 1
"""
)
"""Delete a log whose last append was before a time, and return 1 if there is one."""
