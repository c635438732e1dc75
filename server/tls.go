package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// keyPairCheck is the least time between two looks at the files of a key pair.
const keyPairCheck = 10 * time.Second

// keyPair is a certificate that follows its files, so that renewing it needs no
// restart.
type keyPair struct {
	certFile, keyFile string

	mu      sync.Mutex // guards the rest
	cert    *tls.Certificate
	changed time.Time // of the newer file, when cert was read
	checked time.Time
}

func newKeyPair(certFile, keyFile string) (*keyPair, error) {
	k := &keyPair{certFile: certFile, keyFile: keyFile}
	if err := k.load(time.Now()); err != nil {
		return nil, err
	}
	return k, nil
}

// certificate gives the newest certificate that could be read.
func (k *keyPair) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.checked) >= keyPairCheck {
		// Half-written files are met while a certificate is being renewed: the
		// one at hand serves until the files fit together.
		if err := k.load(now); err != nil && k.cert == nil {
			return nil, err
		}
	}
	return k.cert, nil
}

// load reads the files if they have changed. The caller holds mu, or is alone.
func (k *keyPair) load(now time.Time) error {
	k.checked = now
	var newest time.Time
	for _, name := range []string{k.certFile, k.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("server: TLS: %w", err)
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if k.cert != nil && newest.Equal(k.changed) {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(k.certFile, k.keyFile)
	if err != nil {
		return fmt.Errorf("server: TLS certificate %q with key %q: %w", k.certFile, k.keyFile, err)
	}
	k.cert, k.changed = &cert, newest
	return nil
}
