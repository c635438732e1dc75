package redistest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// shared is the package's server, as another package would declare it.
var shared = redistest.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Wrap(m)) }
