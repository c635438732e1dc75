package store

import "fmt"

// Check looks at everything that the store has in memory. Of each shard it returns the first thing that stands where it does not
// belong, or does not fit to the others: of what was loaded, what the items contradict each other about.
func (s *Store) Check() (misfits []error) {
	for _, sh := range s.shards {
		sh.begin()
		err := sh.Check()
		sh.end()
		if err != nil {
			misfits = append(misfits, fmt.Errorf("shard %d: %w", sh.Number, err))
		}
	}
	return misfits
}
