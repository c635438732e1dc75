package redistest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// clockSource is the C source of the library that redis-server is started with. It is not named .c, since the go
// command would then want cgo for the whole package.
//
//go:embed clock.c.txt
var clockSource []byte

// frozenBit of the shared word says that the rest is the time itself, not an offset. See clock.c.txt.
const frozenBit = 1

// Clock sets the wall clock of one redis-server: what TIME answers and what expiry goes by, to the microsecond. It
// begins at the real time. A change holds from the server's next command on, and over Restart.
//
// A frozen clock stands still, so that a test decides when a key expires: Redis drops it in the first millisecond after
// its deadline, not at the deadline itself. While the clock is frozen, blocking commands (BLPOP) do not time out, since
// Redis counts them by this clock.
type Clock struct {
	mu     sync.Mutex // makes read and write of Advance one step
	shared []byte     // the mapped file; its first 8 bytes are the word the server reads; nil once closed
}

// newClock builds the library in dir and returns the clock and the environment that gives it to redis-server.
func newClock(ctx context.Context, dir string) (*Clock, []string, error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil, nil, errors.New("a server with its own clock needs a C compiler: run `make setup`, " +
			"or `apt-get install -y gcc libc6-dev`")
	}
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-o", library, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("compile the clock (gcc and libc6-dev are needed): %w\n%s", err, out)
	}
	shared := filepath.Join(dir, "clock")
	clock, err := mapClock(shared)
	if err != nil {
		return nil, nil, err
	}
	return clock, []string{"LD_PRELOAD=" + library, "REDISTEST_CLOCK=" + shared}, nil
}

// mapClock makes the file that the server reads and maps it.
func mapClock(path string) (*Clock, error) {
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	shared, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &Clock{shared: shared}, nil
}

// Set freezes the clock at t, cut to the microsecond. It may go back.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(t.UnixMicro()<<1 | frozenBit)
}

// Freeze stops the clock at what it shows now and returns that time.
func (c *Clock) Freeze() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.store(now.UnixMicro()<<1 | frozenBit)
	return now
}

// Advance moves the clock by d, back when d is negative: a frozen one stands still at the new time, a running one
// runs on from it.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(c.load() + d.Microseconds()<<1)
}

// Offset lets the clock run at the real time plus d.
func (c *Clock) Offset(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(d.Microseconds() << 1)
}

// Now is what the clock shows, in UTC.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	word := c.load()
	micros := word >> 1
	if word&frozenBit == 0 {
		micros += time.Now().UnixMicro()
	}
	return time.UnixMicro(micros).UTC()
}

func (c *Clock) load() int64      { return atomic.LoadInt64(c.word()) }
func (c *Clock) store(word int64) { atomic.StoreInt64(c.word(), word) }

// word is the shared word. Mapped memory is aligned to a page, so the access is atomic on both sides.
func (c *Clock) word() *int64 {
	if c.shared == nil {
		panic("redistest: the clock is used after its test ended")
	}
	return (*int64)(unsafe.Pointer(unsafe.SliceData(c.shared)))
}

func (c *Clock) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := c.shared
	c.shared = nil
	return syscall.Munmap(shared)
}
