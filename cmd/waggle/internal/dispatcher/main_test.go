package dispatcher_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/store/redistest"
)

var shared = redistest.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Wrap(m)) }
