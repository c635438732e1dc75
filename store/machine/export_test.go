package machine

// SortedSet is the sorted set for its own test.
type SortedSet struct{ set openSet[name] }

// name is a member that is nothing else.
type name string

// Before implements [sorted.Member].
func (n name) Before(other name) bool { return n < other }

// Insert adds a member.
func (s *SortedSet) Insert(score int64, member string) { s.set.insert(score, name(member)) }

// Remove takes a member out.
func (s *SortedSet) Remove(score int64, member string) { s.set.remove(score, name(member)) }

// Len is the number of members.
func (s *SortedSet) Len() int { return s.set.Len() }

// First gives the first member; ok is false when the set is empty.
func (s *SortedSet) First() (score int64, member string, ok bool) {
	e, ok := s.set.First()
	return e.Score, string(e.Value), ok
}

// FirstFrom gives the first member at or after score.
func (s *SortedSet) FirstFrom(score int64) (found int64, member string, ok bool) {
	e, ok := s.set.FirstFrom(score)
	return e.Score, string(e.Value), ok
}

// Last gives the last member.
func (s *SortedSet) Last() (score int64, member string, ok bool) {
	e, ok := s.set.Last()
	return e.Score, string(e.Value), ok
}

// Oldest gives the member that waits longest over all bands.
func (s *SortedSet) Oldest() (score int64, member string, ok bool) {
	e, ok := s.set.oldest()
	return e.Score, string(e.Value), ok
}

// UpTo counts the members of at most a score.
func (s *SortedSet) UpTo(score int64) int { return s.set.UpTo(score) }

// InBand counts the members of a score's band.
func (s *SortedSet) InBand(score int64) int { return s.set.inBand(score) }

// Members lists all members in order.
func (s *SortedSet) Members() []string {
	var members []string
	for e := range s.set.From(0) {
		members = append(members, string(e.Value))
	}
	return members
}

// After lists the members behind a place.
func (s *SortedSet) After(score int64, member string) []string {
	var members []string
	for e := range s.set.After(score, func(n name) bool { return string(n) > member }) {
		members = append(members, string(e.Value))
	}
	return members
}

// BandScore is the score of a band and since.
func BandScore(band, since int64) int64 { return band<<bandShift + since }

// Table is the table of records and grants for its own test: of strings.
type Table struct{ table table[text, *entryOfTable] }

type entryOfTable struct{ name text }

func (e *entryOfTable) key() text { return e.name }

// Add takes in a key that it does not have.
func (t *Table) Add(key string) { t.table.add(&entryOfTable{text(key)}) }

// Remove takes a key out.
func (t *Table) Remove(key string) { t.table.remove(text(key)) }

// Has reports whether the table finds the key.
func (t *Table) Has(key string) bool {
	v := t.table.get(text(key))
	return v != nil && v.name == text(key)
}

// Keys lists the keys, and their number as the table has it.
func (t *Table) Keys() (keys []string, size int) {
	for v := range t.table.all() {
		keys = append(keys, string(v.name))
	}
	return keys, t.table.len()
}
