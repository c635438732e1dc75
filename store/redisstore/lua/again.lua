-- Items with a task that exists.
local CREATED, EXISTS, REVISIT, LIMITED = 1, 2, 3, 4
local SOONER, AGAIN, RESEED, RETRY = 1, 2, 3, 4 -- from AGAIN on, a settled task is due again

-- The rest of a record: size, priority, depth, bytes of the core, run, first due, where the
-- queue's name is; and the body.
local REST = '>I3BI2I2I6I6I2I2'

-- The fields of an item that can change its task.
local function read_item(series, id, name, rest)
  local size, _, depth, core, run, first_due, queue_at, _, at = parse(REST, rest)
  return {
    id = id, key = name, recurring = series.recurring, free = series.free, priority = series.priority, if_exists = series.if_exists, due = series.due,
    revisit_after = series.revisit_after, modified = series.modified, size = size, depth = depth, core = core, run = run,
    first_due = first_due, queue_at = queue_at, body = sub(rest, at), queue = series.queue,
  }
end

local function lay_body(r, item)
  r.core, r.size, r.body, r.priority, r.queue_at = item.core, item.size, item.body, item.priority, item.queue_at
end

-- Makes a task anew in place of the settled one of a deleted source.
local function replace(series, item, rest, old)
  local s = series.source
  if not series.free and task.limited(s, series.created) then return LIMITED, old.state end
  local raw = task.begin_record(series) .. rest
  call('SET', item.key, raw)
  settled.leave(source.get(old.source), item.id, old)
  call('DEL', key.details(item.id), key.history(item.id))
  local r = record.read(raw)
  task.enter(item.id, r)
  source.outstanding(s, r, 1)
  return CREATED, item.due <= now and 2 or record.WAITING
end

local function revisit(item, r)
  local s, recurring = source.get(r.source), r.recurring or item.recurring
  if not (recurring or item.free) and task.limited(s, 0) then return LIMITED, r.state end
  settled.leave(s, item.id, r)
  lay_body(r, item)
  r.state, r.recurring, r.depth, r.due, r.run = record.WAITING, recurring, item.depth, item.due, max(r.run, item.run)
  if item.if_exists == RESEED then r.first_due = item.first_due end
  r.attempt, r.counters, r.cancel, r.again, r.behind, r.revision = 0, record.NO_COUNTERS, 0, false, false, r.revision + 1
  record.write(item.id, r)
  task.enter(item.id, r)
  source.outstanding(s, r, 1)
  return REVISIT, record.visible(r)
end

-- Applies an item to a waiting or leased record; returns whether it changed.
local function merge(item, r)
  local old, due, priority = record.pack(r), r.due, r.priority
  r.run, r.depth = max(r.run, item.run), min(r.depth, item.depth)
  local waits = r.state == record.WAITING
  if item.if_exists == SOONER and waits then
    r.due, r.priority = min(r.due, item.due), max(r.priority, item.priority)
  elseif item.if_exists == AGAIN then
    if waits then r.due = min(r.due, item.due) else r.again = true end
  elseif item.if_exists == RESEED then
    lay_body(r, item)
    r.due, r.first_due, r.cancel, r.behind = item.due, item.first_due, 0, false
    if not r.recurring then
      source.outstanding(source.get(r.source), r, -1)
      r.recurring = true
    end
  end
  if waits and (r.due ~= due or r.priority ~= priority) then r.behind = false end -- it is asked for anew
  return record.pack(r) ~= old
end

local function meet(item, r)
  local rank, due, state = record.rank(r), r.due, r.state
  if not merge(item, r) then return EXISTS, record.visible(r) end
  r.revision = r.revision + 1
  record.write(item.id, r)
  if state == record.WAITING and (record.rank(r) ~= rank or r.due ~= due) and task.place(item.id, r) ~= true then
    task.leave(item.id, r)
    task.enter(item.id, r)
  end
  return EXISTS, record.visible(r)
end

local function again(item, r)
  if item.if_exists == RETRY then return item.modified == 0 or item.modified == r.revision end
  if item.run > r.run or item.if_exists >= AGAIN then return true end
  if r.state ~= record.DONE then return false end
  if item.revisit_after > 0 and r.settled_at + item.revisit_after <= now then return true end
  return r.settled_at < item.modified and item.modified <= now
end

-- What becomes of a task, given its record, that was submitted again.
function task.submit_again(series, suffix, name, rest, r)
  local item = read_item(series, series.slot .. '-' .. suffix, name, rest)
  if r.state < record.DONE then return meet(item, r) end
  if source.get(r.source).deleted then return replace(series, item, rest, r) end
  if not again(item, r) then return EXISTS, r.state end
  return revisit(item, r)
end
