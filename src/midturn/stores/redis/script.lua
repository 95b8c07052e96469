-- name: common
-- A session is one sorted set, all scores 0. Its members, in binary order:
--   <kind, one digit><n, 16 hex digits>:<data>
--   h<format> <seq> <epoch> <created> <updated> <status> =<token, quoted>\n<owner, lease, labels as JSON>\n<data>
-- Redis rolls nothing back, so every script first checks everything, and writes only when nothing can fail.
-- Numbers that may exceed 2^53 stay strings.
local function read(key)
    local member = redis.call('ZRANGEBYLEX', key, '[h', '(i', 'LIMIT', 0, 1)[1]
    if not member then
        if redis.call('EXISTS', key) == 1 then return {problem = 'damaged'} end
        return {seq = '0'}
    end
    local format = string.match(member, '^h(%d+) ')
    if format and format ~= '1' then return {problem = 'newer'} end
    local seq, epoch, created, status, token = string.match(member, '^h1 (%d+) (%d+) (%d+) %d+ (%a+) =(%S*)\n')
    if not seq then return {problem = 'damaged'} end
    return {member = member, seq = seq, epoch = epoch, created = created, status = status, token = token}
end

local function microseconds()
    local time = redis.call('TIME')
    return string.format('%s%06d', time[1], time[2])
end

local function replicas()
    local _, online = string.gsub(redis.call('INFO', 'replication'), 'state=online', '')
    return online
end

local function plus_one(digits)
    local rest, nines = string.match(digits, '^(%d-)(9*)$')
    if rest == '' then rest = '0' end
    return string.sub(rest, 1, -2) .. (tonumber(string.sub(rest, -1)) + 1) .. string.rep('0', #nines)
end

-- Writes the existing member again, so that a WAIT on this connection covers it.
local function touch(key, member)
    redis.call('ZREM', key, member)
    redis.call('ZADD', key, 0, member)
end

-- Puts an id, with the time of its last change, only into the set of its status. KEYS from "first" on are these sets.
-- Without a status, the id leaves them all.
local function list(first, id, status, updated)
    for at = first, #KEYS do
        if status ~= '' and string.sub(KEYS[at], -#status - 1) == ':' .. status then
            redis.call('ZADD', KEYS[at], updated, id)
        else
            redis.call('ZREM', KEYS[at], id)
        end
    end
end

-- Returns a key of a set that another program uses, if there is one.
local function taken()
    for at = 2, #KEYS do
        local kind = redis.call('TYPE', KEYS[at]).ok
        if kind ~= 'zset' and kind ~= 'none' then return KEYS[at] end
    end
end

local function expire(key, ttl)
    if ttl == '' then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, ttl) end
end

-- name: write
-- KEYS: the session; except in a cluster, also the sets of ids by status.
-- ARGV: id, seq, the next seq, "=" and the token of the head that the writer saw (or nothing), token, epoch, status,
-- the rest of the head, 1 if an earlier attempt may have taken effect, ttl, replicas, the number of the names that follow,
-- then pairs of names: the first row that goes, and the first after it that stays; then the rows.
local key, id, seq, next_seq, after, token, epoch, status, rest, again, ttl, wanted, gone = KEYS[1], unpack(ARGV, 1, 12)
local first_row = 13 + tonumber(gone)
local found = read(key)
if found.problem then return {found.problem} end
if found.status == 'deleted' then return {'deleted'} end
if again == '1' and found.seq == next_seq and found.token == token then
    touch(key, found.member)
    expire(key, ttl)
    return {'written', found.created, string.match(found.member, '^h1 %d+ %d+ %d+ (%d+)')}
end
if found.seq ~= seq or (after ~= '' and after ~= '=' .. found.token) then return {'conflict', found.seq} end
local seen = {}
local function goes(name)
    for at = 13, first_row - 1, 2 do
        if ARGV[at] <= name and name < ARGV[at + 1] then return true end
    end
end
for at = first_row, #ARGV do
    local name = string.sub(ARGV[at], 1, 17)
    local there = redis.call('ZLEXCOUNT', key, '[' .. name .. ':', '(' .. name .. ';') > 0
    if seen[name] or (there and not goes(name)) then
        return {'conflict', found.seq}
    end
    seen[name] = true
end
if taken() then return {'taken', taken()} end
if wanted ~= '0' and replicas() < tonumber(wanted) then return {'replicas', tostring(replicas())} end
local now = microseconds()
local created = found.created or now
local head = string.format('h1 %s %s %s %s %s =%s\n', next_seq, epoch, created, now, status, token) .. rest
-- ZADD comes first: a server without memory rejects the first command of a script, never a later one.
local batch = {0, head}
if first_row > 13 then
    redis.call('ZADD', key, 0, head)
    for at = 13, first_row - 1, 2 do
        redis.call('ZREMRANGEBYLEX', key, '[' .. ARGV[at], '(' .. ARGV[at + 1])
    end
    batch = {}
end
for at = first_row, #ARGV do
    batch[#batch + 1] = 0
    batch[#batch + 1] = ARGV[at]
    if #batch >= 1000 then
        redis.call('ZADD', key, unpack(batch))
        batch = {}
    end
end
if #batch > 0 then redis.call('ZADD', key, unpack(batch)) end
if found.member then redis.call('ZREM', key, found.member) end
expire(key, ttl)
if #KEYS > 1 then list(2, id, status, now) end
return {'written', created, now}

-- name: delete
-- KEYS: as above. ARGV: id, a token that names this deletion, replicas, the data that stays.
local key, id, by, wanted, data = KEYS[1], unpack(ARGV)
local found = read(key)
if found.problem then return {found.problem} end
if not found.member then return {'nothing'} end
if found.status == 'deleted' then
    touch(key, found.member)
    local own = string.find(found.member, by, 1, true)
    return {own and 'written' or 'gone', string.match(found.member, '^h1 %d+ %d+ %d+ (%d+)')}
end
if taken() then return {'taken', taken()} end
if wanted ~= '0' and replicas() < tonumber(wanted) then return {'replicas', tostring(replicas())} end
local seq, epoch, now = plus_one(found.seq), plus_one(found.epoch), microseconds()
local head = string.format('h1 %s %s %s %s deleted =\n', seq, epoch, found.created, now)
-- DEL comes first: it works on a server without memory, and so do the commands after it.
redis.call('DEL', key)
redis.call('ZADD', key, 0, head .. '{"by":"' .. by .. '"}\n' .. data)
if #KEYS > 1 then list(2, id, 'deleted', now) end
return {'written', now}

-- name: forget
-- KEYS: as above. ARGV: id, replicas.
local key, id, wanted = KEYS[1], unpack(ARGV)
local found = read(key)
if found.problem then return {found.problem} end
if not found.member then return {'nothing'} end
if found.status ~= 'deleted' then return {'kept'} end
if taken() then return {'taken', taken()} end
if wanted ~= '0' and replicas() < tonumber(wanted) then return {'replicas', tostring(replicas())} end
redis.call('DEL', key)
if #KEYS > 1 then list(2, id, '', '0') end
return {'written', string.match(found.member, '^h1 %d+ %d+ %d+ (%d+)')}

-- name: list
-- KEYS: the sets of ids by status. ARGV: for each session its id, its status and the time of its last change.
-- A session that is already listed with this change or a later one stays as it is.
for at = 1, #ARGV, 3 do
    local listed = 0
    for _, key in ipairs(KEYS) do
        listed = math.max(listed, tonumber(redis.call('ZSCORE', key, ARGV[at]) or 0))
    end
    if listed < tonumber(ARGV[at + 2]) then list(1, unpack(ARGV, at, at + 2)) end
end
return {'listed'}

-- name: index
-- KEYS: the set of all ids, and the set of the times at which somebody last began to write each. ARGV: an id, replicas.
if ARGV[2] ~= '0' and replicas() < tonumber(ARGV[2]) then return {'replicas', tostring(replicas())} end
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('ZADD', KEYS[2], redis.call('TIME')[1], ARGV[1])
return {'written'}

-- name: unindex
-- KEYS: as above, then the sets of ids by status. ARGV: seconds, then ids that have no session.
-- Removes the ids that nobody has begun to write for so many seconds.
local before = redis.call('TIME')[1] - ARGV[1]
for at = 2, #ARGV do
    if tonumber(redis.call('ZSCORE', KEYS[2], ARGV[at]) or 0) < before then
        for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[at]) end
    end
end
return {'cleaned'}
