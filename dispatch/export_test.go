package dispatch

import "time"

// After is after, for tests.
func (s Schedule) After(t, firstDue time.Time) (time.Time, error) { return s.after(t, firstDue) }

// Validate is validate, for tests.
func (s Schedule) Validate() error { return s.validate() }

// CronTick reads the cron line once, for tests that ask for many ticks.
func (s Schedule) CronTick() (func(time.Time) time.Time, error) {
	line, err := s.parseCron()
	if err != nil {
		return nil, err
	}
	return line.Next, nil
}
