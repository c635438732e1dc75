package operate_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the kit's world, with what these tests do in it.
type world struct{ *dispatchtest.World }

// inWorld runs a test in virtual time with dispatchers that run.
func inWorld(t *testing.T, s dispatchtest.Setup, test func(t *testing.T, w *world)) {
	t.Helper()
	dispatchtest.InWorld(t, s, func(t *testing.T, w *dispatchtest.World) { test(t, &world{w}) })
}
