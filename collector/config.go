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

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
)

// Limits of Config.
const (
	maxSlots    = 1000
	maxNarrow   = 16
	maxLabels   = 64
	maxName     = 128 // bytes of an id, a label's key or value, and the version
	maxQueue    = 261
	maxHostname = 253
	maxWait     = 30 * time.Second
	minLease    = time.Second
	maxLease    = time.Hour
	maxProblem  = 300

	maxProblemDuration = 366 * 24 * time.Hour

	alphanumeric = "abcdefghijklmnopqrstuvwxyz0123456789"
	idBytes      = alphanumeric + "._-" // ids consist of these
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

	// TLS encrypts connections, and shows dispatchers a certificate if it names one. An empty TLS trusts the authorities of the
	// system. Default: plain text.
	TLS *TLS

	// Token is sent with each call, as "authorization: Bearer TOKEN". TokenFile is a file that holds it: it is read again when it
	// has changed, within half a second, and the last good token is used while it cannot be read. Set at most one of the two. A
	// token needs TLS unless each target is a Unix socket or a loopback address. Default: none.
	Token     string
	TokenFile string

	// Credentials of the connection, in place of TLS, for those who bring their own.
	Credentials credentials.TransportCredentials

	// DialOptions are added to those of the collector, for interceptors and per-call credentials.
	DialOptions []grpc.DialOption

	// TracerProvider makes a span of each call of the Handler, in the trace of whoever submitted the task, if that was sampled.
	// The Handler's context has it. Default: the global one of OpenTelemetry, which makes none until the program sets it.
	TracerProvider trace.TracerProvider

	// Problem returns what keeps the collector itself from its work, as that its pages are not taken where it sends them, and since
	// when; nil: nothing does. Each heartbeat carries its first 300 bytes, and operators are shown them. It may be called at any time,
	// by several goroutines. Default: nothing does.
	Problem func() (since time.Time, err error)

	// Logger gets what an operator needs to know. Default: none.
	Logger *zap.Logger
}

// Validate checks the configuration; its error names the field, the value and the limit.
func (c *Config) Validate() error {
	switch {
	case !madeOf(c.ID, idBytes, maxName):
		return fmt.Errorf("field ID: %q: want 1 to %d of [a-z0-9._-]", c.ID, maxName)
	case c.Slots < 0 || c.Slots > maxSlots:
		return fmt.Errorf("field Slots: %d: want 1 to %d", c.Slots, maxSlots)
	case c.Wait < 0 || c.Wait > maxWait:
		return fmt.Errorf("field Wait: %s: want at most %s", c.Wait, maxWait)
	case c.LeaseDuration != 0 && (c.LeaseDuration < minLease || c.LeaseDuration > maxLease):
		return fmt.Errorf("field LeaseDuration: %s: want %s to %s", c.LeaseDuration, minLease, maxLease)
	case c.ReportTimeout < 0:
		return fmt.Errorf("field ReportTimeout: %s: want more than 0", c.ReportTimeout)
	}
	return cmp.Or(c.validateTargets(), c.validateSecurity(), c.validateTexts(),
		validNames("Pools", c.Pools, idBytes, maxName),
		validNames("Sources", c.Sources, idBytes, maxName),
		validNames("Queues", c.Queues, idBytes+":[]", maxQueue),
	)
}

func (c *Config) validateTargets() error {
	if len(c.Targets) == 0 {
		return errors.New("field Targets: want at least one host:port")
	}
	for _, target := range c.Targets {
		scheme, _, hasScheme := strings.Cut(target, "://")
		switch {
		case target == "":
			return errors.New("field Targets: has an empty one")
		case hasScheme && resolver.Get(scheme) == nil: // grpc-go would take it for a host
			return fmt.Errorf("field Targets: %q: scheme %q is unknown: want host:port", target, scheme)
		case len(c.Targets) > 1 && strings.Contains(target, "/"):
			return fmt.Errorf("field Targets: %q: want host:port when there are several", target)
		}
	}
	return nil
}

// validateTexts checks the texts that each heartbeat carries. Dispatchers refuse a heartbeat with an invalid one, and with it
// the renewal of every lease.
func (c *Config) validateTexts() error {
	if len(c.Labels) > maxLabels {
		return fmt.Errorf("field Labels: %d given, at most %d", len(c.Labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if key == "" {
			return fmt.Errorf("field Labels: the value %.40q has no key", c.Labels[key])
		}
		err := cmp.Or(validText("Labels: the key", key, maxName),
			validText(fmt.Sprintf("Labels: the value of %q", key), c.Labels[key], maxName))
		if err != nil {
			return err
		}
	}
	return cmp.Or(validText("Version", c.Version, maxName), validText("Hostname", c.Hostname, maxHostname))
}

func validText(field, value string, limit int) error {
	isControl := func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0x7f }
	switch {
	case len(value) > limit:
		return fmt.Errorf("field %s: %.40q... has %d bytes: want at most %d", field, value, len(value), limit)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, isControl):
		return fmt.Errorf("field %s: %q: want UTF-8 without control characters", field, value)
	}
	return nil
}

// problem is what keeps the collector itself from its work; nil: nothing does.
func (c *Config) problem() (since time.Time, err error) {
	if c.Problem == nil {
		return time.Time{}, nil
	}
	return c.Problem()
}

// validNames checks a list that narrows fetches.
func validNames(field string, names []string, of string, limit int) error {
	if len(names) > maxNarrow {
		return fmt.Errorf("field %s: %d given, at most %d", field, len(names), maxNarrow)
	}
	for _, name := range names {
		if !madeOf(name, of, limit) {
			return fmt.Errorf("field %s: %q: want 1 to %d of [%s]", field, name, limit, strings.Replace(of, alphanumeric, "a-z0-9", 1))
		}
	}
	return nil
}

// madeOf reports whether a name has 1 to limit bytes, each one of these.
func madeOf(name, of string, limit int) bool {
	return name != "" && len(name) <= limit && strings.Trim(name, of) == ""
}

// withDefaults returns a deep copy with defaults for what was left out.
func (c Config) withDefaults() Config {
	c.Targets = slices.Clone(c.Targets)
	c.Labels = maps.Clone(c.Labels)
	c.Pools, c.Sources, c.Queues = slices.Clone(c.Pools), slices.Clone(c.Sources), slices.Clone(c.Queues)
	c.Slots = cmp.Or(c.Slots, 1)
	c.Wait = cmp.Or(c.Wait, 10*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 20*time.Second)
	c.ReportTimeout = cmp.Or(c.ReportTimeout, 20*time.Second)
	if c.Hostname == "" {
		c.Hostname, _ = os.Hostname() // it is only shown
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	return c
}
