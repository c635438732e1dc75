-- What leased records of one lane have in common that begin alike, as most of a call
-- do: their lane, and how the record begins of such a task that succeeded and needs no
-- policy. It is made once for all of them.
local groups -- a list, and by what their records begin with
local settled_tail -- what a settled record has from its attempts up to its last lease
local group_leased, detailed_begin
do
  local R_SUCCEEDED = 1
  local BEGIN = '>BBBBBI4I4I4' -- version to lane
  local FROM, TO = LEASE + 1, LEASE + AT.lane + 3

  -- In one constructor, whose table has room for 16 fields: gone is when its settled
  -- records are forgotten, left what leaves the lane.
  local function new_group(head)
    local version, _, flags, _, cancel, revision, cycle, lane = struct.unpack(BEGIN, head)
    local g = {
      head = head, version = version, revision = revision, cycle = cycle, number = lane, plain = flags % 4 == 0 and cancel == 0,
      details = flags % 8 >= DETAILS, history = flags % 16 >= HISTORY, begin = false, detailed = false,
      lane = false, untold = false, gone = false, left = false,
    }
    groups[#groups + 1], groups[head] = g, g
    return g
  end

  -- What a record of the group begins with when it is settled, up to its last lease.
  local function settled_begin(g, flags)
    return struct.pack(BEGIN, g.version, DONE, flags, R_SUCCEEDED, 0, (g.revision + 2) % 4294967296, (g.cycle + 1) % 4294967296,
      g.number) .. settled_tail
  end

  function detailed_begin(g)
    g.detailed = g.detailed or settled_begin(g, DETAILS)
    return g.detailed
  end

  local function read_lanes()
    local numbers = {}
    for i = 1, #groups do numbers[i] = groups[i].number end
    gather(numbers)
    for i = 1, #groups do
      local g = groups[i]
      local l = get_lane(g.number)
      local s = get_source(l.uid)
      s.gone = s.gone or decimal(now + s.remember - 1)
      g.lane, g.untold, g.begin, g.gone = l, untold_of(get_queue(l.queue)), settled_begin(g, 0), s.gone
      g.plain = g.plain and not s.deleted and s.remember > 0
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
          last = groups[head] or new_group(head)
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
end

-- at each call
groups, settled_tail = {}, '\0\0\0\0' .. NO_COUNTERS .. struct.pack('>I6', now)
