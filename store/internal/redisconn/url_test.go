package redisconn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://localhost", "rediss://user:pw@localhost:1/3?pool_size=5", "unix:///run/redis.sock?db=1",
		"redis+sentinel://a:1,b:2/main", "redis+cluster://a,b:1",
	} {
		if _, err := redisconn.Parse(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, says := range map[string]string{
		"":                               `scheme "" is unknown`,
		"localhost:6379":                 "is unknown; it is one of redis://",
		"postgres://localhost/x":         `scheme "postgres" is unknown`,
		"redis-owner://localhost":        `scheme "redis-owner" is unknown`,
		"redis:///0":                     "names no host",
		"redis://localhost:port":         "does not parse",
		"redis://localhost:65536":        "65536 is not 1 to 65535",
		"redis+cluster://a:x,b:1":        "a:x is not 1 to 65535",
		"redis://a:1,b:2":                "several hosts",
		"redis://localhost/x":            "database",
		"redis://localhost?tint=blue":    "tint",
		"redis+sentinel://a:1,b:2":       "/<master>",
		"redis+sentinel://a:1,,b:2/main": "empty host",
		"redis+cluster://a:1/3":          "database",
		"unix://":                        "socket",
	} {
		if _, err := redisconn.Parse(url); !errors.Is(err, dispatch.ErrInvalid) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want ErrInvalid that contains %q", url, err, says)
		}
	}
}

func TestParse_Password(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://user:secret@localhost:port", "redis://user:secret@localhost/x", "redis+sentinel://user:secret@a:1",
		"redis+cluster://:secret@a:x,b:1", "redis+sentinel://a:1?sentinel_password=secret",
	} {
		if _, err := redisconn.Parse(url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
