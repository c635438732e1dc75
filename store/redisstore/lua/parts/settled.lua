-- What leased records have in common that begin alike, and how such a task begins when it
-- has succeeded and needs no policy: it is made once for all of them.

-- Those of one lane are a group, with what its queue is to be told of them: how many
-- leases ended, and their shortest and longest fetch. The first n_groups are those of this
-- call; the others are of earlier ones, as lanes.
local groups, n_groups = {}, 0
local by_head -- groups, by what their records begin with, up to the lane
local settled_tail -- what a settled record has from its attempts up to its last lease
local group_leased, tell_all
do
  local R_SUCCEEDED = 1
  local BEGIN = '>BBBBBI4I4' -- version to cycle
  local FROM, LANE, TO = LEASE + 1, LEASE + AT.lane, LEASE + AT.lane + 3

  -- By what a record begins with, up to its cycle: most tasks of all calls are alike in it.
  local MOST_KINDS = 100
  local kinds, n_kinds = {}, 0

  -- What a settled record begins with, with details (detailed) or without.
  local function new_kind(head)
    local version, _, flags, _, cancel, revision, cycle = struct.unpack(BEGIN, head)
    revision, cycle = (revision + 2) % 4294967296, (cycle + 1) % 4294967296
    local kind = {
      plain = flags % 4 == 0 and cancel == 0, details = flags % 8 >= DETAILS, history = flags % 16 >= HISTORY,
      begin = struct.pack(BEGIN, version, DONE, 0, R_SUCCEEDED, 0, revision, cycle),
      detailed = struct.pack(BEGIN, version, DONE, DETAILS, R_SUCCEEDED, 0, revision, cycle),
    }
    if n_kinds == MOST_KINDS then kinds, n_kinds = {}, 0 end
    kinds[head], n_kinds = kind, n_kinds + 1
    return kind
  end

  local function new_group(head, raw)
    local alike = string.sub(head, 1, LANE - FROM)
    n_groups = n_groups + 1
    local g = groups[n_groups] or {}
    g.head, g.kind, g.number = head, kinds[alike] or new_kind(alike), (struct.unpack('>I4', raw, LANE))
    g.left, g.n, g.shortest, g.longest = false, 0, INF, 0
    groups[n_groups], by_head[head] = g, g
    return g
  end

  local function read_lanes()
    local numbers = {}
    for i = 1, n_groups do numbers[i] = groups[i].number end
    gather(numbers)
    for i = 1, n_groups do
      local g = groups[i]
      local l, kind = get_lane(g.number), g.kind
      local s = get_source(l.uid)
      s.gone = s.gone or decimal(now + s.remember - 1) -- when its settled records are forgotten
      g.lane, g.queue, g.gone, g.tail = l, get_queue(l.queue), s.gone, string.sub(g.head, LANE - FROM + 1) .. settled_tail
      g.plain = kind.plain and not s.deleted and s.remember > 0
    end
  end

  -- The group of each record, false for one that is not leased under its digest: of
  -- every step-th value from the first on.
  function group_leased(records, digests, first, step)
    local of, last = {}, nil
    for i = 1, #records do
      local raw = records[i]
      if raw and #raw >= LEASE + HEADER and string.find(raw, digests[first], 1, true) == 1 then
        if not last or string.find(raw, last.head, FROM, true) ~= FROM then
          local head = string.sub(raw, FROM, TO)
          last = by_head[head] or new_group(head, raw)
        end
        of[i] = last
      else
        of[i] = false
      end
      first = first + step
    end
    read_lanes()
    return of
  end

  -- Updates queues for their leases that have ended so far.
  function tell_all()
    for i = 1, n_groups do
      local g = groups[i]
      if g.n > 0 then
        lease_ended(g.queue, SUCCEEDED, g.shortest, 0, 0, nil, g.n, g.longest)
        g.n, g.shortest, g.longest = 0, INF, 0
      end
    end
  end
end

-- at each call
n_groups, by_head, settled_tail = 0, {}, '\0\0\0\0' .. NO_COUNTERS .. struct.pack('>I6', now)
