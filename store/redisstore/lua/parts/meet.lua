-- Items with a task that exists.

local CREATED, EXISTS, REVISIT, LIMITED = 1, 2, 3, 4

-- Whether a source has all the one-shot tasks that it may.
local function limited(s, more)
  if s.limit == 0 then return false end
  if s.counts.out + more < s.limit then return false end
  tally_source(s.uid, 'limited', 1)
  return true
end

local submit_again
do
  local SOONER, AGAIN, RESEED, RETRY = 1, 2, 3, 4 -- from AGAIN on, a settled task is due again

  -- The rest of a record: size, priority, depth, bytes of the core, run, first due,
  -- and the body.
  local REST = '>I3BI2I2I6I6'

  -- The fields of an item that can change its task.
  local function read_item(series, id, key, rest)
    local size, _, depth, core, run, first_due, at = struct.unpack(REST, rest)
    return {
      id = id, key = key, recurring = series.recurring, priority = series.priority, if_exists = series.if_exists, due = series.due,
      revisit_after = series.revisit_after, modified = series.modified, size = size, depth = depth, core = core, run = run,
      first_due = first_due, body = string.sub(rest, at),
    }
  end

  local function lay_body(r, item)
    r.core, r.size, r.body, r.priority = item.core, item.size, item.body, item.priority
  end

  -- Makes a task anew in place of the settled one of a deleted source.
  local function replace(series, item, rest, old)
    if not series.recurring and limited(series.source, series.created) then return LIMITED, old.state end
    local l = lane_of(series)
    call('SET', item.key, begin_record(series, l) .. rest)
    leave_settled(get_lane(old.lane), item.id, old)
    call('DEL', details_key(item.id), history_key(item.id))
    enter_waiting(l, item.id, item)
    outstanding(series.source.uid, item, 1)
    return CREATED, item.due <= now and 2 or WAITING
  end

  local function revisit(item, r, l)
    local recurring = r.recurring or item.recurring
    if not recurring and limited(get_source(l.uid), 0) then return LIMITED, r.state end
    local settled = { state = r.state, details = r.details, history = r.history }
    lay_body(r, item)
    r.state, r.recurring, r.depth, r.due, r.run = WAITING, recurring, item.depth, item.due, max(r.run, item.run)
    if item.if_exists == RESEED then r.first_due = item.first_due end
    r.attempt, r.counters, r.cancel, r.again, r.revision = 0, NO_COUNTERS, 0, false, r.revision + 1
    write_record(item.id, r)
    leave_settled(l, item.id, settled)
    enter_waiting(l, item.id, r)
    outstanding(l.uid, r, 1)
    return REVISIT, visible_state(r)
  end

  -- Applies an item to a waiting or leased record; returns whether it changed.
  local function merge(item, r, l)
    local before = pack_record(r)
    r.run, r.depth = max(r.run, item.run), min(r.depth, item.depth)
    local waits = r.state == WAITING
    if item.if_exists == SOONER and waits then
      r.due, r.priority = min(r.due, item.due), max(r.priority, item.priority)
    elseif item.if_exists == AGAIN then
      if waits then r.due = min(r.due, item.due) else r.again = true end
    elseif item.if_exists == RESEED then
      lay_body(r, item)
      r.due, r.first_due, r.cancel = item.due, item.first_due, 0
      if not r.recurring then
        outstanding(l.uid, r, -1)
        r.recurring = true
      end
    end
    return pack_record(r) ~= before
  end

  local function meet(item, r, l)
    local rank, due = rank_of(r), r.due
    if not merge(item, r, l) then return EXISTS, visible_state(r) end
    r.revision = r.revision + 1
    write_record(item.id, r)
    local moved = r.state == WAITING and (rank_of(r) ~= rank or r.due ~= due)
    if moved and not is_orphan(l, item.id) then
      leave_waiting(l, item.id)
      enter_waiting(l, item.id, r)
    end
    return EXISTS, visible_state(r)
  end

  local function again(item, r)
    if item.if_exists == RETRY then return item.modified == 0 or item.modified == r.revision end
    if item.run > r.run or item.if_exists >= AGAIN then return true end
    if r.state ~= DONE then return false end
    if item.revisit_after > 0 and r.settled_at + item.revisit_after <= now then return true end
    return r.settled_at < item.modified and item.modified <= now
  end

  -- What becomes of a task, given its record, that was submitted again.
  function submit_again(series, suffix, key, rest, r)
    local item, l = read_item(series, series.slot .. '-' .. suffix, key, rest), get_lane(r.lane)
    if r.state < DONE then return meet(item, r, l) end
    if get_source(l.uid).deleted then return replace(series, item, rest, r) end
    if not again(item, r) then return EXISTS, r.state end
    return revisit(item, r, l)
  end
end
