"""The Lua scripts of the Redis store, and the layout of its keys.

The server runs each script atomically. The keys of a conversation share a slot, and each script is passed all keys that
it uses, so that a cluster can route it even while the slot migrates. The cost of a script depends on the commit and on
the records of the head, never on the length of the history, which no script reads. A script checks everything before it
changes anything, because Redis doesn't roll back a script that fails.

The keys of a conversation and their contents (decoded in `tree.py`), with their names in `tree.Keys`:

    c     conversation  hash: the conversation, its branches and its segments
    t     turns         hash: turns, by turn id
    m     manifests     hash: manifests, by turn id
    g     runs          hash: by turn id, `segment:position:number` of the first entry of each run of entries
    f     turn_starts   sorted set: `segment:position:turn` of the first entry of each turn, by position
    q     requests      hash: by request key, the position at which the turn begins, and the request
    r     records       hash: records, by record number
    h     locations     hash: by record number, the record's `segment:position:kind`
    x     metas         hash: the app's metadata of entries, by `segment:position`
    s:N                 lists: the entries of segment N

A run is a sequence of entries of one turn with consecutive numbers.

Fields of `c`: `created`, `updated`, `entries`, `meta`; `born`, a random value that no other conversation has;
`version`, which increases with every change that a plan depends on; `segments` and `records`, the last numbers
assigned; `redacted`, the number of redactions; `hot` and `gen` (see `lists.py`). For a segment N: `S:N` is `base:start`
(base 0: none), `F:N` is the last position at which another segment branches off, and `O:N` is set if the segment has a
record that only its own branch may see. For a branch, each followed by a colon and its name: `v` revision, `s` segment,
`b` start of the segment, `n` size, `e` last entry, `u` last turn, `p` numbers of the records in the head, `k` newest
token, `l` holder, `i` expiry and `j` token of the lease, `a` time of the last change, `w` marks of the newest commits.
"""

from __future__ import annotations

from longtalk.stores.redis.command import Script

PARTS = ("c", "t", "m", "g", "f", "q", "r", "h", "x")
"""The names of a conversation's keys, except for the lists of entries."""
MARK_SIZE = 8
"""The size of a commit's mark in bytes."""
MAX_MARKS = 64
"""The number of marks that a branch remembers."""

_COMMON = """
local C, T, M, G, F, Q, R, H, X = unpack(KEYS, 1, 9)
local BRANCH_FIELDS = {'v', 's', 'b', 'n', 'e', 'u', 'p', 'k', 'l', 'i', 'j', 'a', 'w'}
local at = 0

-- Return the next argument.
local function take()
    at = at + 1
    return ARGV[at]
end

-- Return the values of BRANCH_FIELDS for a branch, or false if the branch doesn't exist.
local function read_branch(branch)
    local names = {}
    for i, letter in ipairs(BRANCH_FIELDS) do names[i] = letter .. ':' .. branch end
    local values = redis.call('HMGET', C, unpack(names))
    return values[1] and values
end

-- Return values of a hash. Lua limits the number of arguments of a call, so at most 1000 are read at once.
local function read_fields(key, names)
    local values = {}
    for first = 1, #names, 1000 do
        local page = redis.call('HMGET', key, unpack(names, first, math.min(first + 999, #names)))
        for _, value in ipairs(page) do values[#values + 1] = value end
    end
    return values
end

local function split_numbers(text)
    local numbers = {}
    for number in string.gmatch(text, '%d+') do numbers[#numbers + 1] = number end
    return numbers
end

-- Return the head of a branch, or false if the branch doesn't exist.
local function read_head(branch)
    local r = read_branch(branch)
    if not r then return false end
    local numbers = split_numbers(r[7])
    local created = redis.call('HGET', C, 'created')
    local turn = r[6] ~= '' and redis.call('HGET', T, r[6])
    return {r[1], r[2], r[3], r[4], r[5], turn, r[8], r[9], r[10], r[11], r[12], created,
        read_fields(H, numbers), read_fields(R, numbers)}
end

-- Return whether the commit with this mark is among the newest commits of a branch.
local function has_commit(r, mark)
    for first = 1, #r[13], #mark do
        if string.sub(r[13], first, first + #mark - 1) == mark then return true end
    end
    return false
end
"""

HEAD = Script(_COMMON + "return read_head(take())")
"""A script that returns the head of a branch."""

RENEW = Script(
    """
local branch, token, expiry = unpack(ARGV)
if redis.call('HGET', KEYS[1], 'j:' .. branch) ~= token then return 0 end
redis.call('HSET', KEYS[1], 'i:' .. branch, expiry)
return 1
"""
)
"""A script that extends a lease.

Its arguments are the branch, the token of the lease and the new expiry. Returns 1, or 0 if the branch has no lease with
this token.
"""

SETTLE = Script(
    """
local nonce = ARGV[1]
local updated, hot = unpack(redis.call('HMGET', KEYS[1], 'updated', 'hot'))
if not updated then return 'none' end
if hot and hot ~= nonce then
    redis.call('HSET', KEYS[1], 'hot', nonce)
    return 'hot'
end
redis.call('HDEL', KEYS[1], 'hot')
redis.call('HINCRBY', KEYS[1], 'gen', 1)
redis.call('HINCRBY', KEYS[1], 'version', 1)
return updated
"""
)
"""A script that marks a conversation as not hot, given its nonce, and returns the time of the last change.

If the conversation doesn't exist, the script returns `none`. If the conversation has another nonce, the script replaces
that nonce with the given one and returns `hot`.
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
conversation is only removed from the hash. If the hash has another nonce for the conversation, nothing changes.
"""

APPLY = Script(
    _COMMON
    + """
local born, version, branch = take(), take(), take()
local current = redis.call('HMGET', C, 'born', 'version')
if current[1] ~= born or current[2] ~= version then return {'again'} end
while at < #ARGV do
    local name, key, number = take(), KEYS[tonumber(take())], tonumber(take())
    redis.call(name, key, unpack(ARGV, at + 1, at + number))
    at = at + number
end
return {'done', read_head(branch)}
"""
)
"""A script that runs the commands of a plan if the conversation hasn't changed since the plan read it.

Its arguments are the `born` and `version` that the plan read, a branch, and the commands: for each its name, the index
of its key, the number of its arguments, and the arguments. Returns `done` and the head of the branch, or `again` if the
conversation has changed.
"""

WRITE = Script(
    _COMMON
    + f"local MAX_MARKS = {MAX_MARKS}"
    + """
local branch, expect, segment, mark = take(), tonumber(take()), take(), take()
local now, cut = take(), take()
local nonce, gen, born = take(), take(), take()
local meta = take()
local holder, expiry, token = take(), take(), take()
local parent, last = take(), take()
local added = tonumber(take())
local first = at + 1
at = at + added

local r = read_branch(branch)
if r and has_commit(r, mark) then
    -- The reply to this commit was lost. Write something, so that WAIT waits for the replicas.
    redis.call('HSET', C, 'w:' .. branch, r[13])
    return {'done', read_head(branch)}
end
if tonumber(r and r[1] or 0) ~= expect then return {'moved', read_head(branch)} end
local exists = redis.call('EXISTS', C) == 1
if not r and exists then return {'plan'} end
local hot, current_gen, updated, record_count = unpack(redis.call('HMGET', C, 'hot', 'gen', 'updated', 'records'))
if not hot and (nonce == '' or (current_gen or '0') ~= gen) then return {'cold', current_gen or '0'} end
r = r or {'0', '1', '0', '0', '', '', '', '0', '', '0', '', '0', ''}
if r[2] ~= segment then return {'segment', r[2]} end
local segment_start, size = tonumber(r[3]), tonumber(r[4])
if cut ~= '' and tonumber(cut) ~= size then return {'plan'} end
if added > 0 and parent ~= r[5] then return {'parent', r[5]} end
-- The first entries of a segment may continue a turn of another segment.
if added > 0 and segment_start > 0 and size == segment_start then return {'plan'} end

local runs, turn_starts = {}, {}
for i = 1, tonumber(take()) do
    local run = {position = size + tonumber(take()), turn = take(), number = take()}
    if turn_starts[run.turn] or redis.call('HEXISTS', G, run.turn) == 1 then return {'plan'} end
    runs[i], turn_starts[run.turn] = run, run.position
end

local turn, data, manifest
if take() == '1' then
    turn, data, manifest = take(), take(), take()
    if redis.call('HEXISTS', T, turn) == 0 then
        if redis.call('HEXISTS', G, turn) == 1 then return {'plan'} end
        if not turn_starts[turn] then return {'turn'} end
    end
end

local key, request
if take() == '1' then
    key, request = take(), take()
    local stored = redis.call('HGET', Q, key)
    if stored then
        local stored_turn = cmsgpack.unpack(string.sub(stored, string.find(stored, ':', 1, true) + 1))[1]
        if stored_turn ~= turn then return {'taken'} end
        key = nil
    else
        if not turn_starts[turn] and turn ~= r[6] then return {'plan'} end
        local position = turn_starts[turn] or string.match(redis.call('HGET', G, turn), '^%d+:(%d+):%d+$')
        if not position then return {'plan'} end
        request = position .. ':' .. request
    end
end

local records, lowest = {}, size + added
for i = 1, tonumber(take()) do
    records[i] = {
        position = take(), kind = take(), data = take(),
        newest_only = take(), may_discard = take(), own_branch_only = take()
    }
    local position = tonumber(records[i].position)
    if position < -1 or position >= size + added then return {'record'} end
    lowest = math.min(lowest, position)
end
local last_fork = -1
if #records > 0 then
    local fields = redis.call('HMGET', C, 'S:' .. segment, 'F:' .. segment)
    local is_root = not fields[1] or string.sub(fields[1], 1, 2) == '0:'
    last_fork = tonumber(fields[2] or -1)
    -- Other branches have this position on their paths, and may or may not see the record.
    if lowest < (is_root and -1 or segment_start) or lowest < last_fork then return {'plan'} end
end

-- Everything is checked. Change the conversation from here on.
for start = first, first + added - 1, 1000 do
    redis.call('RPUSH', KEYS[10], unpack(ARGV, start, math.min(start + 999, first + added - 1)))
end
for _, run in ipairs(runs) do
    local location = segment .. ':' .. run.position
    redis.call('HSET', G, run.turn, location .. ':' .. run.number)
    redis.call('ZADD', F, run.position, location .. ':' .. run.turn)
end
if turn then
    redis.call('HSET', T, turn, data)
    if manifest ~= '' then redis.call('HSET', M, turn, manifest) end
end
if key then redis.call('HSET', Q, key, request) end

-- The numbers and locations of the records in the head.
local numbers, count, has_own_records = split_numbers(r[7]), tonumber(record_count or 0), false
local obsolete_count = tonumber(take())
if obsolete_count > 0 or #records > 0 then
    local locations, obsolete = read_fields(H, numbers), {}
    for i = 1, obsolete_count do obsolete[take()] = true end
    if obsolete_count > 0 then
        local kept_numbers, kept_locations = {}, {}
        for i, data in ipairs(read_fields(R, numbers)) do
            if not obsolete[data] then
                kept_numbers[#kept_numbers + 1], kept_locations[#kept_locations + 1] = numbers[i], locations[i]
            end
        end
        numbers, locations = kept_numbers, kept_locations
    end
    for _, record in ipairs(records) do
        count = count + 1
        local number, location = tostring(count), segment .. ':' .. record.position .. ':' .. record.kind
        if record.newest_only == '1' then
            local kept_numbers, kept_locations = {}, {}
            for i, each in ipairs(locations) do
                local position, kind = string.match(each, '^%d+:(-?%d+):(.*)$')
                position = tonumber(position)
                if kind ~= record.kind then
                    kept_numbers[#kept_numbers + 1], kept_locations[#kept_locations + 1] = numbers[i], each
                elseif record.may_discard == '1' and position >= segment_start and position >= last_fork then
                    redis.call('HDEL', R, numbers[i])
                    redis.call('HDEL', H, numbers[i])
                end
            end
            numbers, locations = kept_numbers, kept_locations
        end
        redis.call('HSET', R, number, record.data)
        redis.call('HSET', H, number, location)
        numbers[#numbers + 1], locations[#locations + 1] = number, location
        has_own_records = has_own_records or record.own_branch_only == '1'
    end
end
for i = 1, tonumber(take()) do
    redis.call('HSET', X, segment .. ':' .. (size + tonumber(take())), take())
end

redis.call('HSET', C,
    'v:' .. branch, string.format('%d', expect + 1), 's:' .. branch, segment, 'b:' .. branch, r[3],
    'n:' .. branch, string.format('%d', size + added), 'e:' .. branch, added > 0 and last or r[5],
    'u:' .. branch, turn and turn_starts[turn] and turn or r[6], 'p:' .. branch, table.concat(numbers, ' '),
    'k:' .. branch, tonumber(token ~= '' and token or 0) > tonumber(r[8]) and token or r[8],
    'l:' .. branch, holder, 'i:' .. branch, expiry, 'j:' .. branch, token, 'a:' .. branch, now,
    'w:' .. branch, string.sub(r[13], -#mark * (MAX_MARKS - 1)) .. mark,
    'updated', tonumber(now) > tonumber(updated or 0) and now or updated or now)
redis.call('HINCRBY', C, 'entries', added)
redis.call('HINCRBY', C, 'version', 1)
if #records > 0 then redis.call('HSET', C, 'records', string.format('%d', count)) end
if has_own_records then redis.call('HSET', C, 'O:' .. segment, '1') end
if nonce ~= '' then redis.call('HSET', C, 'hot', nonce) end
if not exists then
    redis.call('HSET', C, 'created', now, 'born', born, 'segments', '1', 'S:1', '0:0', 'meta', '{}')
end
if meta ~= '' then redis.call('HSET', C, 'meta', meta) end
return {'done', read_head(branch)}
"""
)
"""A script that applies a commit that appends to a branch or begins a conversation.

Its arguments come from `commit.build_write_arguments`. Returns `done` and the head of the branch, or the reason why
nothing was changed:

    moved    the branch is not at the expected revision; its head follows
    cold     the conversation must be marked as hot first; its generation follows (see `lists.py`)
    segment  the branch ends in another segment, whose number follows
    plan     the commit needs a plan (see `planner.py`)
    parent   the parent of the first entry is not the last entry of the branch
    turn     the turn has no entries
    taken    another turn has the request's key
    record   the position of a record is not on the path
"""
