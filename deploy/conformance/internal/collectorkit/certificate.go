package collectorkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certify makes an authority and a certificate by it for one host, and has the client program trust the authority, or
// another one that has nothing to do with it.
func (k *kit) certify(host string, trusted bool) (*tls.Config, error) {
	authority, err := newAuthority()
	if err != nil {
		return nil, err
	}
	shown := authority
	if !trusted {
		if shown, err = newAuthority(); err != nil {
			return nil, err
		}
	}
	k.config.TLSCA = filepath.Join(k.dir, "ca.pem")
	file, err := os.OpenFile(k.config.TLSCA, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // the client program notices
	if err := pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: shown.certificate.Raw}); err != nil {
		return nil, err
	}
	return authority.serve(host)
}

// authority signs certificates.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template := template(serial)
	template.Subject = pkix.Name{CommonName: "kit authority " + serial.String()}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{key: key, certificate: certificate}, err
}

// serve is the configuration of a server with a certificate that is good for one host only.
func (a *authority) serve(host string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := template(big.NewInt(2))
	template.Subject = pkix.Name{CommonName: host}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}, nil
}

func template(serial *big.Int) *x509.Certificate {
	return &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
}
