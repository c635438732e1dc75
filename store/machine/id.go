package machine

import (
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
)

// taskHash is what tells the tasks of a store apart: the 128 bits that a [dispatch.TaskID] has behind its slot.
type taskHash [16]byte

// hash implements [tableKey]: it is part of a SHA-256.
func (h taskHash) hash() uint32 { return binary.LittleEndian.Uint32(h[:]) }

const (
	idLetters = "abcdefghijklmnopqrstuvwxyz234567"
	hashText  = 26 // characters of a hash: 5 bits each
)

// parseID reads a task id; ok is false if no task can have it.
func parseID(id dispatch.TaskID) (slot uint16, hash taskHash, ok bool) {
	dash := len(id) - hashText - 1
	if dash < 1 || dash > 4 || id[dash] != '-' || id[0] == '0' && dash > 1 {
		return 0, hash, false
	}
	for _, c := range []byte(id[:dash]) {
		if c < '0' || c > '9' {
			return 0, hash, false
		}
		slot = 10*slot + uint16(c-'0')
	}
	var room uint32
	n, have := 0, 0
	for _, c := range []byte(id[dash+1:]) {
		switch {
		case c >= 'a' && c <= 'z':
			room = room<<5 | uint32(c-'a')
		case c >= '2' && c <= '7':
			room = room<<5 | uint32(c-'2'+26)
		default:
			return 0, hash, false
		}
		if have += 5; have >= 8 && n < len(hash) {
			have -= 8
			hash[n] = byte(room >> have)
			n++
		}
	}
	return slot, hash, room&(1<<have-1) == 0 // the last bits mean nothing
}

// idOf is the task id of a hash in a slot.
func idOf(slot uint16, hash *taskHash) dispatch.TaskID {
	var buf [4 + 1 + hashText]byte
	text := append(strconv.AppendUint(buf[:0], uint64(slot), 10), '-')
	room, have := uint32(0), 0
	for _, b := range hash {
		room, have = room<<8|uint32(b), have+8
		for ; have >= 5; have -= 5 {
			text = append(text, idLetters[room>>(have-5)&31])
		}
	}
	return dispatch.TaskID(append(text, idLetters[room<<(5-have)&31]))
}

// hashBefore orders hashes as the texts of their ids: that is the order in which stores list tasks.
func hashBefore(a, b *taskHash) bool {
	for i := range a {
		if d := a[i] ^ b[i]; d != 0 {
			group := (8*i + bits.LeadingZeros8(d)) / 5
			return letter(a, group) < letter(b, group)
		}
	}
	return false
}

// letter is a character of the text of a hash.
func letter(h *taskHash, group int) byte {
	at := 5 * group
	wide := uint16(h[at/8]) << 8
	if at/8+1 < len(h) {
		wide |= uint16(h[at/8+1])
	}
	return idLetters[wide>>(11-at%8)&31]
}

// slotBefore orders slots as the texts of ids, where a dash follows.
func slotBefore(a, b uint16) bool {
	var bufA, bufB [6]byte
	return string(append(strconv.AppendUint(bufA[:0], uint64(a), 10), '-')) <
		string(append(strconv.AppendUint(bufB[:0], uint64(b), 10), '-'))
}
