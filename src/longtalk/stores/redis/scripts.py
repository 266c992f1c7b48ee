"""The Lua scripts of the Redis store, and the layout of its keys.

The server runs each script atomically. The keys of a conversation share a slot, and each script is passed all keys that
it uses, so that a cluster can route it even while the slot migrates. The cost of a script depends on the commit and on
the records of the head, never on the length of the history, which no script reads. A script checks everything before it
changes anything, because Redis doesn't roll back a script that fails.

The keys of a conversation and their contents (decoded in `tree.py`):

    c     hash: the conversation, its branches and its segments
    t, m  hashes: turns and manifests, by turn id
    g     hash: by turn id, the `segment:position:number` of the first entry of each run of consecutive entries
    f     sorted set: the `segment:position:turn` of the first entry of each turn, by position
    q     hash: by request key, the position at which the turn begins, and the request
    r, h  hashes: by record number, the record, and its `segment:position:kind`
    x     hash: the app's metadata of entries, by `segment:position`
    s:N   lists: the entries of segment N

Fields of `c`: `created`, `updated`, `entries`, `meta`; `born`, a random value that no other conversation has;
`version`, which increases with every change that a plan depends on; `segments` and `records`, the last numbers
assigned; `redacted`, the number of redactions; `hot` and `gen` (see `lists.py`). For a segment N: `S:N` is `up:start`,
`F:N` is the last position at which another segment branches off, and `O:N` is set if the segment has a record that only
its own branch may see. For a branch, each followed by a colon and its name: `v` revision, `s` segment, `b` start of the
segment, `n` size, `e` last entry, `u` last turn, `p` numbers of the records in the head, `k` newest token, `l` holder,
`i` expiry and `j` token of the lease, `a` time of the last change, `w` marks of the newest commits.
"""

from __future__ import annotations

from longtalk.stores.redis.connection import Script

PARTS = ("c", "t", "m", "g", "f", "q", "r", "h", "x")
"""The names of a conversation's keys, except for the lists of entries."""
MARK = 8
"""The size of a commit's mark in bytes."""
MARKS = 64
"""The number of marks that a branch remembers."""

_COMMON = """
local C, T, M, G, F, Q, R, H, X = unpack(KEYS, 1, 9)
local ROW = {'v', 's', 'b', 'n', 'e', 'u', 'p', 'k', 'l', 'i', 'j', 'a', 'w'}
local at = 0

local function take()
    at = at + 1
    return ARGV[at]
end

local function row(branch)
    local names = {}
    for i, name in ipairs(ROW) do names[i] = name .. ':' .. branch end
    local found = redis.call('HMGET', C, unpack(names))
    return found[1] and found
end

-- Values of a hash, many at a time: Lua takes no endless lists of arguments.
local function all(key, names)
    local found = {}
    for first = 1, #names, 1000 do
        local some = redis.call('HMGET', key, unpack(names, first, math.min(first + 999, #names)))
        for _, value in ipairs(some) do found[#found + 1] = value end
    end
    return found
end

local function numbers(text)
    local found = {}
    for number in string.gmatch(text, '%d+') do found[#found + 1] = number end
    return found
end

local function head(branch)
    local r = row(branch)
    if not r then return false end
    local shown = numbers(r[7])
    local created = redis.call('HGET', C, 'created')
    local turn = r[6] ~= '' and redis.call('HGET', T, r[6])
    return {r[1], r[2], r[3], r[4], r[5], turn, r[8], r[9], r[10], r[11], r[12], created, all(H, shown), all(R, shown)}
end

-- Whether a commit is among the newest of a branch.
local function made(r, mark)
    for first = 1, #r[13], #mark do
        if string.sub(r[13], first, first + #mark - 1) == mark then return true end
    end
    return false
end
"""

HEAD = Script(_COMMON + "return head(take())")
"""A script that returns the head of a branch."""

RENEW = Script(
    """
local branch, token, till = unpack(ARGV)
if redis.call('HGET', KEYS[1], 'j:' .. branch) ~= token then return 0 end
redis.call('HSET', KEYS[1], 'i:' .. branch, till)
return 1
"""
)
"""A script that extends a lease, given branch, token and expiry. Returns 0 if the token is not that of the lease."""

SETTLE = Script(
    """
local nonce = ARGV[1]
local known = redis.call('HMGET', KEYS[1], 'updated', 'hot')
if not known[1] then return 'none' end
if known[2] and known[2] ~= nonce then
    redis.call('HSET', KEYS[1], 'hot', nonce)
    return 'hot'
end
redis.call('HDEL', KEYS[1], 'hot')
redis.call('HINCRBY', KEYS[1], 'gen', 1)
redis.call('HINCRBY', KEYS[1], 'version', 1)
return known[1]
"""
)
"""A script that marks a conversation as not hot, given its nonce, and returns the time of the last change.

Returns `none` if the conversation doesn't exist. If the conversation has another nonce, the script stores the given one
and returns `hot`.
"""

COOL = Script(
    """
local id, nonce, updated = unpack(ARGV)
if redis.call('HGET', KEYS[2], id) ~= nonce then return 0 end
redis.call('HDEL', KEYS[2], id)
if updated ~= '' then redis.call('ZADD', KEYS[1], '-' .. updated, id) end
return 1
"""
)
"""A script that moves a conversation from the hash of hot ones to the ordered list.

Its arguments are the conversation's id, the nonce and the time of the last change. If the time is empty, the
conversation is only removed from the hash. If it is hot with another nonce, nothing changes.
"""

APPLY = Script(
    _COMMON
    + """
local born, version, branch = take(), take(), take()
local now = redis.call('HMGET', C, 'born', 'version')
if now[1] ~= born or now[2] ~= version then return {'again'} end
while at < #ARGV do
    local name, key, number = take(), KEYS[tonumber(take())], tonumber(take())
    redis.call(name, key, unpack(ARGV, at + 1, at + number))
    at = at + number
end
return {'done', head(branch)}
"""
)
"""A script that runs the commands of a plan if the conversation hasn't changed since the plan read it.

Its arguments are the `born` and `version` that the plan read, a branch, and the commands: for each its name, the index
of its key, the number of its arguments, and the arguments. Returns `done` and the head of the branch, or `again`.
"""

WRITE = Script(
    _COMMON
    + f"local MARKS = {MARKS}"
    + """
local branch, expect, segment, mark = take(), tonumber(take()), take(), take()
local when, cut = take(), take()
local hot, gen, birth = take(), take(), take()
local meta = take()
local holder, till, token = take(), take(), take()
local parent, last = take(), take()
local adds = tonumber(take())
local first = at + 1
at = at + adds

local r = row(branch)
if r and made(r, mark) then
    -- The answer to it was lost. Something is written, so that replicas are waited for.
    redis.call('HSET', C, 'w:' .. branch, r[13])
    return {'done', head(branch)}
end
if tonumber(r and r[1] or 0) ~= expect then return {'moved', head(branch)} end
local is_there = redis.call('EXISTS', C) == 1
if not r and is_there then return {'plan'} end
local known = redis.call('HMGET', C, 'hot', 'gen', 'updated', 'records')
if not known[1] and (hot == '' or (known[2] or '0') ~= gen) then return {'cold', known[2] or '0'} end
r = r or {'0', '1', '0', '0', '', '', '', '0', '', '0', '', '0', ''}
if r[2] ~= segment then return {'segment', r[2]} end
local base, size = tonumber(r[3]), tonumber(r[4])
if cut ~= '' and tonumber(cut) ~= size then return {'plan'} end
if adds > 0 and parent ~= r[5] then return {'parent', r[5]} end
-- The first entries of a segment that goes on with a turn of another one.
if adds > 0 and base > 0 and size == base then return {'plan'} end

local runs, begins = {}, {}
for i = 1, tonumber(take()) do
    local run = {place = size + tonumber(take()), turn = take(), number = take()}
    if begins[run.turn] or redis.call('HEXISTS', G, run.turn) == 1 then return {'plan'} end
    runs[i], begins[run.turn] = run, run.place
end

local turn, data, manifest
if take() == '1' then
    turn, data, manifest = take(), take(), take()
    if redis.call('HEXISTS', T, turn) == 0 then
        if redis.call('HEXISTS', G, turn) == 1 then return {'plan'} end
        if not begins[turn] then return {'turn'} end
    end
end

local key, request
if take() == '1' then
    key, request = take(), take()
    local held = redis.call('HGET', Q, key)
    if held then
        local theirs = cmsgpack.unpack(string.sub(held, string.find(held, ':', 1, true) + 1))
        if theirs[1] ~= turn then return {'taken'} end
        key = nil
    else
        if not begins[turn] and turn ~= r[6] then return {'plan'} end
        local place = begins[turn] or string.match(redis.call('HGET', G, turn), '^%d+:(%d+):%d+$')
        if not place then return {'plan'} end
        request = place .. ':' .. request
    end
end

local records, lowest = {}, size + adds
for i = 1, tonumber(take()) do
    records[i] = {place = take(), kind = take(), data = take(), newest = take(), brief = take(), alone = take()}
    local place = tonumber(records[i].place)
    if place < -1 or place >= size + adds then return {'record'} end
    lowest = math.min(lowest, place)
end
local forked = -1
if #records > 0 then
    local place = redis.call('HMGET', C, 'S:' .. segment, 'F:' .. segment)
    local is_root = not place[1] or string.sub(place[1], 1, 2) == '0:'
    forked = tonumber(place[2] or -1)
    -- Other branches may see it, or must not.
    if lowest < (is_root and -1 or base) or lowest < forked then return {'plan'} end
end

-- All is as it should be, and from here on things change.
for start = first, first + adds - 1, 1000 do
    redis.call('RPUSH', KEYS[10], unpack(ARGV, start, math.min(start + 999, first + adds - 1)))
end
for _, run in ipairs(runs) do
    local place = segment .. ':' .. run.place
    redis.call('HSET', G, run.turn, place .. ':' .. run.number)
    redis.call('ZADD', F, run.place, place .. ':' .. run.turn)
end
if turn then
    redis.call('HSET', T, turn, data)
    if manifest ~= '' then redis.call('HSET', M, turn, manifest) end
end
if key then redis.call('HSET', Q, key, request) end

local shown, count, own = numbers(r[7]), tonumber(known[4] or 0), false
local done = tonumber(take())
if done > 0 or #records > 0 then
    local heads, gone = all(H, shown), {}
    for i = 1, done do gone[take()] = true end
    if done > 0 then
        local left, ahead = {}, {}
        for i, value in ipairs(all(R, shown)) do
            if not gone[value] then left[#left + 1], ahead[#ahead + 1] = shown[i], heads[i] end
        end
        shown, heads = left, ahead
    end
    for _, record in ipairs(records) do
        count = count + 1
        local number, about = tostring(count), segment .. ':' .. record.place .. ':' .. record.kind
        if record.newest == '1' then
            local left, ahead = {}, {}
            for i, each in ipairs(heads) do
                local place, kind = string.match(each, '^%d+:(-?%d+):(.*)$')
                place = tonumber(place)
                if kind ~= record.kind then
                    left[#left + 1], ahead[#ahead + 1] = shown[i], each
                elseif record.brief == '1' and place >= base and place >= forked then
                    redis.call('HDEL', R, shown[i])
                    redis.call('HDEL', H, shown[i])
                end
            end
            shown, heads = left, ahead
        end
        redis.call('HSET', R, number, record.data)
        redis.call('HSET', H, number, about)
        shown[#shown + 1], heads[#heads + 1] = number, about
        own = own or record.alone == '1'
    end
end
for i = 1, tonumber(take()) do
    redis.call('HSET', X, segment .. ':' .. (size + tonumber(take())), take())
end

redis.call('HSET', C,
    'v:' .. branch, string.format('%d', expect + 1), 's:' .. branch, segment, 'b:' .. branch, r[3],
    'n:' .. branch, string.format('%d', size + adds), 'e:' .. branch, adds > 0 and last or r[5],
    'u:' .. branch, turn and begins[turn] and turn or r[6], 'p:' .. branch, table.concat(shown, ' '),
    'k:' .. branch, tonumber(token ~= '' and token or 0) > tonumber(r[8]) and token or r[8],
    'l:' .. branch, holder, 'i:' .. branch, till, 'j:' .. branch, token, 'a:' .. branch, when,
    'w:' .. branch, string.sub(r[13], -#mark * (MARKS - 1)) .. mark,
    'updated', tonumber(when) > tonumber(known[3] or 0) and when or known[3] or when)
redis.call('HINCRBY', C, 'entries', adds)
redis.call('HINCRBY', C, 'version', 1)
if #records > 0 then redis.call('HSET', C, 'records', string.format('%d', count)) end
if own then redis.call('HSET', C, 'O:' .. segment, '1') end
if hot ~= '' then redis.call('HSET', C, 'hot', hot) end
if not is_there then
    redis.call('HSET', C, 'created', when, 'born', birth, 'segments', '1', 'S:1', '0:0', 'meta', '{}')
end
if meta ~= '' then redis.call('HSET', C, 'meta', meta) end
return {'done', head(branch)}
"""
)
"""A script that applies a commit that appends to a branch or begins a conversation.

Its arguments come from `commit.arguments`. Returns `done` and the head, or the reason why nothing was changed; `plan`
means that the commit needs a `commit.Plan`.
"""
