-- What a claim has read of a lane ahead of taking it, so that several wants that
-- take from it cost no more than one: the first of lane ready, as long as they
-- have the rank of the first. They leave lane ready all together.
local look_ahead, read_ahead
do
  local NOTHING = {}
  -- So many records are read at once: at most those are read in vain when the
  -- limit on bytes ends a want.
  local READ_AT_ONCE = 25

  local TO = '(562949953421312' -- LATER_FROM

  -- Where the tasks of a rank begin in lane ready, as text, and where those before end.
  local begins, ends = {}, {}
  local function begin_of(rank)
    if not begins[rank] then
      begins[rank] = decimal(rank * BAND)
      ends[rank] = '(' .. begins[rank]
    end
    return begins[rank], ends[rank]
  end

  -- The first names of lane ready, at most n, all of the first rank, and the rank of what
  -- follows. Scores are slow to print, so none is asked for where more of the rank follow,
  -- or nothing, since no more tasks of the queue wait.
  local function first_ready(l, n, waiting)
    local rank, key = front.rank(l), tasks_key(l.name)
    if not rank then return {}, false end
    local after, below = begin_of(rank + 1)
    local names = call('ZRANGEBYSCORE', key, '-inf', below, 'LIMIT', '0', n + 1)
    if #names > n then
      names[n + 1] = nil
      return names, rank
    elseif #names == 0 then -- the set was lost
      front.is(l, 'rank', nil)
      return first_ready(l, n, waiting)
    elseif #names == waiting then
      return names, false
    end
    local follows = call('ZRANGEBYSCORE', key, after, TO, 'LIMIT', '0', '1', 'WITHSCORES')[2]
    return names, follows and floor(tonumber(follows) / BAND) or false
  end

  -- What is left of what was read ahead of lane ready, nothing where that was all; or
  -- else its first tasks: as many as are likely to be taken, at least share, but no
  -- more than can be there.
  function look_ahead(l, s, share, likely)
    local b = l.ahead
    if b and (b.taken < b.n or not b.next) then return b end
    if b then write_taken(l) end
    b = l.look or { keys = {}, away = {} } -- of an earlier look, by any call
    local waiting = get_queue(l.queue).waiting
    b.names, b.next = first_ready(l, max(1, min(max(share, likely), 100, waiting)), waiting)
    b.n, b.taken, b.read, b.records, b.n_away, b.missing, b.head = #b.names, 0, 0, NOTHING, 0, false, false
    b.priority = l.rank and lane_priority(s, l.rank)
    l.ahead, l.look = b, b
    return b
  end

  -- Reads records of what was read ahead, from the i-th on, which it returns; the
  -- first of b.records is that of the entry after b.read.
  function read_ahead(l, b, i)
    local last = min(i + READ_AT_ONCE - 1, b.n)
    local names, keys, prefix = b.names, b.keys, P .. 't:' .. l.slot .. '-'
    for k = i, last do keys[k] = prefix .. names[k] end
    b.read, b.records = i - 1, call('MGET', unpack(keys, i, last))
    return b.records[1]
  end

  -- Takes out of lane ready what was taken of it: to where it is now, or nowhere.
  function write_taken(l)
    local b, key = l.ahead, tasks_key(l.name)
    l.ahead, b.names, b.records = false, NOTHING, NOTHING -- Redis need not keep them until the next claim
    if b.n_away > 0 then call('ZADD', key, unpack(b.away, 1, b.n_away)) end
    if b.missing then call('ZREM', key, unpack(b.missing)) end
  end
end
