package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// keyPairCheck is the least time between two looks at the files of a key pair.
	keyPairCheck = 10 * time.Second
	// keyPairFails is how many looks in a row fail before that is told: half-written
	// files are met while a certificate is being renewed.
	keyPairFails = 2
	// keyPairTold is how long after that, while looks go on to fail, it is told again.
	keyPairTold = 24 * time.Hour
)

// keyPair is a certificate that follows its files, so that renewing it needs no restart.
type keyPair struct {
	certFile, keyFile string
	log               *zap.Logger

	mu      sync.Mutex // guards the rest
	cert    *tls.Certificate
	changed time.Time // of the newer file, when cert was read
	checked time.Time
	failed  int       // looks in a row
	told    time.Time // of those
}

func newKeyPair(certFile, keyFile string, log *zap.Logger) (*keyPair, error) {
	k := &keyPair{certFile: certFile, keyFile: keyFile, log: log}
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
		k.look(now)
	}
	return k.cert, nil
}

// look reads the files again; the certificate at hand serves until they fit together. Who
// renews it must learn, before that one ends, of files that do not. The caller holds mu.
func (k *keyPair) look(now time.Time) {
	err := k.load(now)
	if err == nil {
		k.failed = 0
		return
	}
	if k.failed++; k.failed == keyPairFails || k.failed > keyPairFails && now.Sub(k.told) >= keyPairTold {
		k.told = now
		k.log.Warn("the TLS certificate cannot be read again; the one that was read last is served on",
			zap.Time("ends", k.cert.Leaf.NotAfter), zap.Error(err))
	}
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
