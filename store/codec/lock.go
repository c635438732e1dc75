package codec

// LockWrite is what a group does to the lock of a task.
type LockWrite uint8

// What can happen to a lock.
const (
	// LockGrant sets it, unless somebody has.
	LockGrant LockWrite = iota + 1
	// LockRenew sets it, whatever it is. If there is none, the machine is to know.
	LockRenew
	// LockAgain sets it, whatever it is: a failover or an outage may have lost it.
	LockAgain
	// LockRestore sets it, unless it is foreign or of a later lease: what a failover has lost is written again.
	LockRestore
	// LockRelease deletes it, if it has the token.
	LockRelease
)

// Lock is an item that a backend does not keep as such: what happens to the lock of a task.
type Lock struct {
	Task, Token string
	Write       LockWrite
	TTL         int64 // in ms, of one that is set
	Ends        int64 // when the one before would have ended, of one that is renewed, in ms since 1970
}

// AppendLock appends what happens to a lock; with is a writer whose buffer it uses.
func AppendLock(out []byte, with *Codec, shard int, l *Lock) []byte {
	with.Reset(with.Buffer()[:0], nil)
	l.fields(with)
	return AppendEncoded(out, LockItem, shard, with.Buffer())
}

// ReadLock reads what AppendLock wrote.
func ReadLock(fields []byte) (l Lock, err error) {
	c := Reader(fields)
	l.fields(c)
	return l, c.Known()
}

func (l *Lock) fields(c *Codec) {
	Text(c, 1, &l.Task)
	Text(c, 2, &l.Token)
	Uint(c, 3, &l.Write)
	Int(c, 4, &l.TTL)
	Int(c, 5, &l.Ends)
}
