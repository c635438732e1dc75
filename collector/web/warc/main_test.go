package warc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// writerVariable makes the test's own program a writer of pages in the directory that it names, until it is killed.
const writerVariable = "WARC_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		fmt.Fprintln(os.Stderr, write(dir))
		os.Exit(1) //nolint:forbidigo // this is a main
	}
	goleak.VerifyTestMain(m)
}

// write puts pages, and says the fence of each one that is stored.
func write(dir string) error {
	ctx := context.Background() //nolint:forbidigo // a program of its own, until it is killed
	sink, err := warc.New(warc.Config{Dir: dir, CollectorID: "killed", MaxFileBytes: 256 << 10})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for fence := int64(1); ; fence++ {
		page, content := noisePage(fence)
		if err := sink.Put(ctx, page, content); err != nil {
			return err
		}
		fmt.Fprintln(out, fence)
		if err := out.Flush(); err != nil {
			return err
		}
	}
}
