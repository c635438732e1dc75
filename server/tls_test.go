package server_test

import (
	"bytes"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/server"
)

// A certificate that was renewed is served without a restart; files that do not
// fit together, as half-way through a renewal, leave the old one in service, and are
// told of, each day, if that goes on.
func TestKeyPair_renewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		certFile, keyFile, _ := keyPair(t)
		core, logs := observer.New(zap.WarnLevel)
		current, err := server.NewKeyPair(certFile, keyFile, zap.New(core))
		if err != nil {
			t.Fatal(err)
		}
		leaf := func() []byte {
			t.Helper()
			cert, err := current()
			if err != nil {
				t.Fatal(err)
			}
			return cert.Certificate[0]
		}
		old := leaf()
		renewedCert, renewedKey, _ := keyPair(t)
		modified := time.Now().AddDate(100, 0, 0) // later than the first files, whatever the clock of this bubble
		replace := func(name, with string) {
			t.Helper()
			content, err := os.ReadFile(with)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			modified = modified.Add(time.Second)
			if err := os.Chtimes(name, modified, modified); err != nil {
				t.Fatal(err)
			}
		}
		replace(certFile, renewedCert)
		time.Sleep(11 * time.Second) // virtual
		if !bytes.Equal(leaf(), old) {
			t.Error("a certificate without its key is served")
		}
		if logs.Len() > 0 {
			t.Errorf("one look at files that do not fit together is told: %v", logs.All())
		}
		for range 3 {
			time.Sleep(11 * time.Second) // virtual
			leaf()
		}
		if told := logs.FilterFieldKey("ends"); logs.Len() != 1 || told.Len() != 1 {
			t.Errorf("told of files that do not fit together: %v; want one line, with the end of the certificate that serves", logs.All())
		}
		time.Sleep(12 * time.Hour) // virtual
		leaf()
		if logs.Len() != 1 {
			t.Errorf("told %d times within a day", logs.Len())
		}
		for range 2 {
			time.Sleep(12 * time.Hour) // virtual
			leaf()
		}
		if logs.Len() != 2 {
			t.Errorf("told %d times in a day and a half, want each day", logs.Len())
		}
		replace(keyFile, renewedKey)
		if !bytes.Equal(leaf(), old) {
			t.Error("the files were read again too soon")
		}
		time.Sleep(11 * time.Second) // virtual
		if bytes.Equal(leaf(), old) {
			t.Error("the renewed certificate is not served")
		}
	})
}
