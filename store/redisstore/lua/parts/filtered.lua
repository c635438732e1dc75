-- What a source's follow rule kept out, by reason (gate.go).

-- Adds counts, packed, to those that are kept of a source.
local function count_filtered(uid, packed)
  if not get_source(uid).known then return end
  local key, sums = source_key(uid), {}
  local kept = (call('HGET', key, 'filtered') or '') .. ZEROS
  for at = 1, #packed, 6 do
    sums[#sums + 1] = struct.pack('>i6', struct.unpack('>i6', kept, at) + struct.unpack('>i6', packed, at))
  end
  call('HSET', key, 'filtered', table.concat(sums))
end
