package web_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// packed is what a compressor makes of a body.
func packed(t *testing.T, compressor func(io.Writer) io.WriteCloser, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := compressor(&b)
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t *testing.T, body []byte) []byte {
	t.Helper()
	return packed(t, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, body)
}

func brotlied(t *testing.T, body []byte) []byte {
	t.Helper()
	return packed(t, func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }, body)
}

func zstded(t *testing.T, body []byte, options ...zstd.EOption) []byte {
	t.Helper()
	return packed(t, func(w io.Writer) io.WriteCloser {
		encoder, err := zstd.NewWriter(w, append(options, zstd.WithEncoderConcurrency(1))...)
		if err != nil {
			t.Fatal(err)
		}
		return encoder
	}, body)
}

func TestHandler_Body(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const limit = 1000
	text := strings.Repeat("x", limit)
	good := zipped(t, []byte(text))
	gz := map[string]string{"Content-Encoding": "gzip"}
	s.page("/plain", nil, 200, text)
	s.page("/plain-long", nil, 200, text+"x")
	s.mux.HandleFunc("/stream-long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text[:500])
		_ = http.NewResponseController(w).Flush() // no Content-Length
		_, _ = io.WriteString(w, text[499:])
	})
	s.page("/gzip", gz, 200, string(good))
	s.page("/x-gzip", map[string]string{"Content-Encoding": "X-GZIP"}, 200, string(good))
	s.page("/gzip-long", gz, 200, string(zipped(t, []byte(text+"x"))))
	s.page("/gzip-bomb", gz, 200, string(zipped(t, make([]byte, 100*limit))))
	s.page("/gzip-cut", gz, 200, string(good[:len(good)-10]))
	s.page("/gzip-bad", gz, 200, text[:100])
	s.page("/gzip-empty", gz, 200, "")
	coded := func(path, coding string, body []byte) {
		s.page(path, map[string]string{"Content-Encoding": coding}, 200, string(body))
	}
	br, zst := brotlied(t, []byte(text)), zstded(t, []byte(text))
	coded("/br", "br", br)
	coded("/br-cut", "br", br[:len(br)-2])
	coded("/br-bad", "br", []byte(text))
	coded("/br-empty", "br", nil)
	coded("/br-long", "br", brotlied(t, []byte(text+"x")))
	coded("/zstd", "ZSTD", zst)
	coded("/zstd-cut", "zstd", zst[:len(zst)-2])
	coded("/zstd-bad", "zstd", []byte(text))
	coded("/zstd-empty", "zstd", nil)
	coded("/zstd-long", "zstd", zstded(t, []byte(text+"x")))
	coded("/both", "identity, gzip , br", brotlied(t, good))
	coded("/twice-long", "gzip, gzip", zipped(t, zipped(t, make([]byte, 100*limit))))
	coded("/middle-long", "gzip, gzip", zipped(t, bytes.Repeat(zipped(t, nil), limit)))
	coded("/thrice", "gzip, gzip, gzip", zipped(t, zipped(t, good)))
	coded("/deflate", "deflate", good)
	s.page("/empty", nil, 200, "")
	s.page("/no-content", nil, 204, "")
	s.mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "x")
	})

	sink := &memorySink{}
	h := newHandler(t, web.Config{MaxBytes: limit, Sink: sink})
	for path, want := range map[string]string{
		"/plain": text, "/gzip": text, "/x-gzip": text, "/br": text, "/zstd": text, "/both": text, "/br-empty": "", "/zstd-empty": "",
		"/gzip-empty": "", "/empty": "", "/no-content": "",
	} {
		if _, err := handle(t, h, &collector.Task{URL: s.URL + path}); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		last := sink.pages[len(sink.pages)-1]
		sum := sha256.Sum256([]byte(want))
		if last.Digest != hex.EncodeToString(sum[:]) || last.Bytes != int64(len(want)) || string(sink.bodies[last.Digest]) != want {
			t.Errorf("%s: page %+v", path, last)
		}
	}
	for path, want := range map[string]collector.Reason{
		"/plain-long": collector.ReasonTooLarge, "/stream-long": collector.ReasonTooLarge, "/gzip-long": collector.ReasonTooLarge,
		"/gzip-bomb": collector.ReasonTooLarge, "/gzip-bad": collector.ReasonUnsupportedContent,
		"/br-bad": collector.ReasonUnsupportedContent, "/zstd-bad": collector.ReasonUnsupportedContent,
		"/br-long": collector.ReasonTooLarge, "/zstd-long": collector.ReasonTooLarge, "/twice-long": collector.ReasonTooLarge,
		"/middle-long": collector.ReasonTooLarge, "/thrice": collector.ReasonUnsupportedContent,
		"/deflate": collector.ReasonUnsupportedContent, "/br-cut": collector.ReasonConnectionLost, "/zstd-cut": collector.ReasonConnectionLost,
		"/gzip-cut": collector.ReasonConnectionLost, "/broken": collector.ReasonConnectionLost,
	} {
		_, err := handle(t, h, &collector.Task{URL: s.URL + path})
		got := failedOf(t, err)
		if got.Reason != want || got.Permanent != (want == collector.ReasonTooLarge) {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
	}
}

// TestHandler_Ratio holds that a bomb is seen by what it grows to, and that a small page may shrink as it likes.
func TestHandler_Ratio(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	zeros, small := make([]byte, 8<<20), make([]byte, 1<<20)
	for coding, pack := range map[string]func(*testing.T, []byte) []byte{
		"gzip": zipped, "br": brotlied, "zstd": func(t *testing.T, b []byte) []byte { return zstded(t, b) },
	} {
		s.page("/bomb-"+coding, map[string]string{"Content-Encoding": coding}, 200, string(pack(t, zeros)))
		s.page("/small-"+coding, map[string]string{"Content-Encoding": coding}, 200, string(pack(t, small)))
	}
	wide := zstded(t, zeros, zstd.WithWindowSize(16<<20), zstd.WithSingleSegment(false))
	s.page("/window", map[string]string{"Content-Encoding": "zstd"}, 200, string(wide))
	h, generous := newHandler(t, web.Config{}), newHandler(t, web.Config{MaxRatio: 1 << 20})
	for _, coding := range []string{"gzip", "br", "zstd"} {
		_, err := handle(t, h, &collector.Task{URL: s.URL + "/bomb-" + coding})
		if got := failedOf(t, err); got.Reason != collector.ReasonTooLarge || !strings.Contains(got.Message, "200 times") {
			t.Errorf("%s: %+v", coding, got)
		}
		if done, err := handle(t, generous, &collector.Task{URL: s.URL + "/bomb-" + coding}); err != nil || done.Bytes != 8<<20 {
			t.Errorf("%s: %d bytes, %v", coding, done.Bytes, err)
		}
		if done, err := handle(t, h, &collector.Task{URL: s.URL + "/small-" + coding}); err != nil || done.Bytes != 1<<20 {
			t.Errorf("%s: %d bytes, %v", coding, done.Bytes, err)
		}
	}
	_, err := handle(t, generous, &collector.Task{URL: s.URL + "/window"})
	if got := failedOf(t, err); got.Reason != collector.ReasonUnsupportedContent {
		t.Errorf("a window of 16 MiB: %+v", got)
	}
}
