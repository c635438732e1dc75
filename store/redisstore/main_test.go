package redisstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// shared is the redis-server of the tests that neither stop it nor set its clock.
var shared = redistest.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Wrap(m)) }
