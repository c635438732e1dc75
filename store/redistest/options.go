package redistest

import "fmt"

// Option changes how a server is started.
type Option func(*options)

type options struct {
	port    int
	clock   bool
	cluster bool
	config  [][2]string // lines of redis.conf, in order
}

// Fsync is when an append-only file reaches the disk: Redis's appendfsync.
type Fsync string

// The fsync policies of an append-only file.
const (
	FsyncAlways      Fsync = "always"   // before each reply: a kill loses nothing that was answered
	FsyncEverySecond Fsync = "everysec" // a power cut loses up to about a second; a killed process nothing written
	FsyncNo          Fsync = "no"       // when the kernel likes
)

// WithAOF keeps an append-only file under the given fsync policy, so that Restart finds the data again.
func WithAOF(fsync Fsync) Option {
	return func(o *options) {
		o.config = append(o.config,
			[2]string{"appendonly", "yes"},
			[2]string{"appendfsync", string(fsync)},
		)
	}
}

// WithConfig adds a line to redis.conf. The value is written as it is: quote one that is empty or holds spaces. Later
// options win over earlier ones.
func WithConfig(key, value string) Option {
	return func(o *options) { o.config = append(o.config, [2]string{key, value}) }
}

// WithCluster makes the server a node of a Cluster, so far of no other's, that has no slots. Its bus has a free port too:
// the usual one, 10000 above the server's, may be none.
func WithCluster() Option {
	return func(o *options) {
		o.cluster = true
		o.config = append(o.config, [2]string{"cluster-enabled", "yes"})
	}
}

// WithMaxMemory limits the server's memory, in bytes: over it, Redis refuses writes that may grow (policy noeviction).
func WithMaxMemory(bytes int64) Option {
	return WithConfig("maxmemory", fmt.Sprint(bytes))
}

// WithPort sets the TCP port instead of a free one. The start fails when the port is taken.
func WithPort(port int) Option {
	return func(o *options) { o.port = port }
}

// WithClock puts the server's wall clock under the test's control: see Clock. It needs Linux and a C compiler. Such a
// server has a locale of its own, too, in which strings that scripts compare come in the opposite order of their bytes.
func WithClock() Option {
	return func(o *options) { o.clock = true }
}
