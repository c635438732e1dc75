package cli_test

import (
	"runtime/debug"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]debug.BuildInfo{
		"v1.2.3": {Main: debug.Module{Version: "v1.2.3"}},
		"devel":  {Main: debug.Module{Version: "(devel)"}},
		"devel-0123456789ab+changes": {Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
		}},
	} {
		if got := cli.VersionOf(&info); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
}
