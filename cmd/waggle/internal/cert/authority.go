package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"

	publicMode = 0o644
	secretMode = 0o600
	dirMode    = 0o700

	// clockSkew is how long before now a certificate begins: clocks of machines differ.
	clockSkew = 5 * time.Minute
)

func authorityFile(dir string) string    { return filepath.Join(dir, "ca.pem") }
func authorityKeyFile(dir string) string { return filepath.Join(dir, "ca-key.pem") }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// makeAuthority makes an authority, and returns how many ca.pem has then: of older ones those that have not ended.
func makeAuthority(dir string, now, until time.Time, renew bool) (trusted int, err error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return 0, err
	}
	var older []*x509.Certificate
	if renew {
		if older, err = readCertificates(authorityFile(dir)); err != nil {
			return 0, fmt.Errorf("--renew: %w", err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return 0, err
	}
	// Its own name for each: some libraries find the issuer of a certificate by the name alone.
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Waggle CA " + rand.Text()[:8]},
		NotBefore: now.Add(-clockSkew), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return 0, err
	}
	content, trusted := certPEM(der), 1
	for _, c := range older {
		if now.Before(c.NotAfter) {
			content, trusted = append(content, certPEM(c.Raw)...), trusted+1
		}
	}
	return trusted, writePair(authorityFile(dir), authorityKeyFile(dir), content, key, renew)
}

// dropOldAuthorities leaves only the authority of the key in ca.pem, and returns how many others there were.
func dropOldAuthorities(dir string) (dropped int, err error) {
	ca, err := readAuthority(dir)
	if err != nil {
		return 0, err
	}
	all, err := readCertificates(authorityFile(dir))
	if err != nil {
		return 0, err
	}
	return len(all) - 1, cli.ReplaceFile(authorityFile(dir), certPEM(ca.cert.Raw), publicMode)
}

// readAuthority reads the authority of a directory: of the certificates in ca.pem the one of the key.
func readAuthority(dir string) (*authority, error) {
	certs, err := readCertificates(authorityFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Advise(fmt.Errorf("%s has no authority: %w", dir, err), "`waggle cert ca "+dir+"` makes one")
	}
	if err != nil {
		return nil, err
	}
	key, err := readKey(authorityKeyFile(dir))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return key.PublicKey.Equal(c.PublicKey) })
	if i < 0 {
		return nil, fmt.Errorf("%s is the key of no certificate in %s", authorityKeyFile(dir), authorityFile(dir))
	}
	return &authority{cert: certs[i], key: key}, nil
}

// readCertificates reads the certificates of a PEM file: one at least.
func readCertificates(path string) ([]*x509.Certificate, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certBlock {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return certs, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != keyBlock {
		return nil, fmt.Errorf("%s holds no PEM %s", path, keyBlock)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of type %T; want ECDSA", path, parsed)
	}
	return key, nil
}

func certPEM(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der}) }

// writePair writes a certificate and its key. Files that exist are replaced by a renewal only.
func writePair(certFile, keyFile string, certs []byte, key *ecdsa.PrivateKey, renew bool) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})
	if renew { // ca.pem has the old certificate too, so the old key is of use until the new one is there
		if err := cli.ReplaceFile(certFile, certs, publicMode); err != nil {
			return err
		}
		return cli.ReplaceFile(keyFile, secret, secretMode)
	}
	for _, path := range []string{certFile, keyFile} {
		if _, err := os.Stat(path); err == nil {
			return cli.Advise(fmt.Errorf("%s exists", path), "--renew makes a new certificate and a new key")
		}
	}
	if err := cli.CreateFile(keyFile, secret, secretMode); err != nil {
		return err
	}
	return cli.CreateFile(certFile, certs, publicMode)
}
