package demo

import (
	"context"
	"os/exec"
	"runtime"
)

// openBrowser opens an address in the user's browser, if that can be done: it is on the screen in any case.
func openBrowser(ctx context.Context, address string) {
	opener := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		opener = []string{"open"}
	case "windows":
		opener = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), opener[0], append(opener[1:], address)...) //nolint:gosec // an address of this program
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }() // nothing depends on it
	}
}
