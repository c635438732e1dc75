package owner_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }
