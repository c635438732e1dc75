package collector

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
)

// Defaults and limits of Config.
const (
	defaultWait          = 10 * time.Second
	defaultStopTimeout   = 20 * time.Second
	defaultReportTimeout = 20 * time.Second

	maxSlots    = 1000
	maxNarrow   = 16
	maxLabels   = 64
	maxName     = 128 // bytes of an id, a label's key or value, and the version
	maxQueue    = 261
	maxHostname = 253
	maxWait     = 30 * time.Second
	minLease    = time.Second
	maxLease    = time.Hour

	// idBytes are what ids are made of, queueBytes what queues are.
	idBytes    = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	queueBytes = idBytes + ":[]"
)

// Config says what a Collector is and how it works. Targets and ID must be set; the zero value of everything else is
// its default.
type Config struct {
	// Targets are the dispatchers, each host:port. Of a single one all addresses that its name resolves to are used, so
	// one DNS name may stand for a whole group. Calls go to all of them in turn. A single target may also be any target
	// that grpc-go knows, as unix:///run/waggle.sock; a resolver of your own must be registered.
	Targets []string

	// ID names the collector, the same over restarts: 1 to 128 of [a-z0-9._-]. A second process with the same ID
	// replaces the first one.
	ID string

	// Version of the program (at most 128 bytes), Hostname (at most 253; default: that of the machine) and Labels (at most
	// 64, keys and values at most 128 bytes) are shown to operators; they choose collectors by label.
	Version  string
	Hostname string
	Labels   map[string]string

	// Pools to take tasks from, at most 16. Default: "default".
	Pools []string

	// Sources and Queues narrow the pools to tasks of these, at most 16 each; operators are shown them. Default: all.
	Sources []string
	Queues  []string

	// Slots is how many tasks are worked on at once, 1 to 1000. Default 1. More slots make better use of a connection;
	// each costs a goroutine and what the Handler needs.
	Slots int

	// Wait is how long a fetch waits at the dispatcher for a task, up to 30 s. Default 10 s. It should be shorter than the
	// idle timeout of any proxy on the way.
	Wait time.Duration

	// LeaseDuration is how long a lease runs between renewals, 1 s to 1 h. Default: the source's. Shorter ones bring the
	// tasks of a dead collector back sooner, and cost more heartbeats.
	LeaseDuration time.Duration

	// StopTimeout is how long running handlers may go on once the context of Run has ended; then theirs ends. Default
	// 20 s; negative: none. A handler gets 5 s more to return.
	StopTimeout time.Duration

	// ReportTimeout is how long a collector that stops waits for its last reports to be answered. Default 20 s.
	ReportTimeout time.Duration

	// Credentials of the connection. Default: plain text.
	Credentials credentials.TransportCredentials

	// DialOptions are added to those of the collector, for interceptors and per-call credentials.
	DialOptions []grpc.DialOption

	// Logger gets what an operator needs to know. Default: none.
	Logger *zap.Logger
}

// Validate checks the configuration; its error names the field, the value and the limit.
func (c *Config) Validate() error {
	if len(c.Targets) == 0 {
		return errors.New("field Targets: want at least one host:port")
	}
	for _, target := range c.Targets {
		if target == "" {
			return errors.New("field Targets: has an empty one")
		}
		if scheme, _, ok := strings.Cut(target, "://"); ok && resolver.Get(scheme) == nil { // grpc-go would take it for a host
			return fmt.Errorf("field Targets: %q: scheme %q is unknown: want host:port", target, scheme)
		}
		if len(c.Targets) > 1 && strings.Contains(target, "/") {
			return fmt.Errorf("field Targets: %q: want host:port when there are several", target)
		}
	}
	if !madeOf(c.ID, idBytes, maxName) {
		return fmt.Errorf("field ID: %q: want 1 to %d of [a-z0-9._-]", c.ID, maxName)
	}
	if err := c.validateTold(); err != nil {
		return err
	}
	if err := c.validateNarrow(); err != nil {
		return err
	}
	return c.validateNumbers()
}

// validateTold checks what each beat tells of the collector: dispatchers refuse a beat that tells anything else, and with
// it the renewal of every lease.
func (c *Config) validateTold() error {
	if len(c.Labels) > maxLabels {
		return fmt.Errorf("field Labels: %d given, at most %d", len(c.Labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if key == "" {
			return fmt.Errorf("field Labels: the value %.40q has no key", c.Labels[key])
		}
		if err := validText("Labels: the key", key, maxName); err != nil {
			return err
		}
		if err := validText(fmt.Sprintf("Labels: the value of %q", key), c.Labels[key], maxName); err != nil {
			return err
		}
	}
	if err := validText("Version", c.Version, maxName); err != nil {
		return err
	}
	return validText("Hostname", c.Hostname, maxHostname)
}

func validText(field, value string, limit int) error {
	switch {
	case len(value) > limit:
		return fmt.Errorf("field %s: %.40q... has %d bytes: want at most %d", field, value, len(value), limit)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, isControl):
		return fmt.Errorf("field %s: %q: want UTF-8 without control characters", field, value)
	}
	return nil
}

// isControl reports whether a rune is one that dispatchers take in no text: control characters but white space.
func isControl(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0x7f }

// validateNarrow checks what fetches are narrowed to.
func (c *Config) validateNarrow() error {
	for _, list := range []struct {
		name, of, form string
		limit          int
		values         []string
	}{
		{"Pools", idBytes, "[a-z0-9._-]", maxName, c.Pools},
		{"Sources", idBytes, "[a-z0-9._-]", maxName, c.Sources},
		{"Queues", queueBytes, "[a-z0-9._-], ':' and brackets", maxQueue, c.Queues},
	} {
		if len(list.values) > maxNarrow {
			return fmt.Errorf("field %s: %d given, at most %d", list.name, len(list.values), maxNarrow)
		}
		for _, value := range list.values {
			if !madeOf(value, list.of, list.limit) {
				return fmt.Errorf("field %s: %q: want 1 to %d of %s", list.name, value, list.limit, list.form)
			}
		}
	}
	return nil
}

// madeOf reports whether a name has 1 to limit bytes, each one of these.
func madeOf(name, of string, limit int) bool {
	return name != "" && len(name) <= limit && strings.Trim(name, of) == ""
}

func (c *Config) validateNumbers() error {
	if c.Slots < 0 || c.Slots > maxSlots {
		return fmt.Errorf("field Slots: %d: want 1 to %d", c.Slots, maxSlots)
	}
	if c.Wait < 0 || c.Wait > maxWait {
		return fmt.Errorf("field Wait: %s: want at most %s", c.Wait, maxWait)
	}
	if c.LeaseDuration != 0 && (c.LeaseDuration < minLease || c.LeaseDuration > maxLease) {
		return fmt.Errorf("field LeaseDuration: %s: want %s to %s", c.LeaseDuration, minLease, maxLease)
	}
	if c.ReportTimeout < 0 {
		return fmt.Errorf("field ReportTimeout: %s: want more than 0", c.ReportTimeout)
	}
	return nil
}

// withDefaults is a copy of its own, with what was left out filled in.
func (c Config) withDefaults() Config {
	c.Targets = slices.Clone(c.Targets)
	c.Labels = maps.Clone(c.Labels)
	c.Pools, c.Sources, c.Queues = slices.Clone(c.Pools), slices.Clone(c.Sources), slices.Clone(c.Queues)
	c.Slots = cmp.Or(c.Slots, 1)
	c.Wait = cmp.Or(c.Wait, defaultWait)
	c.StopTimeout = cmp.Or(c.StopTimeout, defaultStopTimeout)
	c.ReportTimeout = cmp.Or(c.ReportTimeout, defaultReportTimeout)
	if c.Hostname == "" {
		c.Hostname, _ = os.Hostname() // without a name it works as well
	}
	if c.Credentials == nil {
		c.Credentials = insecure.NewCredentials()
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	return c
}
