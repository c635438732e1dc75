package cli_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

func TestOperatorName(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"ann", "paris", "ann@paris"},
		{"", "paris", "paris"},
		{"ann", "", "ann"},
		{"", "", ""},
		{"a\x00n\xffn", "pa\nris", "ann@paris"},
		{strings.Repeat("n", 125), "häh", strings.Repeat("n", 125) + "@h"}, // of ä there is room for half
	} {
		if got := cli.OperatorName(c[0], c[1]); got != c[2] {
			t.Errorf("%q on %q is %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
