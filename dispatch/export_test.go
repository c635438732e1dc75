package dispatch

import "time"

// After is after, for tests.
func (s Schedule) After(t, firstDue time.Time) (time.Time, error) { return s.after(t, firstDue) }

// Validate is validate, for tests.
func (s Schedule) Validate() error { return s.validate() }
