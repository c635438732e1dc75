package warc

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
)

var _ web.Expiring = (*Sink)(nil)

// period is how often to look whether something has become old; 0: never.
func (c *Config) period() time.Duration {
	period := time.Duration(0)
	for _, age := range []time.Duration{c.MaxFileAge, c.Keep} {
		if age > 0 && (period == 0 || age/10 < period) {
			period = min(max(age/10, 100*time.Millisecond), time.Minute)
		}
	}
	return period
}

// age finishes and removes files until the sink is closed. What fails is tried again.
func (s *Sink) age(period time.Duration) {
	defer close(s.aged)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		if s.out != nil && s.cfg.MaxFileAge > 0 && time.Since(s.begun) >= s.cfg.MaxFileAge {
			_ = s.finish() // an output that could not be finished is left to the next sink
		}
		s.mu.Unlock()
		if s.cfg.Keep > 0 {
			s.expire(time.Now().Add(-s.cfg.Keep))
		}
	}
}

// expire removes the finished files of this collector that were written to the last time before that.
func (s *Sink) expire(before time.Time) {
	files, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return
	}
	for _, file := range files {
		name, finished := strings.CutSuffix(file.Name(), archiveSuffix)
		match := fileName.FindStringSubmatch(name)
		if !finished || match == nil || match[1] != s.cfg.CollectorID {
			continue
		}
		if info, err := file.Info(); err == nil && info.ModTime().Before(before) {
			path := filepath.Join(s.cfg.Dir, name)
			_ = os.Remove(path + archiveSuffix)
			_ = os.Remove(path + indexSuffix)
		}
	}
}

// known are the places of a body that are not about to be removed.
func (s *Sink) known(digest string) ([]location, error) {
	found, err := s.digests.find(digest)
	if s.cfg.Keep > 0 {
		oldest := time.Now().Add(-s.cfg.Keep * 9 / 10) // a fetch may take a while from its question for the body to its record
		found = slices.DeleteFunc(found, func(l location) bool {
			date, err := time.Parse(timeLayout, l.Date)
			return err != nil || date.Before(oldest)
		})
	}
	return found, err
}

// Has implements [web.Expiring]. A body has the time of the record that it is in, whatever was asked for since.
func (s *Sink) Has(digest string) bool {
	if s.cfg.Keep == 0 {
		return true
	}
	_, err := s.Body(context.Background(), digest) //nolint:forbidigo // a file that is read
	return err == nil
}
