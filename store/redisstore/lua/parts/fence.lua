-- How a fence is written. Those of a claim follow one by one, so most begin as the
-- one before, and only their end is made anew.
local spell_bytes, spell_digits
do
  local bytes, bytes_of, digits, digits_of
  local last_bytes, last_digits = {}, {} -- 0 to 255, 000 to 999

  -- What a digest begins with, in two parts.
  function spell_bytes(fence)
    local last = fence % 256
    if fence - last ~= bytes_of then
      bytes_of = fence - last
      bytes = string.sub(struct.pack('>BI8', LEASED_RECORD, fence), 1, 8)
    end
    local byte = last_bytes[last]
    if not byte then
      byte = string.char(last)
      last_bytes[last] = byte
    end
    return bytes, byte
  end

  -- What a lease token ends with, in two parts.
  function spell_digits(fence)
    local last = fence % 1000
    if fence - last ~= digits_of then
      digits_of = fence - last
      digits = '/' .. decimal(digits_of / 1000)
    end
    local three = last_digits[last]
    if not three then
      three = string.format('%03d', last)
      last_digits[last] = three
    end
    return digits, three
  end
end
