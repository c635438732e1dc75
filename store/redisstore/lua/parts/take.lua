-- The taking of tasks from a lane, in a claim.
-- A block, since a function of Lua has at most 200 locals.
local take_from_lane
do
  local DEFAULT_LEASE, DEFAULT_HOLD = 30000, 1800000
  local ORPHAN_TEXT = '2251799813685248' -- ORPHAN_FROM
  -- What leases of one source and of one duration have in common.
  local function terms_of(w, s)
    local of = s.terms
    if not of then
      of = {}
      s.terms = of
    end
    local t = of[w.lease]
    if t then return t end
    local hold = s.hold > 0 and s.hold or DEFAULT_HOLD
    local duration = min(w.lease > 0 and w.lease or (s.lease > 0 and s.lease or DEFAULT_LEASE), hold)
    local deadline = now + duration
    t = { deadline = deadline, deadline_text = decimal(deadline), place_text = decimal(LEASED_FROM + deadline),
      packed = struct.pack('>I6I6I4I4', now, deadline, duration, hold) }
    of[w.lease] = t
    return t
  end

  -- The number of bytes of a holder's name, as a lease has it.
  local lengths = {}
  local function length_of(name)
    local packed = lengths[#name]
    if not packed then
      packed = struct.pack('>I2', #name)
      lengths[#name] = packed
    end
    return packed
  end

  -- Begins what a want is granted of a lane: tells of which lane the tasks are that
  -- are answered next.
  local function begin_lane(claim, w, l, s, t)
    local lanes, n = claim.lanes, #claim.lanes
    if not l.answered then
      lanes[n + 1], lanes[n + 2], lanes[n + 3], lanes[n + 4], lanes[n + 5], lanes[n + 6] = l.queue, l.uid, s.id, s.pool, s.version, l.slot
      l.answered = n / 6 + 1
    end
    claim.lane, claim.answers[#claim.answers + 1] = l, l.answered
    local soonest = claim.soonest[l.name]
    if not soonest or t.deadline < soonest.deadline then claim.soonest[l.name] = t end
  end

  -- Records of a lane mostly begin as the last one, up to their lane: notes what this
  -- begins with, and whether it may be granted and has details.
  local function read_head(b, raw, l)
    local version, state, flags = string.byte(raw, 1, 3)
    b.head, b.detailed = string.sub(raw, 1, AT.lane + 3), flags % 8 >= DETAILS
    b.plain = version == 1 and state == WAITING and struct.unpack('>I4', raw, AT.lane) == l.n
  end

  -- What a task that may be granted counts for the limit of a want, and whether it
  -- has details; nil for one that may not.
  local function weigh(raw, b, l, s)
    if not raw or #raw < HEADER then return nil end
    if not b.head or string.find(raw, b.head, 1, true) ~= 1 then read_head(b, raw, l) end
    if not b.plain then return nil end
    local high, middle, low = string.byte(raw, AT.size, AT.size + 2)
    return high * 65536 + middle * 256 + low + s.joined, b.detailed
  end

  -- What the details count besides.
  local function weigh_details(id)
    return call('HSTRLEN', details_key(id), 'c') + call('HSTRLEN', details_key(id), 'm')
  end

  -- Sets the lock. When another still stands: false, and when to look again. (GET spares the
  -- table that Lua makes of an answer OK.)
  local function set_lock(key, token, deadline)
    if not call('SET', key, token, 'NX', 'GET', 'PXAT', deadline) then return true end
    local ttl = call('PTTL', key)
    if ttl == 0 then
      call('SET', key, token, 'PXAT', deadline)
      return true
    end
    return false, orphans.next_look(ttl)
  end

  -- Puts the orphan among the leases until it is looked at again.
  local function note_orphan(claim, l, suffix, ttl)
    local leases, n = claim.leases, #claim.leases
    leases[n + 1], leases[n + 2] = decimal(now + ttl), orphans.member(l, id_of(l, suffix))
    l.orphaned, l.dirty = true, true
  end

  -- Counts what was taken of the lane: tasks granted, orphans, and entries without a
  -- task.
  local function note_taken(claim, q, l, granted, orphaned, missing)
    count(l.uid, 'ready', -granted - missing)
    count(l.uid, 'leased', granted)
    q.waiting, q.in_flight = q.waiting - granted - missing, q.in_flight + granted
    q.dirty, l.removed = true, true
    claim.granted, claim.misses = claim.granted + granted, claim.misses + orphaned + missing
    claim.dropped, claim.orphaned = claim.dropped + missing, claim.orphaned + orphaned
  end

  -- Takes up to share tasks from the lane while its priority stays what it is, for one
  -- want after the other: how many were granted, and how many were met.
  function take_from_lane(claim, h, q, l, s, share, ahead)
    local b = look_ahead(l, s, share, ahead)
    l.taking = l.taking or b.priority
    if b.n == 0 then l.removed = true end -- the set was lost
    if b.n == 0 or b.priority ~= l.taking then return 0, 0 end
    local answers, names, away, locks = claim.answers, b.names, b.away, lock_key(l.slot) .. '-'
    local first, fence, granted, orphaned, missing = b.taken, claim.fence, 0, 0, 0
    local taken = first
    local w, t, ids, name, lease
    for i = first + 1, min(first + share, first + 100 - claim.misses, b.n) do
      if not w or #ids == w.max then
        w = line.open(claim, h)
        t, ids, name = terms_of(w, s), w.ids, w.holder_name
        lease = w.holder .. t.packed .. length_of(name)
      end
      local suffix, raw = names[i], b.records[i - b.read]
      if raw == nil then raw = read_ahead(l, b, i) end
      local bytes, detailed = weigh(raw, b, l, s)
      if detailed then bytes = bytes + weigh_details(id_of(l, suffix)) end
      if not bytes then
        missing = missing + 1
        b.missing = b.missing or {}
        b.missing[#b.missing + 1] = suffix
      elseif w.max_bytes > 0 and #ids > 0 and w.bytes + bytes > w.max_bytes then
        w.ended = true
        break
      else
        local next_fence = max(fence + 1, now_us)
        local digits, last_digits = spell_digits(next_fence)
        local locked, ttl = set_lock(locks .. suffix, name .. digits .. last_digits, t.deadline_text)
        local n = b.n_away
        away[n + 1], away[n + 2], b.n_away = locked and t.place_text or ORPHAN_TEXT, suffix, n + 2
        if locked then
          fence = next_fence
          local fence_bytes, last_byte = spell_bytes(fence)
          raw = fence_bytes .. last_byte .. lease .. raw .. name
          n = #writes
          writes[n + 1], writes[n + 2] = b.keys[i], raw
          local id = suffix
          if claim.lane ~= l then
            id = id_of(l, suffix)
            begin_lane(claim, w, l, s, t)
          end
          n = #answers
          answers[n + 1], answers[n + 2] = suffix, raw
          if detailed then answers[n + 3] = holder_details(id_of(l, suffix)) end
          n = #ids + 1
          if n == 1 then w.fence = fence end
          ids[n], w.bytes, granted = id, w.bytes + bytes, granted + 1
        else
          note_orphan(claim, l, suffix, ttl)
          orphaned = orphaned + 1
        end
      end
      taken = i
    end
    b.taken, claim.fence = taken, fence
    if taken == b.n then front.is(l, 'rank', b.next) end
    if taken > first then note_taken(claim, q, l, granted, orphaned, missing) end
    return granted, taken - first
  end
end
