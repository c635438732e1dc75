package warc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/collector/web/warc"
)

const (
	// writerVariable makes the test's own program a writer of pages in the directory that it names, until it is killed.
	writerVariable = "WARC_TEST_WRITER"

	// fullVariable lets the writer's files grow to so many bytes, as on a full disk. It ends when one has.
	fullVariable = "WARC_TEST_FULL"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		if err := write(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this is a main
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// write puts pages, and says the fence of each one that is stored.
func write(dir string) error {
	ctx := context.Background() //nolint:forbidigo // a program of its own, until it is killed
	cfg := warc.Config{Dir: dir, CollectorID: "killed", MaxFileBytes: 256 << 10}
	full, err := fileLimit()
	if err != nil {
		return err
	}
	if full {
		cfg.MaxFileBytes = 0 // the limit comes first
	}
	sink, err := warc.New(cfg)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for fence := int64(1); ; fence++ {
		page, content := noisePage(fence)
		if err := sink.Put(ctx, page, content); err != nil && full && errors.Is(err, syscall.EFBIG) {
			return sink.Close()
		} else if err != nil {
			return err
		}
		fmt.Fprintln(out, fence)
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// fileLimit sets the limit of fullVariable, and reports whether there is one.
func fileLimit() (bool, error) {
	text := os.Getenv(fullVariable)
	if text == "" {
		return false, nil
	}
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return false, err
	}
	signal.Ignore(syscall.SIGXFSZ)
	return true, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit})
}
