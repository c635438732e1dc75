-- What a claim has read of a lane ahead of taking it, so that several wants that
-- take from it cost no more than one: the first of lane ready, as long as they
-- have the rank of the first. They leave lane ready all together.
local look_ahead, read_ahead
do
  -- So many records are read at once: at most those are read in vain when the
  -- limit on bytes ends a want.
  local READ_AT_ONCE = 25

  local function rank_at(score) return score and floor(tonumber(score) / BAND) or false end

  -- How many of the names, the first of lane ready, come before the first that has
  -- another rank, and that.
  local function same_rank(l, names, rank)
    local heads = call('ZRANGE', ready_key(l.name), '0', #names, 'WITHSCORES')
    for i = 2, #heads, 2 do
      local other = rank_at(heads[i])
      if other ~= rank then return i / 2 - 1, other end
    end
    return #names, false
  end

  -- The first names of lane ready, at most n, and the ranks of the first, of the
  -- last, and of what follows. Scores are slow to print, so few are asked for.
  local function first_ready(key, n)
    if n == 1 then
      local h = call('ZRANGE', key, '0', '1', 'WITHSCORES')
      local rank = rank_at(h[2])
      return { h[1] }, rank, rank, rank_at(h[4])
    end
    local names = call('ZRANGE', key, '0', n)
    if #names == 0 then return names, false end
    local scores = call('ZMSCORE', key, names[1], names[min(#names, n)], names[#names])
    local after = #names > n and rank_at(scores[3])
    names[n + 1] = nil
    return names, rank_at(scores[1]), rank_at(scores[2]), after
  end

  -- What is left of what was read ahead of lane ready, nothing where that was all; or
  -- else its first tasks: as many as are likely to be taken, at least share, but no
  -- more than can be there.
  function look_ahead(l, s, share, likely)
    local b = l.ahead
    if b and (b.taken < b.n or not b.next) then return b end
    if b then write_taken(l) end
    local names, rank, last, after = first_ready(ready_key(l.name), max(1, min(max(share, likely), 100, get_queue(l.queue).waiting)))
    b = { names = names, n = #names, taken = 0, next = after or false, read = 0, keys = {}, records = {}, away = {},
      priority = rank and lane_priority(s, rank) }
    l.ahead = b
    front.is(l, 'rank', rank)
    if rank and last ~= rank then b.n, b.next = same_rank(l, names, rank) end
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

  -- Takes out of lane ready what was taken of it: its first. Where that is all, and
  -- the caller removes such sets together, it is only noted in emptied.
  function write_taken(l, emptied)
    local b = l.ahead
    l.ahead = nil
    if b.taken == 0 then return end
    if emptied and not b.next and b.taken == b.n then emptied[#emptied + 1] = ready_key(l.name)
    else call('ZREMRANGEBYRANK', ready_key(l.name), '0', b.taken - 1) end
    if #b.away > 0 then call('ZADD', later_key(l.name), unpack(b.away)) end
  end
end
