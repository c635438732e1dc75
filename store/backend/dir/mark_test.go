package dir_test

import (
	"bytes"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
)

const markPath = "/data/mark.waggle"

// machine is one whose clock may be stepped and that may be started anew, in virtual time.
type machine struct {
	disk   *disktest.Disk
	step   time.Duration
	boot   byte
	booted time.Time
}

func (m *machine) config() storeConfig {
	config, _ := onDisk(m.disk)
	config.Now = func() time.Time { return time.Now().Add(m.step) }
	return config.Booted(func() ([16]byte, time.Duration) { return [16]byte{m.boot}, time.Since(m.booted) })
}

// lease submits a task and claims it.
func lease(t *testing.T, s *fileStore, duration time.Duration) dispatch.Grant {
	t.Helper()
	if err := submit(t.Context(), s, "q", "1"); err != nil {
		t.Fatal(err)
	}
	reply, err := s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "t", Call: "1"}, Max: 1, MaxBytes: manyBytes, Lease: duration,
	}}, nil)
	if err != nil || len(reply.Grants[0]) != 1 {
		t.Fatalf("claimed %v, %v", reply.Grants, err)
	}
	return reply.Grants[0][0]
}

// TestStore_Grace has a store away for a while, with a lease: the grace at the next start is as long (P5), give or take the
// second between two marks, and whatever the clock did.
func TestStore_Grace(t *testing.T) {
	t.Parallel()
	const second, longest = time.Second, dispatch.OutageGrace
	for name, c := range map[string]struct {
		away   time.Duration
		before func(m *machine) // the start
		least  time.Duration
		most   time.Duration
	}{
		"short":              {away: 3900 * time.Millisecond},
		"as long as it was":  {away: 8 * second, least: 8 * second, most: 9 * second},
		"at most 30 s":       {away: time.Hour, least: longest, most: longest},
		"clock stepped back": {away: 8 * second, before: func(m *machine) { m.step = -time.Hour }, least: 8 * second, most: 9 * second},
		"clock forward":      {away: second, before: func(m *machine) { m.step = time.Hour }},
		"machine restarted": {
			away: 8 * second, before: func(m *machine) { m.boot, m.booted = 2, time.Now() },
			least: longest, most: longest, // its clock may be another one
		},
		"mark is gone":    {away: second, before: func(m *machine) { m.disk.WriteFile(markPath, nil) }, least: longest, most: longest},
		"mark is damaged": {away: second, before: func(m *machine) { flip(m.disk, markPath, 20) }, least: longest, most: longest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &machine{disk: disktest.New(1), boot: 1, booted: time.Now()}
				s := startOn(t, m.config())
				time.Sleep(time.Hour) // nothing happens, so there is no newer mark when the lease comes
				lease(t, s, time.Minute)
				synctest.Wait()
				if err := s.Kill(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.away)
				if c.before != nil {
					c.before(m)
				}
				s = startOn(t, m.config())
				if stats, err := s.Stats(t.Context()); err != nil || stats.Grace < c.least || stats.Grace > c.most {
					t.Errorf("grace %v, %v; want %v to %v", stats.Grace, err, c.least, c.most)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestStore_Grace_startFails fails a start after an outage at each of its writes: the next one has not forgotten the outage (P5).
func TestStore_Grace_startFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for n := range 240 { // again and again: what is written first is chance
			m := &machine{disk: disktest.New(1), boot: 1, booted: time.Now()}
			s := startOn(t, m.config())
			lease(t, s, time.Minute)
			synctest.Wait()
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * time.Second)
			m.disk.Fail(disktest.Write, n%12, syscall.EIO)
			s, failed := openStore(t.Context(), m.config())
			if failed != nil {
				s = startOn(t, m.config())
			}
			if stats, err := s.Stats(t.Context()); err != nil || stats.Grace < 8*time.Second {
				t.Errorf("after a start that failed at write %d with %v: grace %v, %v", n%12, failed, stats.Grace, err)
			}
			_ = s.Close() // which may meet the fault
		}
	})
}

// TestStore_CrashLoop kills a store after an outage again each 8 s, with 1 s away: a lease of 2 s is found when the grace after
// that outage ends, which crashes do not add to, and soon after its deadline if there was none (P5).
func TestStore_CrashLoop(t *testing.T) {
	t.Parallel()
	for away, most := range map[time.Duration]time.Duration{time.Second: 3 * time.Second, 20 * time.Second: 41 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := &machine{disk: disktest.New(1), boot: 1, booted: time.Now()}
			s := startOn(t, m.config())
			deadline := lease(t, s, 2*time.Second).Task.Lease.Deadline
			synctest.Wait()
			found := false
			for crashes := 0; !found && crashes < 10; crashes++ {
				if err := s.Kill(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(away)
				away = time.Second
				s = startOn(t, m.config())
				for began := time.Now(); !found && time.Since(began) < 7*time.Second; time.Sleep(500 * time.Millisecond) {
					sweep, err := s.Expired(t.Context(), 0, 10)
					if err != nil {
						t.Fatal(err)
					}
					found = len(sweep.Expired) > 0
				}
			}
			if late := time.Since(deadline); !found || late > most {
				t.Errorf("found: %v, %v after its deadline, want %v at most", found, late, most)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStore_Idle writes nothing while no lease stands and no command comes.
func TestStore_Idle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{disk: disktest.New(1), boot: 1, booted: time.Now()}
		s := startOn(t, m.config())
		grant := lease(t, s, time.Minute)
		synctest.Wait()
		before := m.disk.ReadFile(markPath)
		time.Sleep(1500 * time.Millisecond)
		if bytes.Equal(m.disk.ReadFile(markPath), before) {
			t.Error("no mark in a second with a lease")
		}
		if _, err := s.Apply(t.Context(), []dispatch.Transition{done(grant)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		before = m.disk.ReadFile(markPath)
		time.Sleep(time.Hour)
		if !bytes.Equal(m.disk.ReadFile(markPath), before) {
			t.Error("a mark while nothing happens")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
