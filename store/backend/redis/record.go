package redis

import (
	"encoding/json"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// record is the owner's record, in JSON so that redis-cli shows it.
type record struct {
	Name     string `json:"name"`    // of the dispatcher
	Address  string `json:"address"` // where other dispatchers reach it
	Epoch    string `json:"epoch"`
	Beat     uint64 `json:"beat"` // rises with each renewal
	Released bool   `json:"released,omitempty"`
	// Standby is the process that has the shard in memory too, and may take over without waiting, and StandbyName its dispatcher. Of a
	// record that was released it is the heir.
	Standby     string `json:"standby,omitempty"`
	StandbyName string `json:"standby_name,omitempty"`
	Format      int    `json:"format"` // of the items: who knows only lower ones must not own them
	Shards      int    `json:"shards"` // of the store
	Time        int64  `json:"time"`   // when it was written, in milliseconds of Redis' clock
	// CopyOf names the store that is being copied into this one; only shard 0 has it.
	CopyOf string `json:"unfinished_copy_of,omitempty"`
}

func (r record) text() string {
	text, _ := json.Marshal(r) //nolint:errchkjson // it has no value that JSON cannot have
	return string(text)
}

// parseRecord reads a record; the empty text is of a shard that nobody has owned.
func parseRecord(text string) (r record, err error) {
	if text == "" {
		return r, nil
	}
	err = json.Unmarshal([]byte(text), &r)
	return r, err
}

// owns is what the record says about ownership.
func (r record) owns() (protocol.Record, error) {
	epoch, err := parseEpoch(r.Epoch)
	of := protocol.Record{Epoch: epoch, Beat: r.Beat, Released: r.Released}
	if r.Standby != "" && err == nil {
		of.Standby, err = parseProcess(r.Standby)
	}
	return of, err
}
